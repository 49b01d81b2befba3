// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// TestPlacerServiceBesidePlain: a service of the placer loses two nodes and is scaled, beside an
// equal service of plain Nomad on the same nodes. At each time it has at least as many running
// replicas, and they are on at least as many nodes, whether or not an agent runs.
func TestPlacerServiceBesidePlain(t *testing.T) {
	t.Parallel()
	four := []float64{1, 1, 1, 1}
	b := newBed(t, [][]float64{{1, 1, 1, 1.2}, {0.9, 1, 1, 1}, four, {1.1, 1.1, 1.1, 1.1}, four}, cluster.Options{HeartbeatTTL: 3 * time.Second})
	b.startAgent("nomad-pal")
	ours, plain := replicas("ours", 3), replicas("plain", 3)
	b.run(ours.hcl())
	if _, _, err := b.API().Jobs().Register(b.parse(plain.hcl()), nil); err != nil {
		t.Fatal(err)
	}
	b.asPlain("at the start", 3)
	var lost []*cluster.Agent
	for i := range 2 {
		node := b.clientOfBoth()
		if err := node.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		lost = append(lost, node)
		b.until(node.Name+" is lost", func() string {
			if slices.Contains(b.nodesOf("ours"), node.Name) || slices.Contains(b.nodesOf("plain"), node.Name) {
				return "not yet"
			}
			return ""
		})
		b.asPlain(fmt.Sprintf("after loss %d", i+1), 3)
		if i == 0 {
			b.stopAgent()
		}
	}
	for _, node := range lost {
		if err := node.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, count := range []int{5, 2} {
		for _, id := range []string{"ours", "plain"} {
			b.untilDeployed(id) // during a deployment, Nomad scales nothing
			if _, _, err := b.API().Jobs().Scale(id, "workers", &count, "", false, nil, nil); err != nil {
				t.Fatal(err)
			}
		}
		b.asPlain(fmt.Sprintf("scaled to %d", count), count)
	}
	b.startAgent("nomad-pal")
	b.untilState("ours", "running")
	b.onlyPrefers("ours")
	b.purge("ours", "plain")
}

// replicas is a service of this many replicas with a GPU each.
func replicas(id string, count int) job {
	j := gang(id, count, 1)
	j.kind = "service"
	return j
}

// asPlain waits until both services have this many running replicas, and the placer's are on at
// least as many nodes as plain Nomad's. Until then, the placer's service never has fewer running
// replicas than plain Nomad's had at worst.
func (b *bed) asPlain(when string, replicas int) {
	b.t.Helper()
	worst, least := replicas, replicas
	b.until("both services have all replicas "+when, func() string {
		mine, mineOn := b.replicasRun("ours")
		theirs, theirsOn := b.replicasRun("plain")
		least, worst = min(least, mine), min(worst, theirs)
		if theirs != replicas || mine != replicas || mineOn < theirsOn {
			return fmt.Sprintf("%d replicas run on %d nodes; plain Nomad's: %d on %d", mine, mineOn, theirs, theirsOn)
		}
		return ""
	})
	if least < worst {
		b.t.Errorf("%s: only %d replicas ran for a while; plain Nomad's: %d", when, least, worst)
	}
}

// replicasRun returns how many replicas of a service run, and on how many nodes. Replicas on a node
// that is down do not run.
func (b *bed) replicasRun(id string) (n, nodes int) {
	on := b.nodesOf(id)
	distinct := slices.Clone(on)
	slices.Sort(distinct)
	return len(on), len(slices.Compact(distinct))
}

// nodesOf returns the names of the nodes on which replicas of a service run.
func (b *bed) nodesOf(id string) (names []string) {
	b.t.Helper()
	stubs, _, err := b.API().Jobs().Allocations(id, true, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, a := range stubs {
		if a.ClientStatus == api.AllocClientStatusRunning && a.DesiredStatus == api.AllocDesiredStatusRun {
			names = append(names, a.NodeName)
		}
	}
	return names
}

// clientOfBoth returns a client on which both services run a replica.
func (b *bed) clientOfBoth() *cluster.Agent {
	b.t.Helper()
	ours, plain := b.nodesOf("ours"), b.nodesOf("plain")
	for _, c := range b.Clients() {
		if slices.Contains(ours, c.Name) && slices.Contains(plain, c.Name) {
			return c
		}
	}
	b.t.Fatalf("no node runs both services: %v and %v", ours, plain)
	return nil
}

// onlyPrefers checks that the placer wrote only preferences into a job.
func (b *bed) onlyPrefers(id string) {
	b.t.Helper()
	if pins, ok := rewrite.Pinned(b.info(id)); !ok || pins.Mode != rewrite.ModePrefer || rewrite.Gated(b.info(id)) {
		b.t.Errorf("%s has the pins %+v and gate %v", id, pins, rewrite.Gated(b.info(id)))
	}
}
