// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package api

import (
	"strings"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/pal/reason"
)

// The headline of a gang that has lost members does not say that it runs where it was placed. For a
// gang that waits again, it counts the time since the gang ran. It names nodes that are about to
// leave.
func TestHeadlines(t *testing.T) {
	now := time.Date(2026, 11, 23, 7, 0, 0, 0, time.Local)
	before := func(d time.Duration) time.Time { return now.Add(-d) }
	d := &pal.Decision{Demand: 4, Chosen: &pal.Choice{Nodes: 2, Cost: 1}}
	for _, c := range []struct {
		e    Explanation
		want string
	}{
		{Explanation{State: Starting, Decision: d, Decided: before(time.Hour), Ready: before(time.Hour), Reason: reason.Reason{Kind: reason.MembersRun, Want: 2, Doing: &reason.Doing{Run: 1}}},
			"a has lost members: 1 of 2 members run. The job got 4 GPUs at " + Clock(time.Local, before(time.Hour)) + "."},
		{Explanation{State: Starting, Decision: d, Decided: before(time.Hour), Ready: before(time.Hour), Reason: reason.Reason{Kind: reason.MembersRun, Want: 3, Doing: &reason.Doing{Run: 2}},
			Allocations: []Allocation{{GPUs: []string{"g1", "g2"}}, {GPUs: []string{"g3", "g4"}}}},
			"a needs more members: 2 of 3 members run. The job got 4 GPUs at " + Clock(time.Local, before(time.Hour)) + "."},
		{Explanation{State: Waiting, Submitted: before(time.Hour), Ran: before(9 * time.Second), Reason: reason.Reason{Kind: reason.GPUs, Needs: 4}},
			"a ran before, and has been waiting again for 9s, since " + Clock(time.Local, before(9*time.Second)) + ": needs 4 GPUs; none is free."},
		{Explanation{State: Waiting, Submitted: before(time.Hour), Ran: before(9 * time.Second), StoppedWhy: reason.Reason{Kind: reason.MakesRoom}, Reason: reason.Reason{Kind: reason.GPUs, Needs: 4}},
			"a ran before, and has been waiting again for 9s, since " + Clock(time.Local, before(9*time.Second)) + " (the job makes room for another job): needs 4 GPUs; none is free."},
		{Explanation{State: Waiting, Submitted: before(time.Hour), Ran: before(9 * time.Second), StoppedWhy: reason.Reason{Kind: reason.MakesRoom}, StoppedFor: "default/b", Reason: reason.Reason{Kind: reason.GPUs, Needs: 4}},
			"a ran before, and has been waiting again for 9s, since " + Clock(time.Local, before(9*time.Second)) + " (the job makes room for default/b): needs 4 GPUs; none is free."},
		{Explanation{State: Waiting, Submitted: before(time.Hour), Wait: &queue.Wait{Reason: reason.Quota}, Reason: reason.Reason{Kind: reason.Quota, Needs: 1, User: "ada", Tenant: "lab", Held: 2, Limit: 2}},
			"a has waited for 60m, since " + Clock(time.Local, before(time.Hour)) + ": needs 1 GPU; user ada holds 2 in tenant lab and may hold at most 2 (max_gpus_per_user). The start cannot be predicted: the end of a job that this job waits for is unknown."},
		{Explanation{State: Waiting, Submitted: before(time.Hour), Ran: before(9 * time.Second), StoppedWhy: reason.Reason{Kind: reason.MembersStopped}, Reason: reason.Reason{Kind: reason.GPUs, Needs: 4, Also: []reason.Reason{{Kind: reason.MembersStopped}}}},
			"a ran before, and has been waiting again for 9s, since " + Clock(time.Local, before(9*time.Second)) + ": needs 4 GPUs; none is free; the job's members were stopped (by a node drain or a user)."},
		{Explanation{State: Completing, StoppedWhy: reason.Reason{Kind: reason.MakesRoom}, StoppedFor: "default/b", Reason: reason.Reason{Kind: reason.StillEnding, Have: 1}},
			"a ran, and is being stopped (the job makes room for default/b): 1 member is still stopping and holds its GPUs."},
		{Explanation{State: Running, Decision: &pal.Decision{Policy: string(pal.PAL), Demand: 1, Candidates: pal.Candidates{Total: 4, Free: 1}, Chosen: &pal.Choice{Nodes: 2, Cost: 1}}},
			"a runs on 1 GPU of 2 nodes. This was the only free GPU that the job could use. Predicted slowdown: " + times(1) + "."},
		{Explanation{State: Running, Decision: &pal.Decision{Policy: string(pal.PAL), Demand: 2, Candidates: pal.Candidates{Total: 4, Free: 2}, Chosen: &pal.Choice{Nodes: 2, Cost: 1}}},
			"a runs on 2 GPUs of 2 nodes. These were the only free GPUs that the job could use. Predicted slowdown: " + times(1) + "."},
		{Explanation{State: Running, Decision: &pal.Decision{Policy: string(pal.PAL), Demand: 3, Candidates: pal.Candidates{Total: 4, Free: 3, Outliers: 1}, Chosen: &pal.Choice{Nodes: 2, Cost: 1}, Packed: &pal.Choice{Nodes: 1, Cost: 3.53}}},
			"a runs on 3 GPUs of 2 nodes. These were the only free GPUs that the job could use, except outliers. Predicted slowdown: " + times(1) + ". Packed, with outliers, it would be 3.53 times."},
		{Explanation{State: Running, Decision: &pal.Decision{Policy: string(pal.PAL), Demand: 1, Candidates: pal.Candidates{Total: 4, Free: 1, Outliers: 1}, Chosen: &pal.Choice{Nodes: 2, Cost: 1}}},
			"a runs on 1 GPU of 2 nodes. This was the only free GPU that the job could use, except outliers. Predicted slowdown: " + times(1) + "."},
		{Explanation{State: Unschedulable, Reason: reason.Reason{Kind: reason.TooFew, Needs: 16, Match: 12}},
			"a can never start here as written: needs 16 GPUs; the cluster has 12 that match."},
		{Explanation{State: Ended, Outcome: &Outcome{Status: AtRest, At: before(9 * time.Second), Reason: reason.Reason{Kind: reason.NoMembers, Cause: "every group with GPUs has count = 0; to add members, use nomad job scale", Doing: &reason.Doing{Ending: 2}}}},
			"a has had no members since " + Clock(time.Local, before(9*time.Second)) + " (9s ago): every group with GPUs has count = 0; to add members, use nomad job scale; 2 are still stopping and hold their GPUs."},
		{Explanation{State: Running, Decision: d, Leaving: []reason.Reason{{Kind: reason.NodesLeaving, Cause: "node n is being drained: so"}}},
			"a runs on 4 GPUs of 2 nodes. Predicted slowdown: " + times(1) + ". Node n is being drained: so."},
		{Explanation{State: Running, Decision: d, Members: []reason.Reason{{Kind: reason.MemberMissing, Member: "g[1]", Until: before(0), Cause: "so"}}},
			"a runs on 4 GPUs of 2 nodes. Predicted slowdown: " + times(1) + ". Member g[1] has been missing since " + reason.Second(before(0)) + ": so."},
	} {
		c.e.Job = "a"
		if got := c.e.Headline(now); got != c.want {
			t.Errorf("%s\nwant %s", got, c.want)
		}
	}
}

