// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/cli"
)

var helpCompletion = help("completion bash | zsh | fish", `
Prints a script that makes the shell complete commands, options, and ids of jobs
and GPUs. It writes no file: you choose where to put the script.
`, examples(
	"In this shell only:", "source <(nomad-pal completion bash)",
	"For all of your shells, with bash-completion:", "nomad-pal completion bash > \\\n          ~/.local/share/bash-completion/completions/nomad-pal",
	"With zsh:", `nomad-pal completion zsh > "${fpath[1]}/_nomad-pal"`,
	"With fish:", "nomad-pal completion fish > \\\n          ~/.config/fish/completions/nomad-pal.fish",
))

// completeCommand is the hidden command that the scripts call for candidates.
const completeCommand = "__complete"

// completionScripts are scripts for shells. They request candidates from this binary, and pass all
// words up to the cursor; the user has not finished the last of these words.
var completionScripts = map[string]string{
	"bash": `_nomad_pal() {
  local IFS=$'\n'
  COMPREPLY=($(nomad-pal ` + completeCommand + ` "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _nomad_pal nomad-pal
`,
	"zsh": `#compdef nomad-pal
_nomad_pal() {
  local -a found
  found=("${(@f)$(nomad-pal ` + completeCommand + ` "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ -n "$found" ]]; then compadd -- $found; else _files; fi
}
if [ "$funcstack[1]" = "_nomad-pal" ]; then _nomad_pal; else compdef _nomad_pal nomad-pal; fi
`,
	"fish": `complete -c nomad-pal -a '(nomad-pal ` + completeCommand + ` (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'
`,
}

func runCompletion(b *base, args []string) int {
	rest, ok := b.parse(b.only(b.flags("completion")), args, 1)
	if !ok {
		return 1
	}
	script, ok := completionScripts[rest[0]]
	if !ok {
		return b.fail(fmt.Errorf("no completion for shell %q, only for bash, fish and zsh", rest[0]))
	}
	b.write(script)
	return 0
}

// completeWithin is the maximum time for which a shell waits for ids.
const completeWithin = 3 * time.Second

// complete prints the candidates for the last of the words.
func complete(ctx context.Context, io streams, words []string, commands map[string]cli.CommandFactory) int {
	last := ""
	if len(words) > 0 {
		last, words = words[len(words)-1], words[:len(words)-1]
	}
	for _, w := range candidatesFor(ctx, io, words, last, commands) {
		if strings.HasPrefix(w, last) {
			fmt.Fprintln(io.out, w)
		}
	}
	return 0
}

// optionName matches the options in a help text.
var optionName = regexp.MustCompile(`(?:^|, |  )(-[a-z0-9-]+)(=?)`)

func candidatesFor(ctx context.Context, io streams, words []string, last string, commands map[string]cli.CommandFactory) []string {
	names := slices.Sorted(maps.Keys(commands))
	if len(words) == 0 {
		return slices.DeleteFunc(names, func(n string) bool { return strings.Contains(n, " ") })
	}
	name := words[0]
	if name == "profile" {
		if len(words) == 1 {
			var subs []string
			for _, n := range names {
				if sub, ok := strings.CutPrefix(n, "profile "); ok {
					subs = append(subs, sub)
				}
			}
			return subs
		}
		name += " " + words[1]
	}
	made, ok := commands[name]
	if !ok {
		return nil
	}
	command, err := made()
	if err != nil {
		return nil
	}
	if strings.HasPrefix(last, "-") {
		return options(command.Help())
	}
	return ids(ctx, io, name, words)
}

// options returns the options that a help text describes.
func options(text string) (out []string) {
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(line, "  -") {
			head, _, _ := strings.Cut(line[2:], "  ")
			for _, m := range optionName.FindAllStringSubmatch(head, -1) {
				out = append(out, m[1]+m[2])
			}
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(out)))
}

// ids returns the ids of jobs, GPUs and nodes that the command accepts as its next argument.
func ids(ctx context.Context, streams streams, name string, words []string) (out []string) {
	switch name {
	case "completion":
		return slices.Sorted(maps.Keys(completionScripts))
	case "schema":
		return schemaNames()
	case "cancel", "explain", "release", "classify", "quarantine":
	default:
		if words[len(words)-1] != "-job" {
			return nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, completeWithin)
	defer cancel()
	b := &base{ctx: ctx, io: streams}
	b.io.out, b.io.err = io.Discard, io.Discard
	b.flags(name) // sets the options to their defaults
	a, err := b.ask()
	if err != nil {
		return nil
	}
	if name != "quarantine" {
		jobs, err := a.Jobs()
		if err != nil {
			return nil
		}
		for _, j := range jobs {
			if j.Namespace == b.namespace {
				out = append(out, j.Job)
			}
		}
	}
	if name == "explain" || name == "quarantine" {
		gpus, err := a.GPUs()
		if err != nil {
			return out
		}
		for _, g := range gpus {
			if name == "explain" || g.Quarantine != nil {
				out = append(out, g.ID)
			}
			if name == "explain" {
				out = append(out, g.Node)
			}
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(out)))
}
