// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/nomad-pal/nomad-pal/placer"
	"github.com/nomad-pal/nomad-pal/placer/gang"
)

func screenOf(s clusterNow) *screen {
	m := &screen{every: time.Second, now: func() time.Time { return time.Unix(1000, 0) }, look: func() (clusterNow, error) { return s, nil }}
	m.Update(tea.WindowSizeMsg{Width: 80, Height: 12})
	m.Update(m.Init()())
	return m
}

func press(m *screen, keys ...string) {
	for _, k := range keys {
		msg := tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune(k)}
		switch k {
		case "tab":
			msg = tea.KeyMsg{Type: tea.KeyTab}
		case "down":
			msg = tea.KeyMsg{Type: tea.KeyDown}
		case "up":
			msg = tea.KeyMsg{Type: tea.KeyUp}
		case "pgdown":
			msg = tea.KeyMsg{Type: tea.KeyPgDown}
		}
		m.Update(msg)
	}
}

// The screen fits the terminal, whatever there is to show, and keys move in it.
func TestTop(t *testing.T) {
	t.Parallel()
	s := clusterNow{activity: placer.Activity{Working: true, Since: time.Unix(0, 0), Agent: "host/1"}}
	for i := range 100 {
		s.jobs = append(s.jobs, placer.JobStatus{Namespace: "default", Job: fmt.Sprintf("job-%03d-%s", i, strings.Repeat("x", i)), Phase: gang.Waiting, Position: i + 1, GPUs: 4, Class: "A", Reason: "waits: it needs 4 GPUs, 1 are free"})
		g := placer.GPU{ID: fmt.Sprint("GPU-", i), Node: fmt.Sprintf("node-%02d", i/8), Healthy: i%8 != 1, Available: i%8 == 0}
		if i%8 == 2 {
			g.Quarantine = &placer.Quarantine{}
		} else if i%8 > 2 {
			g.Job = "default/held"
		}
		s.gpus = append(s.gpus, g)
	}
	s.jobs[0].Job = "\x1b[2Jcleared\uf002"
	m := screenOf(s)
	check := func(what string, want ...string) {
		t.Helper()
		view := m.View()
		lines := strings.Split(view, "\n")
		if len(lines) != m.height {
			t.Errorf("%s: %d lines of %d", what, len(lines), m.height)
		}
		for _, l := range lines {
			if n := len([]rune(l)); n > m.width {
				t.Errorf("%s: %d columns: %s", what, n, l)
			}
		}
		for _, w := range want {
			if !strings.Contains(view, w) {
				t.Errorf("%s lacks %q:\n%s", what, w, view)
			}
		}
		if strings.ContainsAny(view, "\x1b"+styles) {
			t.Errorf("%s: %q", what, view)
		}
	}
	check("jobs", "100 GPUs: 61 held, 13 free, 26 unhealthy or in quarantine; 100 jobs wait", "placer at work", `\u001b[2Jcleared`, "it needs 4 GPUs, 1 are free", "jobs 1–7 of 100")
	press(m, "down", "down", "up", "pgdown")
	check("moved", "job-008-", "jobs 9–15 of 100")
	press(m, "up", "up", "up", "up", "up", "up", "up", "up", "up", "up", "up")
	check("at the top", "jobs 1–7 of 100")
	press(m, "tab")
	check("nodes", "node-00                  .!q#####", "nodes 1–7 of 13")
	for range 20 {
		press(m, "pgdown")
	}
	check("at the bottom", "node-12", "nodes 7–13 of 13")
	m.Update(tea.WindowSizeMsg{Width: 130, Height: 30})
	press(m, "tab")
	check("wide", "Namespace", "job-020-")
	m.Update(tea.WindowSizeMsg{Width: 20, Height: 4})
	check("small")
	m.Update(tea.WindowSizeMsg{Width: 80, Height: 12})
	m.Update(looked{err: errors.New("nobody\nanswers")})
	check("without Nomad", "nobody answers", "100 GPUs")
	m.colored = true
	if view := m.View(); !strings.Contains(view, "\x1b[31mnobody answers\x1b[0m") {
		t.Errorf("%q", view)
	}
	if _, cmd := m.Update(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("q")}); cmd == nil || cmd() != tea.Quit() {
		t.Error("q does not end it")
	}
}

// top is for terminals.
func TestTopNeedsATerminal(t *testing.T) {
	c := newCluster(t)
	for args, want := range map[string]string{"": "top needs a terminal", "-json": "do not go with top", "-every=0s": "not a positive duration"} {
		if code, _, said := c.does(append([]string{"top"}, strings.Fields(args)...)...); code != 1 || !strings.Contains(said, want) {
			t.Errorf("%s: %d %s", args, code, said)
		}
	}
}

// BenchmarkTop draws a screen of 80,000 GPUs and 10,000 jobs.
func BenchmarkTop(b *testing.B) {
	var s clusterNow
	for i := range 80_000 {
		s.gpus = append(s.gpus, placer.GPU{ID: fmt.Sprint("GPU-", i), Node: fmt.Sprintf("node-%05d", i/8), Healthy: true, Available: true})
	}
	for i := range 10_000 {
		s.jobs = append(s.jobs, placer.JobStatus{Namespace: "default", Job: fmt.Sprint("job-", i), Phase: gang.Waiting, Position: i + 1})
	}
	m := screenOf(s)
	press(m, "tab")
	for b.Loop() {
		press(m, "pgdown")
		_ = m.View()
	}
}
