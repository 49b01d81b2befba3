// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gdamore/tcell/v2"

	"github.com/nomad-pal/nomad-pal/internal/patience"
	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/heartbeat"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/query"
)

// topScreen is a terminal in which top runs.
type topScreen struct {
	tcell.SimulationScreen
	t             *testing.T
	width, height int
	ended         chan int
	said          bytes.Buffer

	mu    sync.Mutex
	drawn string
}

func newTopScreen(t *testing.T, width, height int) *topScreen {
	return &topScreen{t: t, SimulationScreen: tcell.NewSimulationScreen("UTF-8"), width: width, height: height, ended: make(chan int, 1)}
}

func (s *topScreen) Init() error {
	err := s.SimulationScreen.Init()
	s.SetSize(s.width, s.height)
	return err
}

// Show copies the screen's text: only here may the cells be read.
func (s *topScreen) Show() {
	s.SimulationScreen.Show()
	cells, width, _ := s.GetContents()
	var b strings.Builder
	for i, c := range cells {
		if len(c.Runes) > 0 {
			b.WriteRune(c.Runes[0])
		}
		if (i+1)%width == 0 {
			b.WriteByte('\n')
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drawn = b.String()
}

// text is the text on the screen.
func (s *topScreen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.drawn
}

func (c *testCluster) top(width, height int, args ...string) *topScreen {
	c.t.Helper()
	s := newTopScreen(c.t, width, height)
	ctx, cancel := context.WithCancel(c.t.Context())
	command := &topCommand{base: base{ctx: ctx, io: streams{out: &s.said, err: &s.said}}, screen: s}
	go func() { s.ended <- command.run(append([]string{"-interval", "20ms"}, args...)) }()
	c.t.Cleanup(cancel)
	return s
}

// shows waits until all of the texts are on the screen.
func (s *topScreen) shows(texts ...string) {
	s.t.Helper()
	if err := patience.Until(s.t.Context(), patience.Limits{}, "it is on the screen", func(context.Context) (string, error) {
		text := s.text()
		for _, t := range texts {
			if !strings.Contains(text, t) {
				return fmt.Sprintf("no %q on the screen:\n%s", t, text), nil
			}
		}
		return "", nil
	}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *topScreen) types(keys string) {
	for _, r := range keys {
		s.InjectKey(tcell.KeyRune, r, tcell.ModNone)
	}
}

func (s *topScreen) press(key tcell.Key) { s.InjectKey(key, 0, tcell.ModNone) }

// ends waits until top has ended.
func (s *topScreen) ends() int {
	s.t.Helper()
	select {
	case code := <-s.ended:
		return code
	case <-patience.Over(s.t):
		s.t.Fatalf("top did not end:\n%s", s.text())
	}
	return -1
}

// top shows nodes with their GPUs, gangs by position, and the reason for the selected
// gang's state. Keys choose the view.
func TestTop(t *testing.T) {
	c := newCluster(t)
	url := c.agent("", "http {\n  bind_port = 0\n}\n")
	c.nomad.SetHealth(false, "GPU-1-3")
	for _, job := range []struct {
		name string
		gpus int
	}{{"runs-a", 4}, {"runs-b", 2}} {
		if code, out, said := c.does("run", c.job("default", job.name, job.gpus)); code != 0 {
			t.Fatal(out, said)
		}
	}
	for name, gpus := range map[string]int{"waits-for-four": 4, "never": 64} {
		if code, out, said := c.does("run", "-detach", c.job("default", name, gpus)); code != 0 {
			t.Fatal(out, said)
		}
	}
	c.until("the agent has seen the jobs", func() bool {
		_, out, _ := c.does("queue")
		return strings.Contains(out, "waits-for-four") && strings.Contains(out, "never")
	})
	s := c.top(80, 24, "-pal-address", url)
	s.shows(url, "8 GPUs: 6 allocated, 1 free, 1 unhealthy", "2 jobs have GPUs. 1 job waits for 4 GPUs; 1 can never start.", "#↓", "Expected start", "Reason", "r0", "node-0", "node-1", ".! ", "runs-a", "waits-for-four", "waiting", "never", "unschedulable", "waits-for-four has waited for", topKeys)
	s.press(tcell.KeyDown)
	s.shows("runs-a runs on 4 GPUs of node node-")
	s.press(tcell.KeyEnter)
	s.shows("Expected end = not known", "Candidates")
	s.press(tcell.KeyEscape)
	s.shows("runs-b", topKeys)

	// The hardware view: racks, then a rack's nodes, then a node's GPUs, and
	// back.
	s.types("vv")
	s.shows("Rack", "A1", "not measured", "1/8")
	s.press(tcell.KeyTab)
	s.press(tcell.KeyEnter)
	s.shows("GPUs by class for A", "node-0")
	s.press(tcell.KeyEnter)
	s.shows("Score A", "State", "GPU-0-0", "allocated", "default/runs-", "not measured")
	s.press(tcell.KeyEscape)
	s.types("c")
	s.shows("GPUs by class for B")

	// The meaning of each mark is shown next to the marks.
	s.types("?")
	s.shows("* means allocated to a job", "↓ marks the column")
	time.Sleep(100 * time.Millisecond) // time for some updates
	s.shows("* means allocated to a job")
	s.press(tcell.KeyEscape)

	// Filter and sort order.
	s.types("/runs-b")
	s.press(tcell.KeyEnter)
	s.shows("Filter: runs-b.", "runs-b runs on 2 GPUs")
	if text := s.text(); strings.Contains(text, "waits-for-four  ") {
		t.Errorf("the filter shows others, too:\n%s", text)
	}
	s.press(tcell.KeyEscape)
	s.shows("waits-for-four")
	s.types("s")
	s.shows("GPUs↓")
	s.SetSize(60, 14)
	s.shows("/ filter  s \n", "8 GPUs: 6 allocated", "node-0", "runs-b running") // 60 columns; the selected job stays visible
	s.types("q")
	if code := s.ends(); code != 0 {
		t.Errorf("q: %d %s", code, s.said.String())
	}
}

// If the agent stops answering, top says so and keeps showing the last state. If it never
// answered, top ends.
func TestTopWithoutAnswers(t *testing.T) {
	c := newCluster(t)
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := map[string]string{"/v1/agent": `{"working": true}`, "/v1/queue": "[]", "/v1/gpus": `[{"id": "GPU-0-0", "node": "node-0"}]`}[r.URL.Path]
		_, _ = io.WriteString(w, text)
	}))
	s := c.top(80, 24, "-pal-address", agent.URL)
	s.shows(agent.URL, "1 GPU: 0 allocated", "node-0")
	agent.CloseClientConnections()
	agent.Close()
	s.shows("NO ANSWER, as of ", "node-0")
	s.InjectKey(tcell.KeyCtrlC, 0, tcell.ModCtrl)
	if code := s.ends(); code != 0 {
		t.Errorf("%d", code)
	}
	never := c.top(80, 24)
	if code := never.ends(); code != exitNoPlacer || !strings.HasPrefix(never.said.String(), "Error: no agent answers: ") {
		t.Errorf("%d %s", code, never.said.String())
	}
}

