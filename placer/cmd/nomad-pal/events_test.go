// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
)

// locked is a buffer that can be read while it is written.
type locked struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// events shows what the placer does with a job from its submission to its end, for jobs
// that the token may see. -follow also shows new events.
func TestEvents(t *testing.T) {
	c := newCluster(t)
	c.nomad.SetTokens(map[string]nomadtest.Token{
		"root": {Management: true},
		"user": {Nodes: true, Namespaces: map[string][]string{"research": {"list-jobs", "read-job", "submit-job"}}},
	})
	url := c.agent("root", "http {\n  bind_port = 0\n}\n")
	t.Setenv("NOMAD_PAL_ADDR", url)
	t.Setenv("NOMAD_TOKEN", "root")
	followed := &locked{}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"events", "-follow", "-json"}, streams{strings.NewReader(""), followed, followed, false})
	}()
	c.must("run", c.job("secret", "held", 4))
	c.must("run", c.job("research", "train", 2))
	kinds := func(text string) (kinds []palapi.EventKind) {
		for line := range strings.Lines(text) {
			var e palapi.Event
			if json.Unmarshal([]byte(line), &e) == nil && e.Job == "train" {
				kinds = append(kinds, e.Kind)
			}
		}
		return kinds
	}
	want := []palapi.EventKind{palapi.EventQueued, palapi.EventPlaced, palapi.EventStarted}
	c.until("the job has started", func() bool { return slices.Equal(kinds(followed.String()), want) })
	if _, out, _ := c.does("events", "-job=train", "-json"); !slices.Equal(kinds(out), want) || strings.Contains(out, "held") {
		t.Errorf("of one job:\n%s", out)
	}
	if _, out, _ := c.does("events", "-job=train"); !strings.Contains(out, "placed       research/train gets 2 GPUs on node node-") || !strings.Contains(out, "started      research/train Nomad has placed the only member") {
		t.Errorf("for people:\n%s", out)
	}
	if _, out, _ := c.does("events", "-limit=1"); strings.Count(out, "\n") != 1 || !strings.Contains(out, "started") {
		t.Errorf("the last one:\n%s", out)
	}
	c.nomad.SetHealth(false, "GPU-1-3")
	c.until("a failure is shown", func() bool {
		_, out, _ := c.does("events", "-failures")
		return strings.Contains(out, "unhealthy    GPU-1-3") && strings.Count(out, "\n") == 1
	})
	if _, out, _ := c.does("events", "-namespace=secret"); !strings.Contains(out, "secret/held") || strings.Contains(out, "train") {
		t.Errorf("of one namespace:\n%s", out)
	}
	if code, out, err := c.does("events", "-token=user"); code != 0 || !strings.Contains(out, "research/train") || strings.Contains(out, "held") {
		t.Errorf("to a user: %d\n%s%s", code, out, err)
	}
	c.says(1, "Nomad does not know the token (-token)", "events", "-token=nobody")
	cancel()
	if code := <-ended; code != 0 {
		t.Errorf("follow ends with %d", code)
	}
}

// A standby agent asks the active one, because only that one knows what it did.
func TestEventsOfStandby(t *testing.T) {
	c := newCluster(t)
	const config = "http {\n  bind_port = 0\n}\nhigh_availability {\n  enabled = true\n}\n"
	first := c.agent("", config)
	second := c.agent("", config)
	c.must("run", c.job("default", "train", 2))
	for _, asked := range []string{first, second} {
		if code, out, err := c.does("events", "-pal-address="+asked); code != 0 || !strings.Contains(out, "train") || err != "" {
			t.Errorf("%s: %d\n%s%s", asked, code, out, err)
		}
	}
}
