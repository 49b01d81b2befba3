// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package request

import (
	"math"
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// replacedWithin is how long the placer keeps GPUs for a member that Nomad has stopped. If Nomad
// has not replaced the member within this time, the reason is something other than missing GPUs.
const replacedWithin = 5 * time.Minute

// Drained returns the members of a running service that Nomad moves, or is about to move, off
// drained nodes. Nomad stops the members on a drained node a few at a time (migrate block), and the
// others keep running until their turn. Drained includes a stopped member until Nomad has placed
// the member again. For each member, Drained returns two gangs of one member: the first can use
// only the nodes of the job's pins, the second any node. Nomad does not move members of batch jobs,
// nor members that are pinned to their GPUs.
func (v *View) Drained(job *api.Job, now time.Time) (members [][]pal.Gang) {
	pins, _ := rewrite.Pinned(job)
	if *job.Type != api.JobTypeService || pins.Mode == rewrite.ModeGPU || rewrite.Gated(job) || cluster.Ended(job) {
		return nil
	}
	moves := map[string]int{}
	for _, tg := range job.TaskGroups {
		if n := v.moves(job, tg, now); n > 0 {
			moves[*tg.Name] = n
		}
	}
	if len(moves) == 0 {
		return nil
	}
	r, err := v.Request(job)
	if err != nil {
		return nil
	}
	for _, set := range r.Gang.MemberSets {
		set.Members = 1
		anywhere, pinned := r.Gang, r.Gang
		anywhere.MemberSets = []pal.MemberSet{set}
		if gp, ok := pins.Of(set.Name); ok {
			set.Eligible = v.on(set.Eligible, gp.Nodes)
		}
		pinned.MemberSets = []pal.MemberSet{set}
		for range moves[set.Name] {
			members = append(members, []pal.Gang{pinned, anywhere})
		}
	}
	return members
}

// moves returns how many members of a service's group are on drained nodes, or were stopped and not
// yet placed again.
func (v *View) moves(job *api.Job, tg *api.TaskGroup, now time.Time) (n int) {
	last := map[string]*cluster.Alloc{} // by name: the newest allocation that should run; if none should, the newest
	for _, a := range v.State.AllocsOf(cluster.KeyOf(job)) {
		had := last[a.Name]
		switch {
		case a.Group != *tg.Name:
		case had == nil || a.Member() && !had.Member(), a.Member() == had.Member() && a.CreateIndex > had.CreateIndex:
			last[a.Name] = a
		}
	}
	stay := 0
	for _, a := range last {
		node := v.State.Nodes[a.Node]
		switch {
		case a.Member() && (node == nil || !node.Drain):
			stay++
		case a.Member(), stoppedFor(a, now) < replacedWithin:
			n++
		}
	}
	return min(n, max(0, rewrite.Members(tg)-stay))
}

// stoppedFor returns how long ago Nomad stopped an allocation; the maximum duration if it was not
// stopped, has failed or has been replaced.
func stoppedFor(a *cluster.Alloc, now time.Time) time.Duration {
	if a.Desired != api.AllocDesiredStatusStop || a.Next != "" || a.Failed() {
		return math.MaxInt64
	}
	return now.Sub(time.Unix(0, a.ModifyTime))
}

// on returns the eligible device groups whose nodes are among the given nodes.
func (v *View) on(eligible []bool, nodes []string) []bool {
	out := slices.Clone(eligible)
	for i := range out {
		out[i] = out[i] && slices.Contains(nodes, v.GroupNode(i).ID)
	}
	return out
}
