// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

// Every command's help has examples, in lines of at most 80 columns.
func TestHelp(t *testing.T) {
	all := commands(t.Context(), streams{})
	for name, make := range all {
		c, err := make()
		if err != nil {
			t.Fatal(err)
		}
		text := c.Help()
		if !strings.HasPrefix(text, "Usage: nomad-pal "+name) || c.Synopsis() == "" {
			t.Errorf("%s: %q", name, text[:40])
		}
		if strings.Contains(text, "](") {
			t.Errorf("%s: the help has a Markdown link", name)
		}
		for line := range strings.SplitSeq(text, "\n") {
			if n := len([]rune(line)); n > 80 {
				t.Errorf("%s: %d columns: %s", name, n, line)
			}
		}
		if !strings.Contains(text, "\n      $ ") {
			t.Errorf("%s has no examples", name)
		}
	}
}

// The list of commands fits into 80 columns, too.
func TestCommandList(t *testing.T) {
	c := newCluster(t)
	_, out, said := c.does("-help")
	for line := range strings.SplitSeq(out+said, "\n") {
		if n := len([]rune(line)); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	if !strings.Contains(out+said, "Available commands are:") {
		t.Errorf("%s%s", out, said)
	}
}

// For an unknown command the error names it, and the most similar command.
func TestUnknownCommand(t *testing.T) {
	c := newCluster(t)
	for args, want := range map[string]string{
		"explian train": `nomad-pal has no command "explian": did you mean "explain"? See nomad-pal -help.`,
		"que":           `nomad-pal has no command "que": did you mean "queue"? See nomad-pal -help.`,
		"sbatch job.sh": `nomad-pal has no command "sbatch": did you mean "run"? See nomad-pal -help.`,
		"sinfo":         `nomad-pal has no command "sinfo": did you mean "gpus"? See nomad-pal -help.`,
		"stop train":    `nomad-pal has no command "stop"; use Nomad's own command: nomad job stop.`,
		"job status":    `nomad-pal has no command "job"; use Nomad's own command: nomad job.`,
		"exec":          `nomad-pal has no command "exec"; use Nomad's own command: nomad alloc exec.`,
		"help":          `nomad-pal has no command "help"; see nomad-pal -help.`,
		"help explain":  `nomad-pal has no command "help"; see nomad-pal -help.`,
		"xyzzy":         `nomad-pal has no command "xyzzy"; see nomad-pal -help.`,
		"profile shw":   `nomad-pal has no command "profile shw": did you mean "profile show"? See nomad-pal -help.`,
	} {
		if code, out, said := c.does(strings.Fields(args)...); code != 127 || out != "" || strings.TrimSpace(said) != want {
			t.Errorf("%s: %d %s%s", args, code, out, said)
		}
	}
}

// A mistyped argument is refused in one line, which suggests what was meant.
func TestTypedWrong(t *testing.T) {
	c := newCluster(t)
	for args, want := range map[string]string{
		"explain -nmaespace foo train": "flag provided but not defined: -nmaespace (did you mean -namespace?); see nomad-pal explain -help",
		"explain -xyzzy foo train":     "flag provided but not defined: -xyzzy; see nomad-pal explain -help",
		"explain train -json":          "options go before arguments: nomad-pal explain -json train",
		"status train":                 "nomad-pal status takes 0 arguments, got 1; see -help",
		"gpus train":                   "nomad-pal gpus takes 0 arguments, got 1; see -help",
		"events -limit -5":             "-limit -5 is negative; 0 shows all",
		"release -all train":           "give one job, or use -all",
		"release one two":              "give one job, or use -all",
		"release train -now":           "options go before arguments: nomad-pal release -now train",
		"quarantine -lift GPU-1 -json": "options go before arguments: nomad-pal quarantine -lift -json GPU-1",
	} {
		if code, out, said := c.does(strings.Fields(args)...); code != 1 || out != "" || strings.TrimSpace(said) != "Error: "+want {
			t.Errorf("%s: %d %s%s", args, code, out, said)
		}
	}
	if _, _, said := c.does("quarantine", "GPU-1", "-reason", "fan rattles"); !strings.Contains(said, "nomad-pal quarantine -reason 'fan rattles' GPU-1") {
		t.Errorf("a suggestion that can be typed unchanged: %s", said)
	}
}

// An error about a Nomad that does not answer has Nomad's address, and where that
// comes from.
func TestUnreachable(t *testing.T) {
	c := newCluster(t)
	for _, args := range [][]string{{"status"}, {"explain", "train"}, {"quarantine"}, {"release", "train"}} {
		code, _, said := c.does(append(args[:1:1], append([]string{"-address=http://127.0.0.1:1"}, args[1:]...)...)...)
		if code != 1 || !strings.Contains(said, "No answer at http://127.0.0.1:1. Is that Nomad's address (NOMAD_ADDR, or -address), and does Nomad run there?") {
			t.Errorf("%v: %d %s", args, code, said)
		}
	}
	if _, _, said := c.does("explain", "nobody"); strings.Contains(said, "NOMAD_ADDR") {
		t.Errorf("the error is shown although Nomad answers: %s", said)
	}
}

// A command whose help does not name -json refuses the option.
func TestOutputOptionsAreRefused(t *testing.T) {
	c := newCluster(t)
	refused := 0
	for name, f := range commands(t.Context(), streams{}) {
		command, err := f()
		if err != nil {
			t.Fatal(err)
		}
		if name != "profile" && !strings.Contains(command.Help(), "  -json") { // profile only has subcommands
			refused++
			if code, _, said := c.does(append(strings.Fields(name), "-json")...); code == 0 || !strings.Contains(said, "-json") {
				t.Errorf("%s: %d %s", name, code, said)
			}
		}
	}
	if refused < 3 {
		t.Errorf("%d refused", refused)
	}
}

// A command accepts exactly the options in its help: the reference is made from the help.
func TestHelpNamesTheOptions(t *testing.T) {
	all, names, help := commands(t.Context(), streams{}), map[string]bool{}, map[string]string{}
	for name, f := range all {
		command, err := f()
		if err != nil {
			t.Fatal(err)
		}
		help[name] = command.Help()
		for _, m := range regexp.MustCompile(`(?m)^  -([a-z-]+)`).FindAllStringSubmatch(help[name], -1) {
			names[m[1]] = true
		}
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\bfs\.\w+\((?:[^",]+, )?"([a-z-]+)"`).FindAllStringSubmatch(string(text), -1) {
			names[m[1]] = true
		}
	}
	general := (&base{}).flags("") // every command has these; some refuse or ignore them
	for name := range all {
		for option := range names {
			if name == "profile" { // profile only has subcommands
				continue
			}
			var out, said bytes.Buffer
			run(t.Context(), append(strings.Fields(name), "-"+option+"=1", "-no-such"), streams{strings.NewReader(""), &out, &said, false})
			takes := !regexp.MustCompile(`not defined: -` + option + `[; \n]`).MatchString(said.String())
			named := regexp.MustCompile(`(?m)^  (-.*, )?-` + option + `[ =\n]`).MatchString(help[name])
			if named != takes && (named || general.Lookup(option) == nil) {
				t.Errorf("%s -%s: in its help: %t; accepted: %t", name, option, named, takes)
			}
		}
	}
	if len(names) < 50 {
		t.Errorf("found only %d options", len(names))
	}
}

// The suggested next step depends on the kind of the error, not on its words.
func TestUnreached(t *testing.T) {
	t.Setenv("NOMAD_TOKEN", "")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	defer server.Close()
	client, err := api.NewClient(&api.Config{Address: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	_, _, refused := client.Nodes().List(nil)
	noJob := nomad.NoJob(cluster.JobKey{Namespace: "default", ID: "j"})
	for _, c := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("asking: %w", noJob), "lists the jobs with GPUs"},
		{refusal{"no job", noJob}, "lists the jobs with GPUs"},
		{errors.New("no job is in this file"), ""},
		{fmt.Errorf("reading nodes: %w", refused), "No token was given"},
		{refusal{"the agent answers 403", refused}, "No token was given"},
		{&os.PathError{Op: "open", Path: "j.nomad.hcl", Err: os.ErrPermission}, ""},
	} {
		if got := unreached((&base{}), c.err); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
}
