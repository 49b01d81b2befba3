// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"errors"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// A gang that runs needs no look, unless Nomad has not answered what is to be known of it:
// that is asked again, though nothing happens.
func TestQuiet(t *testing.T) {
	w := newFakeWorld()
	job, err := rewrite.Pin(plainJob("j", 200), somePins("g1", "g2"), rewrite.Racks{})
	if err != nil {
		t.Fatal(err)
	}
	w.state.PutJob(job)
	for _, id := range []string{"g1", "g2"} {
		w.state.PutAlloc(&nomad.Alloc{ID: id, Job: nomad.KeyOf(job), Group: "g", Node: "n", Client: api.AllocClientStatusRunning, Desired: api.AllocDesiredStatusRun, GPUs: []string{id}, CreateIndex: 201, ModifyIndex: 202})
	}
	g := &Gang{}
	for _, e := range []Event{
		Observation{Observed: Observe(w.state, job), Request: nomad.Request{Job: job}}, Turn{},
		RecordRead{&Record{JobModifyIndex: 200, Ready: w.now}}, Sync{},
	} {
		g.Step(e, w)
	}
	if !g.Quiet() || g.Unsettled() {
		t.Errorf("a gang that is %s: quiet %v, unsettled %v", g.State(), g.Quiet(), g.Unsettled())
	}
	g.pending = ReadAllocs{}
	g.Step(Failure{Of: g.pending, Err: errors.New("500")}, w)
	if g.Quiet() || !g.Unsettled() {
		t.Errorf("one of which something is not known: quiet %v, unsettled %v", g.Quiet(), g.Unsettled())
	}
}
