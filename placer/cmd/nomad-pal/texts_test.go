// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// commandsIn matches nomad-pal's commands in a text, with their options.
var commandsIn = regexp.MustCompile("(?:^|[ (:`;'\"])nomad-pal ((?:profile )?[a-z]+)((?: +(?:-[a-z][a-z-]*(?:[= ]\\S+)?|[^- `.,;:)'\"]\\S*))*)")

// notCommands matches words after the name that are no command, but say what
// nomad-pal does.
var notCommands = regexp.MustCompile(`^(is|was|has|needs|counts|does|takes|chooses|writes|answers|says|edits|places|serves|and|or|in|to|on|at|for|of|with|without|from|as|by|lists|job|runs|keeps|may|can|there|that|which|then|compares|gives|it|v|leaves|also|never|requeues|retries|moves|knows|raises|did|starts|stops|chose|cannot|expects|changed|sets|accepts|overwrote|started|avoids|removes|tries|would)$`)

// TestCommandsInTexts: the commands and options in the code's texts, the docs and the jobspecs exist.
func TestCommandsInTexts(t *testing.T) {
	seen := 0
	for _, dir := range []string{".", "../..", "../../agent", "../../constraint", "../../gang", "../../heartbeat", "../../model", "../../nomad", "../../query", "../../rewrite", "../../../pal/reason", "../../../device-plugin", "../../../device-plugin/cmd/nomad-device-pal", "../../../device-plugin/gpu", "../../../device-plugin/measure"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatal(dir, err)
		}
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
					text, _ := strconv.Unquote(l.Value)
					seen += checkCommands(t, path, text)
				}
				return true
			})
		}
	}
	// In docs, a command stands in a code span, behind a prompt, in an indented line, or in a jobspec's
	// comment.
	use := regexp.MustCompile("(?m)(?:`|\\$ |^    |^#  +)(nomad-pal [^`|\n#]*)")
	for path, text := range pagesOfDocs(t) {
		for _, m := range use.FindAllStringSubmatch(text, -1) {
			seen += checkCommands(t, path, m[1])
		}
	}
	if seen < 100 {
		t.Errorf("only %d commands", seen)
	}
}

// checkCommands checks the commands that a text names, and counts them.
func checkCommands(t *testing.T, where, text string) (n int) {
	t.Helper()
	all := commands(t.Context(), streams{})
	for _, m := range commandsIn.FindAllStringSubmatch(text, -1) {
		name := m[1]
		if notCommands.MatchString(name) {
			continue
		}
		n++
		make, ok := all[name]
		if !ok {
			t.Errorf("%s: there is no command nomad-pal %s: %s", where, name, text)
			continue
		}
		if name == "profile" {
			t.Errorf("%s: nomad-pal profile does nothing without a subcommand: %s", where, text)
		}
		command, err := make()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range regexp.MustCompile(`(?:^| )(-[a-z][a-z-]*)`).FindAllStringSubmatch(m[2], -1) {
			if f[1] != "-help" && !regexp.MustCompile(`(?m)(^|[\s,(])`+f[1]+`\b`).MatchString(command.Help()) {
				t.Errorf("%s: nomad-pal %s has no option %s: %s", where, name, f[1], text)
			}
		}
	}
	return n
}
