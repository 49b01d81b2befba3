// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/internal/patience"
)

// notTyped marks, on the line above a code block, that TestDocs does not type
// its commands. The reason follows.
const notTyped = "<!-- not typed by TestDocs: "

// typedTable marks, on the line above a table, that TestDocs types the commands in its last column.
const typedTable = "<!-- typed by TestDocs -->"

// commands are those that a page tells the reader to type: the lines of its code blocks that
// start with "$ ", and the last column of tables marked with typedTable. make is not typed:
// its targets build for minutes, or run all tests.
func commands(page string) []string {
	var typed []string
	in, skip, table, before := false, false, false, ""
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		table = before == typedTable || table && strings.HasPrefix(line, "|")
		switch command, ok := strings.CutPrefix(line, "$ "); {
		case table:
			cells := strings.Split(strings.Trim(line, "|"), "|")
			switch last := strings.Trim(cells[len(cells)-1], " `"); {
			case strings.HasPrefix(last, "nomad-pal "):
				typed = append(typed, last)
			case strings.Contains(last, "nomad-pal "):
				typed = append(typed, "a link hides: "+last)
			}
		case strings.HasPrefix(line, "```"):
			in = !in
			skip = in && strings.HasPrefix(before, notTyped)
		case in && !skip && ok && !strings.HasPrefix(command, "make "):
			typed = append(typed, command)
		}
		before = line
	}
	return typed
}

// TestDocs types the commands in README.md and docs/, page by page and in order, on a
// real cluster with an agent. All must succeed. It leaves out the pages of docs/reference
// that are made from the commands' help: the commands' own tests check them.
func TestDocs(t *testing.T) {
	t.Parallel()
	b := newBed(t, placerScores, cluster.Options{ACL: true})
	config := edgeConfig + fmt.Sprintf("history {\n  database = %q\n}\n", filepath.Join(t.TempDir(), "history.db"))
	agent := b.startPal(t, config, append(os.Environ(), b.Env()...))
	b.untilReady(agent)
	history := gang("history", 1, 1)
	history.script = "exit 0"
	b.run(history.hcl())
	b.untilComplete("history", 1)
	dir := docsFolder(t)
	nomad, err := cluster.FindNomad()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(nomad, filepath.Join(dir, "bin", "nomad")); err != nil {
		t.Fatal(err)
	}
	env := append(append(os.Environ(), b.Env()...), "NOMAD_PAL_ADDR=http://"+agent.Address(),
		"PATH="+strings.Join([]string{filepath.Join(dir, "bin"), filepath.Dir(b.Program("nomad-pal")), os.Getenv("PATH")}, ":"))
	pages := []string{"../README.md"}
	for _, pattern := range []string{"../docs/*.md", "../docs/tasks/*.md", "../docs/users/*.md", "../docs/operators/*.md", "../docs/reference/*.md", "../docs/design/*.md", "../docs/results/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	all := 0
	for _, page := range pages {
		if slices.Contains([]string{"nomad-pal.md", "nomad-device-pal.md"}, filepath.Base(page)) {
			continue
		}
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		typed := commands(string(text))
		if len(typed) == 0 {
			continue
		}
		all += len(typed)
		t.Run(filepath.Base(page), func(t *testing.T) {
			for _, command := range typed {
				typeCommand(t, dir, env, command)
			}
		})
	}
	b.purge("history", "train", "whole")
	if all < 20 {
		t.Errorf("only %d commands", all)
	}
}

// typeCommand runs one command in a shell. plan exits with 1 if the job would
// start now, and with 2 if it never would. top needs a terminal (TestTop).
func typeCommand(t *testing.T, dir string, env []string, command string) {
	t.Helper()
	if !strings.HasPrefix(command, "nomad-pal ") && !strings.HasPrefix(command, "nomad ") {
		t.Errorf("$ %s: this command may change this machine. Mark the block: %s…", command, notTyped)
		return
	}
	ctx, cancel := patience.Context(t.Context(), patience.Long)
	defer cancel()
	sh := exec.CommandContext(ctx, "/bin/bash", "-c", "exec "+command)
	sh.Dir, sh.Env = dir, env
	out, err := sh.CombinedOutput()
	switch code := sh.ProcessState.ExitCode(); {
	case code == 1 && strings.Contains(string(out), "the job neither runs nor waits"): // requeue after its three minutes
	case (code == 1 || code == 2 && strings.Contains(command, "never")) && strings.HasPrefix(command, "nomad-pal plan "):
	case err != nil:
		t.Errorf("$ %s\n%v:\n%s", command, err, out)
	}
}

// docsFolder is a folder with the files that the commands in the docs name.
func docsFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"agent.hcl": "placement = \"pal\"\n",
		"times.csv": "gpu,app,time\n" + gpu(0, 0) + ",A,1.0\n" + gpu(0, 1) + ",A,1.1\n",
		"jobs.csv":  "job_id,gpus,submit_time,duration,model\n0,1,98,1481.0,vgg19\n1,12,115,4037.0,resnet50\n",
		"bin/.keep": "",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(root, "bench/cmd/playground/jobs"))); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"placer", "jobspecs"} {
		if err := os.Symlink(filepath.Join(root, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

var nomadCommand = regexp.MustCompile("`nomad ((?:[a-z][a-z-]*)(?:\\s[a-z][a-z-]*)*)[^`]*`")

// TestNomadCommandsInDocs: each `nomad …` in the docs is a command of Nomad.
func TestNomadCommandsInDocs(t *testing.T) {
	t.Parallel()
	nomad, err := cluster.FindNomad()
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]string{} // command to page
	for _, pattern := range []string{"../README.md", "../docs/*.md", "../docs/*/*.md"} {
		pages, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, page := range pages {
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range nomadCommand.FindAllStringSubmatch(string(text), -1) {
				named[m[1]] = page
			}
		}
	}
	if len(named) < 20 {
		t.Errorf("only %d commands", len(named))
	}
	for command, page := range named {
		out, err := exec.CommandContext(t.Context(), nomad, append(strings.Fields(command), "-help")...).CombinedOutput()
		usage, _, _ := strings.Cut(string(out), "\n")
		if err != nil || strings.Contains(usage, "<subcommand>") {
			t.Errorf("%s: there is no command nomad %s: %s", page, command, usage)
		}
	}
}
