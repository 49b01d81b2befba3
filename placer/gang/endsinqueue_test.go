// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"fmt"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/request"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// A placer starts while a gang is ending that an earlier placer stopped and that must not start
// now. The queue learns that the gang is ending, and knows it until the gang has ended.
func TestEndsThatMayNotStart(t *testing.T) {
	w := newFakeWorld()
	w.holds = []int{1, 2}
	job, err := rewrite.Pin(plainJob("j", 200), somePins("g1", "g2"), rewrite.Racks{})
	if err != nil {
		t.Fatal(err)
	}
	job = rewrite.Gate(job)
	w.state.PutJob(job)
	for _, id := range []string{"g1", "g2"} {
		w.state.PutAlloc(&cluster.Alloc{ID: id, Name: id, Job: cluster.KeyOf(job), Group: "g", Node: "n", Client: api.AllocClientStatusRunning, Desired: api.AllocDesiredStatusStop, GPUs: []string{id}, CreateIndex: 150, ModifyIndex: 202})
	}
	g := &Lifecycle{}
	r := request.Request{Job: job, Gang: pal.Gang{MemberSets: []pal.MemberSet{{Members: 2, GPUs: 1}}}}
	g.Step(Observation{Observed: Observe(w.state, job), Request: r}, w)
	for i := range 4 {
		said := ""
		for _, e := range g.Step(Sync{After: true}, w) {
			said += fmt.Sprintf(" %T", e)
		}
		if !g.Placed {
			t.Errorf("sync %d: the queue does not know that the gang is ending:%s", i, said)
		}
	}
}
