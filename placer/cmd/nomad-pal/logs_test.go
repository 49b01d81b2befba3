// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

// Each line has its member's label, however the log is cut into pieces. A progress bar's carriage
// returns end lines. A last line without an end is printed, too.
func TestLogLines(t *testing.T) {
	t.Parallel()
	const text = "one\r\ntwo\rthree\n\nfour"
	const want = "> one\n> two\n> three\n> \n> four\n"
	for piece := 1; piece <= len(text); piece++ {
		var out bytes.Buffer
		p := &prefixed{to: &lineWriter{w: &out}, prefix: "> "}
		for rest := text; rest != ""; {
			n := min(piece, len(rest))
			if _, err := p.Write([]byte(rest[:n])); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if p.flush(); out.String() != want {
			t.Errorf("in pieces of %d:\n%s", piece, &out)
		}
	}
}

// A task that never ends its line does not use up memory, and its text is printed.
func TestEndlessLine(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := &prefixed{to: &lineWriter{w: &out}, prefix: "> "}
	for range 100 {
		if _, err := p.Write(bytes.Repeat([]byte("x"), 10_000)); err != nil {
			t.Fatal(err)
		}
	}
	if len(p.rest) > longestLine || out.Len() < 900_000 {
		t.Errorf("%d bytes are kept, %d printed", len(p.rest), out.Len())
	}
}

// Programs often write only to standard error. logs says where to look if it has nothing to print.
func TestEmptyLogs(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	l := &logs{key: cluster.JobKey{Namespace: "team", ID: "train"}, out: &lineWriter{w: &out}}
	p := &prefixed{to: l.out, prefix: "> "}
	if p.flush(); l.out.wrote {
		t.Error("nothing was written")
	}
	for kind, want := range map[string]string{
		api.FSLogNameStdout: "have written nothing to standard output. Their standard error: nomad-pal logs -stderr -namespace team train",
		api.FSLogNameStderr: "have written nothing to standard error. Their standard output: nomad-pal logs -namespace team train",
	} {
		l.o.kind = kind
		if got := l.silent(); !strings.HasSuffix(got, want) {
			t.Errorf("%s: %s", kind, got)
		}
	}
	if _, err := p.Write([]byte("step 1\n")); err != nil || !l.out.wrote {
		t.Errorf("a line was written: %v", err)
	}
}

func TestLastLines(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		n    int
		want string
	}{
		{"a\nb\nc\n", 1, "c\n"},
		{"a\nb\nc\n", 2, "b\nc\n"},
		{"a\nb\nc\n", 3, "a\nb\nc\n"},
		{"a\nb\nc\n", 9, "a\nb\nc\n"},
		{"a\nb\nc", 1, "c"},
		{"a\n\n\n", 2, "\n\n"},
		{"", 2, ""},
		{"\n", 1, "\n"},
	} {
		if got := c.text[lastLines([]byte(c.text), c.n):]; got != c.want {
			t.Errorf("last %d of %q: %q, want %q", c.n, c.text, got, c.want)
		}
	}
}

// A member's last allocation is printed, and every other one that runs at the same time, but not
// those of earlier tries.
func TestLoggedAllocations(t *testing.T) {
	t.Parallel()
	stub := func(id, name, status string) *api.AllocationListStub {
		group, _, _ := strings.Cut(strings.TrimPrefix(name, "a.job."), "[")
		return &api.AllocationListStub{ID: id, Name: name, TaskGroup: group, ClientStatus: status}
	}
	all := []*api.AllocationListStub{
		stub("1", "a.job.ps[0]", "failed"), stub("2", "a.job.ps[0]", "complete"),
		stub("3", "a.job.workers[0]", "running"), stub("4", "a.job.workers[0]", "running"),
		stub("5", "a.job.workers[10]", "lost"),
	}
	for rank, want := range map[string]string{"": "2 3 4 5", "0": "2 3 4", "workers[0]": "3 4", "10": "5", "1": ""} {
		l := &logs{o: logOptions{rank: rank}}
		ids := each(l.last(all), func(a *api.AllocationListStub) string { return a.ID })
		if got := strings.Join(ids, " "); got != want {
			t.Errorf("-rank %q: %s, want %s", rank, got, want)
		}
	}
}

// The end of a task is described in Nomad's words, by its cause.
func TestHowTasksEnd(t *testing.T) {
	t.Parallel()
	events := func(kinds ...string) []*api.TaskEvent {
		return each(kinds, func(k string) *api.TaskEvent { return &api.TaskEvent{Type: k, DisplayMessage: "by " + k} })
	}
	for _, c := range []struct {
		a    api.AllocationListStub
		s    api.TaskState
		want string
	}{
		{api.AllocationListStub{DesiredStatus: "run"}, api.TaskState{Events: events("Started", "Terminated", "Killed")}, "ended: by Terminated"},
		{api.AllocationListStub{DesiredStatus: "run"}, api.TaskState{Failed: true, Events: events("Driver Failure")}, "failed: by Driver Failure"},
		{api.AllocationListStub{DesiredStatus: "stop", DesiredDescription: "alloc not needed"}, api.TaskState{Events: events("Terminated")}, "was stopped: alloc not needed"},
		{api.AllocationListStub{ClientStatus: "lost", ClientDescription: "Tasks are running", DesiredDescription: "alloc is lost since its node is down"}, api.TaskState{}, "was lost: alloc is lost since its node is down"},
		{api.AllocationListStub{DesiredStatus: "run"}, api.TaskState{}, "ended: Nomad gives no reason"},
	} {
		if got := howEnded(&c.a, &c.s); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
