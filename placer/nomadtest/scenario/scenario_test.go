// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package scenario

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
)

var update = flag.Bool("rewrite", false, "write what the model shows")

// model is the in-memory Nomad as a cluster.
type model struct{ *bed.World }

func (m model) API() *api.Client    { return m.Author }
func (m model) NodeID(n int) string { return bed.NodeID(n) }
func (m model) Until(what string, ok func() bool) {
	m.T.Helper()
	m.Expect(what, 2*time.Minute, ok)
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
func (m model) Purge(n int) {
	m.Nomad.ForgetNode(bed.NodeID(n), 500*time.Millisecond, 0)
	m.Until("the node is back", func() bool {
		node, _, err := m.Author.Nodes().Info(bed.NodeID(n), nil)
		return err == nil && node.Status == api.NodeStatusReady
	})
}

// The model shows what a real Nomad shows: e2e compares that with the same files.
func TestScenarios(t *testing.T) {
	for _, s := range All {
		t.Run(s.Name, func(t *testing.T) {
			path := filepath.Join("testdata", File(s))
			var got string
			bed.Run(t, bed.Options{Seed: 1, Nomad: nomadtest.Options{OneWorker: true}}, func(w *bed.World) {
				w.AddNodes(3, 2)
				got = Play(model{w}, s)
			})
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); d != "" {
				t.Errorf("a real Nomad shows something else (-real +model):\n%s", d)
			}
		})
	}
}
