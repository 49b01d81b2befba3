// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package scenario

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
)

var update = flag.Bool("rewrite", false, "write what the model shows")

// model is the in-memory Nomad as a Cluster.
type model struct{ *bed.World }

func (m model) API() *api.Client    { return m.Author }
func (m model) NodeID(n int) string { return bed.NodeID(n) }
func (m model) Until(what string, ok func() bool) {
	if !m.World.Until(2*time.Minute, ok) {
		Fail(fmt.Errorf("after two minutes still not: %s\n%s", what, m.Describe()))
	}
}
func (m model) SetHealth(gpu string, healthy bool) { m.Nomad.SetHealth(healthy, gpu) }
func (m model) Cut(n int)                          { m.Nomad.CutNode(bed.NodeID(n)); m.RunFor(5 * time.Second) }
func (m model) Hang(n int)                         { m.Cut(n) }
func (m model) Crash(n int)                        { m.Nomad.CrashNode(bed.NodeID(n)); m.RunFor(5 * time.Second) }
func (m model) Reboot(n int)                       { m.Nomad.CrashNode(bed.NodeID(n)); m.Recover(n) }
func (m model) Recover(n int)                      { m.Nomad.RecoverNode(bed.NodeID(n)) }
func (m model) Drain(n int)                        { m.Nomad.Drain(bed.NodeID(n)); m.RunFor(5 * time.Second) }
func (m model) DrainGently(n int)                  { m.Nomad.DrainWithin(bed.NodeID(n), 0) }
func (m model) Undrain(n int)                      { m.Nomad.SetEligible(bed.NodeID(n), true); m.RunFor(5 * time.Second) }
func (m model) Finish(alloc string)                { m.Nomad.Finish(alloc) }
func (m model) Purge(n int) {
	m.Nomad.ForgetNode(bed.NodeID(n), 500*time.Millisecond, 0)
	m.Until("the node is back", func() bool {
		node, _, err := m.Author.Nodes().Info(bed.NodeID(n), nil)
		return err == nil && node.Status == api.NodeStatusReady
	})
}

// The model shows the same as a real Nomad, with which e2e compares the same files. The ids of jobs
// influence random choices, but not the output.
func TestScenarios(t *testing.T) {
	for _, s := range All {
		t.Run(s.Name, func(t *testing.T) {
			path := filepath.Join("testdata", File(s))
			var seen []string
			for _, prefix := range []string{"", "p-", "x1-", "other-"} {
				bed.Run(t, bed.Options{Seed: 1, Nomad: nomadtest.Options{OneWorker: true}}, func(w *bed.World) {
					w.AddNodes(3, 2)
					got, err := Play(model{w}, s, prefix)
					if err != nil {
						w.T.Fatalf("jobs %q: %v\nseen so far:\n%s", prefix, err, got)
					}
					seen = append(seen, got)
				})
				if t.Failed() {
					return
				}
			}
			if *update {
				if err := os.WriteFile(path, []byte(seen[0]), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for i, got := range seen {
				if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); d != "" {
					t.Errorf("a real Nomad shows something else (-real +model, ids of the kind %d):\n%s", i, d)
				}
			}
		})
	}
}

func TestOfEachKind(t *testing.T) {
	for _, name := range OfEachKind {
		if !slices.ContainsFunc(All, func(s Scenario) bool { return s.Name == name }) {
			t.Errorf("there is no scenario %q", name)
		}
	}
}

// An error ends only its own scenario, with the output so far, and leaves no job behind.
func TestPlayFails(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		w.AddNodes(3, 2)
		for name, tc := range map[string]struct {
			then func(x *Script)
			why  string
		}{
			"a wait":         {func(x *Script) { x.Until("pigs fly", func() bool { return false }) }, "still not: pigs fly"},
			"a request":      {func(x *Script) { x.now("b") }, "job not found"},
			"no such member": {func(x *Script) { x.stopNumber(7) }, "no member 7"},
			"a sick GPU":     {func(x *Script) { x.SetHealth("GPU-2-1", false) }, "it leaves GPU GPU-2-1 unhealthy"},
			"a job":          {func(x *Script) { x.prefix = ""; x.register(gang("other", 1)); x.prefix = "p-" }, "it leaves job other"},
		} {
			seen, err := Play(model{w}, Scenario{name, func(x *Script) {
				x.register(gang("a", 1))
				x.untilRunning("a", 1)
				x.say("so far")
				tc.then(x)
			}}, "p-")
			if err == nil || !strings.Contains(err.Error(), tc.why) || seen != "# so far\n" {
				w.T.Errorf("%s: %v, output: %q; want %s", name, err, seen, tc.why)
			}
			jobs, _, err := w.Author.Jobs().List(&api.QueryOptions{Prefix: "p-"})
			if err != nil || len(jobs) > 0 {
				w.T.Errorf("%s: left behind: %v %v", name, jobs, err)
			}
			w.Nomad.SetHealth(true, "GPU-2-1")
			_, _, _ = w.Author.Jobs().Deregister("other", true, nil) // left behind by one of them
		}
	})
}
