// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"fmt"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// TestPlacerBroughtBack: a placer registers a job and so overwrites what the author changed some
// milliseconds before. It is killed at once. The next placer restores the author's version. The
// test plays the first placer, because the race needs luck.
func TestPlacerBroughtBack(t *testing.T) {
	t.Parallel()
	b := newBed(t, [][]float64{{1, 1}, {1, 1}}, cluster.Options{})
	node, err := b.NodeID(t.Context(), "node-0")
	if err != nil {
		t.Fatal(err)
	}
	place := func(gated *api.Job, gpus ...string) {
		t.Helper()
		pinned, err := rewrite.Pin(gated, rewrite.Pins{Mode: rewrite.ModeGPU, Groups: []rewrite.GroupPins{{Group: "workers", Nodes: []string{node}, GPUs: gpus}}}, rewrite.Racks{})
		if err != nil {
			t.Fatal(err)
		}
		register(t, b.Cluster, pinned)
	}
	parse := func(id, script string) *api.Job {
		j := gang(id, 1, 1)
		j.script = script
		return rewrite.Gate(b.parse(j.hcl()))
	}
	const sleeps = "exec sleep 3600"

	stopped := parse("stopped", sleeps)
	register(t, b.Cluster, stopped)
	b.deregister("stopped", false)
	place(stopped, gpu(0, 0))

	edited := parse("edited", sleeps)
	register(t, b.Cluster, edited)
	register(t, b.Cluster, parse("edited", "exec sleep 4000"))
	place(edited, gpu(0, 1))

	b.startAgent("nomad-pal")
	b.until("the job that its author stopped is stopped again", func() string {
		job, _, err := b.API().Jobs().Info("stopped", nil)
		if err != nil {
			return err.Error()
		}
		if job.Stop == nil || !*job.Stop {
			return "it is " + *job.Status
		}
		return ""
	})
	b.untilVersion("edited", 1, "4000")
	before := b.info("edited")
	b.holds("the edit is taken over once", func() string {
		now, _, err := b.API().Jobs().Info("edited", nil)
		if err != nil || *now.Version != *before.Version {
			return fmt.Sprintf("it was version %d and is %d (%v)", *before.Version, *now.Version, err)
		}
		return ""
	})
	b.purge("stopped", "edited")

	// A job that a person starts again runs.
	again := parse("again", "trap 'sleep 2; exit' INT TERM; sleep 3600 & wait") // the task takes two seconds to end
	register(t, b.Cluster, again)
	b.untilGPUs("again", 1)
	b.stopAgent()
	b.forgetRecord("again")
	b.deregister("again", false)
	info := b.info("again")
	if _, _, err := b.API().Jobs().Revert("again", *info.Version-1, nil, nil, "", ""); err != nil {
		t.Fatal(err)
	}
	b.startAgent("nomad-pal")
	// The new member is placed once the old one has ended. If that takes longer than
	// gang_ready_timeout, it is placed again.
	b.untilRunning("again", 1)
	runs := func() string {
		if e := b.explain("again"); e.State != "running" {
			return e.State + ": " + e.Reason
		}
		return ""
	}
	b.until("it runs", runs)
	b.holds("it runs", runs)
	b.purge("again")
}

// forgetRecord deletes the record of a job's placement.
func (b *bed) forgetRecord(id string) {
	b.t.Helper()
	if _, err := b.API().Variables().Delete("nomad-pal/decisions/default/"+id, nil); err != nil {
		b.t.Fatal(err)
	}
}
