// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package replay

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/bench/rank"
	"github.com/nomad-pal/nomad-pal/bench/slurm"
)

// A gang that Slurm no longer lists is lost, unless it has finished or was not submitted yet.
func TestLost(t *testing.T) {
	t.Parallel()
	submitted := map[string]bool{"queued": true, "finished": true}
	queue := []slurm.Queued{{ID: 1, Name: "queued", State: "PENDING"}}
	states := []rank.State{{Job: "queued"}, {Job: "finished", Finished: true}, {Job: "not submitted"}}
	if got := lost(submitted, queue, states); got != "" {
		t.Errorf("%q is lost", got)
	}
	states[1].Finished = false
	if got := lost(submitted, queue, states); got != "finished" {
		t.Errorf("%q is lost", got)
	}
}

// Slurm's nodes have the same names as the Nomad clients, and the same GPUs in the same order.
func TestSlurmNodes(t *testing.T) {
	t.Parallel()
	g, _, err := DrawGPUs(3, 2, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	by, clients := g.byNode(), g.clients()
	for i, name := range g.nodes() {
		want := []string{g.All[2*i].ID, g.All[2*i+1].ID}
		if clients[i].Name != name || !cmp.Equal(by[name], want) {
			t.Errorf("node %d is %s with %v, client %s; want %v", i, name, by[name], clients[i].Name, want)
		}
	}
}