// A view of 80,000 GPUs and 10,000 gangs creates only the visible lines, and names
// written by others cannot change the screen.
func TestTopView(t *testing.T) {
	s := newTopScreen(t, 80, 24)
	v := newTopView(true, s)
	state := topState{at: time.Now(), activity: heartbeat.Activity{Working: true}}
	for i := range 80_000 {
		state.gpus = append(state.gpus, query.GPU{
			ID: fmt.Sprintf("GPU-%05d", i), Node: fmt.Sprintf("node-%d", i/8), Rack: fmt.Sprintf("r%d", i/320), Healthy: true,
			Available: i%2 == 0, Classes: map[pal.AppClass]uint8{pal.ClassA: uint8(i % 6)},
		})
	}
	for i := range 10_000 {
		state.jobs = append(state.jobs, model.JobStatus{Namespace: "default", Job: fmt.Sprintf("job-%d", i), State: gang.Waiting, Position: 10_000 - i, GPUs: 8, Class: "A"})
	}
	state.jobs = append(state.jobs, model.JobStatus{Namespace: "default", Job: "[red]tagged\x1b[2J\nnew", State: gang.Running, Reason: reason.Unread("[::b]bold")})
	state.gpus[1].Job = "default/[red]tagged"
	slices.Reverse(state.gpus)
	state.arrange()
	v.update(state)
	made, line := 0, v.jobs.lines.line
	v.jobs.lines.line = func(i int) []topCell { made++; return line(i) }
	v.app.ForceDraw()
	if made == 0 || made > 1000 {
		t.Errorf("%d lines of gangs were created for one screen", made)
	}
	s.shows("80000 GPUs", "10000 jobs wait for 80000 GPUs", "job-9999", "node-0")
	if nodes := v.hardware.lines.keys[:3]; nodes[0] != "node-0" || nodes[1] != "node-1" || nodes[2] != "node-2" {
		t.Errorf("nodes of rack r0: %v", nodes)
	}
	v.match = "tagged"
	v.arrange()
	v.app.ForceDraw()
	s.shows(`[red]tagged\u001b[2J\nne`, "[::b]b")
}
