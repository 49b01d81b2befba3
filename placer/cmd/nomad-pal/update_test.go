// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// carried returns "gate", "pins" or "nothing": what a job carries.
func carried(job *api.Job) string {
	switch _, pinned := rewrite.Pinned(job); {
	case rewrite.Gated(job):
		return "gate"
	case pinned:
		return "pins"
	}
	return "nothing"
}

// run gives a gate only to a job that must wait. Nomad updates a running service of replicas at once,
// whether or not an agent is active, so Nomad goes on replacing its members. A job that Nomad runs
// without the placer stays Nomad's.
func TestRunUpdatesWhatNomadOwns(t *testing.T) {
	service := strings.NewReplacer(`"batch"`, `"service"`, `group "g" {`, "group \"g\" {\n    count = 2").Replace(jobText("default", "api", 1))
	gang := strings.Replace(service, `group "g" {`, "meta {\n    pal_on_failure = \"gang\"\n  }\n  group \"g\" {", 1)
	for name, of := range map[string]struct {
		text, id string
		released bool
		carries  string
		says     string
	}{
		"a service":             {service, "api", false, "pins", `Job "api" registered: see nomad-pal explain api`},
		"a released service":    {service, "api", true, "pins", `Job "api" registered: see nomad-pal explain api`},
		"a service that is one": {gang, "api", false, "gate", `Job "api" registered, waiting for nomad-pal`},
		"a batch job":           {jobText("default", "train", 1), "train", false, "gate", `Job "train" registered, waiting for nomad-pal`},
		"a released batch job":  {jobText("default", "train", 1), "train", true, "nothing", `Job "train" registered: see nomad-pal explain train`},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.agent("", atAnyPort)
			c.runs(c.written("a.hcl", of.text), of.id)
			if of.released {
				c.must("release", of.id)
			}
			var mu sync.Mutex
			var wrote []string
			c.nomad.Observe(nomadtest.Observer{Wrote: func(w nomadtest.Write) {
				mu.Lock()
				defer mu.Unlock()
				wrote = append(wrote, carried(w.After))
			}})
			changed := strings.Replace(of.text, "sleep 3600", "sleep 3601", 1)
			if code, out, said := c.does("run", "-detach", c.written("b.hcl", changed)); code != 0 || !strings.Contains(out, of.says) || said != "" {
				t.Errorf("%d %s%s", code, out, said)
			}
			mu.Lock()
			defer mu.Unlock()
			if len(wrote) == 0 || wrote[0] != of.carries {
				t.Errorf("run registered the job with %q, want %s", wrote, of.carries)
			}
		})
	}
}

// Without an agent that answers, run -detach says that the job waits, and that Nomad does not replace
// members of a gang that runs.
func TestDetachedWithoutAgent(t *testing.T) {
	c := newCluster(t)
	file := c.written("a.hcl", jobText("default", "train", 1))
	now := time.Now()
	c.beat(store.Heartbeat{Agent: "killed/1", Address: "http://127.0.0.1:1", Since: now, Worked: now}) // a moment ago
	const waits, runs = "; the job waits until an agent is active.", "Warning: members of the job run, and Nomad replaces none of them until an agent is active."
	if code, _, said := c.does("run", "-detach", file); code != 0 || !strings.Contains(said, "Warning: no agent answers") || !strings.Contains(said, waits) || strings.Contains(said, runs) {
		t.Errorf("%d %s", code, said)
	}
	job := c.nomad.Job(nomadtest.Key{Namespace: "default", ID: "train"})
	pinned, err := rewrite.Pin(job, rewrite.Pins{Mode: rewrite.ModeGPU, Groups: []rewrite.GroupPins{{Group: "g", Nodes: []string{nomadtest.GPUNode(0, 4).ID}, GPUs: []string{"GPU-0-0"}}}}, rewrite.Racks{})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.client("").API().Jobs().Register(pinned, nil); err != nil {
		t.Fatal(err)
	}
	c.until("it runs", func() bool {
		as := c.nomad.Members(nomadtest.Key{Namespace: "default", ID: "train"})
		return len(as) == 1 && as[0].Client == api.AllocClientStatusRunning
	})
	if code, _, said := c.does("run", "-detach", file); code != 0 || !strings.Contains(said, waits) || !strings.Contains(said, runs) {
		t.Errorf("while it runs: %d %s", code, said)
	}
}