// A gang with members that are pending in Nomad is not shown as running.
func TestHeadlineOfPending(t *testing.T) {
	e := &Explanation{Job: "j", State: Running, Reason: reason.Reason{Kind: reason.MembersRun, Want: 2, Doing: &reason.Doing{Run: 1}}, Decision: &pal.Decision{Demand: 2, Chosen: &pal.Choice{Nodes: 1}}}
	for status, want := range map[string]string{"running": "j runs on 2 GPUs", "pending": "j is placed on 2 GPUs of one node. 1 of 2 members run. "} {
		e.Allocations = []Allocation{{Status: "running"}, {Status: status}}
		if got := e.Headline(time.Now()); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s", status, got)
		}
	}
}

// The headline of a rejected dispatched child gives no advice to change it, because nobody can.
func TestHeadlineOfRejectedChild(t *testing.T) {
	e := &Explanation{Job: "d/dispatch-1", State: Rejected, Reason: reason.Reason{Kind: reason.Rejected, Cause: "x"}}
	if got, want := e.Headline(time.Now()), "d/dispatch-1 is rejected: x."; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	e.Parent = "d"
	if got, want := e.Headline(time.Now()), "d/dispatch-1 is rejected: x. Nobody can change this job, because it is a run of d."; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A job that waits for better GPUs does not reserve the GPUs that it could use now, so other jobs may
// get these GPUs. The headline says when the job stops waiting, but promises no start.
func TestHeadlinePromisesNoStart(t *testing.T) {
	now := time.Date(2026, 11, 30, 9, 39, 0, 0, time.UTC)
	e := &Explanation{Job: "j", State: Waiting, Planned: true, StartTo: now.Add(4 * time.Minute), Reason: reason.Reason{Kind: reason.Locality}, Wait: &queue.Wait{Reason: reason.Locality}}
	const want = " The job waits for such GPUs at most until 2026-11-30 09:43:00 UTC (in 4m), and then starts on any suitable GPUs that are still free."
	if got := e.Headline(now); !strings.HasSuffix(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
