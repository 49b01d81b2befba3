// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"testing"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// TestPlacerStartedAgain: a person stops a job and reverts it to a version with pins while no agent
// runs. The next agent has no record of the job, and lets it run.
func TestPlacerStartedAgain(t *testing.T) {
	t.Parallel()
	b := newBed(t, [][]float64{{1, 1}, {1, 1}}, cluster.Options{})
	j := gang("again", 1, 1)
	j.script = "trap 'sleep 2; exit' INT TERM; sleep 3600 & wait" // the task takes two seconds to end
	register(t, b.Cluster, rewrite.Gate(b.parse(j.hcl())))
	b.startAgent("nomad-pal")
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
