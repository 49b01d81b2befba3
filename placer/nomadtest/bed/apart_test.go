// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/model"
)

const firstDone = "sleep 20; [ $NOMAD_ALLOC_INDEX = 0 ] && exit 0; sleep 3600; exit 0"

// alone returns a job "a" whose members do not need each other and run this script.
func alone(members int, script string, change ...func(*api.Job)) Gang {
	return Gang{Name: "a", Members: members, Meta: map[string]string{"pal_on_failure": "member"}, Change: func(j *api.Job) {
		runsScript(j.TaskGroups[0], script)
		for _, c := range change {
			c(j)
		}
	}}
}

func onNode(g *api.TaskGroup, node int) {
	g.Constraints = append(g.Constraints, &api.Constraint{LTarget: "${node.unique.name}", Operand: "=", RTarget: fmt.Sprint("node-", node)})
}

// helperOn adds a group without GPUs on this node.
func helperOn(node int, script string) func(*api.Job) {
	return func(j *api.Job) {
		withHelper(j)
		runsScript(j.TaskGroups[1], script)
		j.TaskGroups[1].Constraints = nil
		onNode(j.TaskGroups[1], node)
	}
}

// gangBesideHelper returns a gang on node 0 with a helper on node 1.
func gangBesideHelper(script, helper string) Gang {
	return Gang{Name: "a", Members: 2, Change: func(j *api.Job) {
		runsScript(j.TaskGroups[0], script)
		onNode(j.TaskGroups[0], 0)
		helperOn(1, helper)(j)
	}}
}

// drainShortly drains a node for five seconds.
func (w *World) drainShortly(node string) {
	w.Nomad.Drain(node)
	w.RunFor(5 * time.Second)
	w.Nomad.SetEligible(node, true)
}

// The author adds the gate to the job, as explain advises. Then Nomad must not choose its GPUs.
func TestGateOnOneGroupMended(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(2, 4)
		w.StartPlacer()
		w.Submit(Gang{Name: "other", Members: 8, Runs: 10 * time.Minute})
		w.ExpectRunning("other", 10*time.Second)
		g := Gang{Name: "a", Members: 2, Runs: time.Hour, Change: withHelper}
		job := g.Job()
		job.TaskGroups[0].Constraints, job.Constraints = job.Constraints, nil
		if err := w.Register(job); err != nil {
			t.Fatal(err)
		}
		w.RunFor(30 * time.Second)
		w.Submit(g)
		w.RunFor(20 * time.Minute)
		if e := w.explained("a"); e.State == palapi.Native {
			w.T.Errorf("%s: %s", e.State, e.Reason.String())
		}
	})
}

// A job failed through its own fault an hour ago, while no placer was active. Since then more
// members have failed than the placer remembers.
func TestLongDeadIsNotStarted(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(4, 4)
		p := w.StartPlacer()
		w.Submit(Gang{Name: "a", Members: 2, Reschedules: 1, Runs: time.Minute, Exit: 1})
		w.RunFor(20 * time.Second)
		p.Stop()
		w.RunFor(time.Hour)
		for i := range 130 {
			w.Submit(Gang{Name: fmt.Sprint("o", i), Ungated: true, Runs: time.Second, Exit: 1})
			w.RunFor(2 * time.Second)
		}
		n := len(w.Nomad.Members(Key("a")))
		w.StartPlacer()
		w.RunFor(5 * time.Minute)
		if more := len(w.Nomad.Members(Key("a"))) - n; more > 0 {
			w.T.Errorf("%d members were started", more)
		}
	})
}

// A job finished ten hours ago, except for a helper that a drain had stopped. Then a placer starts.
func TestLongFinishedHelperIsNotStarted(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(2, 4)
		p := w.StartPlacer()
		w.Submit(gangBesideHelper("sleep 60; exit 0", "sleep 86400"))
		w.RunFor(20 * time.Second)
		p.Stop()
		w.drainShortly(NodeID(1))
		w.RunFor(10 * time.Hour)
		w.StartPlacer()
		w.RunFor(5 * time.Minute)
		if n := len(w.Members(Key("a"))); n > 0 {
			w.T.Errorf("%d members were started", n)
		}
	})
}

// A gang with a helper is purged while it runs, and at once registered again.
func TestPurgedBesideAHelper(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(2, 4)
		w.StartPlacer()
		g := gangBesideHelper("sleep 3600; exit 0", "sleep 86400")
		w.Submit(g)
		w.RunFor(20 * time.Second)
		if err := w.Purge(Key("a")); err != nil {
			w.T.Fatal(err)
		}
		w.Submit(g)
		w.ExpectRunning("a", 30*time.Second)
	})
}

// A gang whose members do not need each other is stopped for another gang, after its first member
// has finished and while a new placer knows only the other members. It starts again with all
// members, as Nomad runs them, and is not moved endlessly (walk 740203).
func TestStartsAgainWithThoseThatHadFinished(t *testing.T) {
	preempting := func(c *model.Config) {
		c.Queue.Order, c.Queue.Preempt, c.Queue.Migrate, c.RestartCost = queue.FIFO, true, true, time.Second
	}
	Run(t, Options{Seed: 1, Placer: preempting}, func(w *World) {
		w.AddNodes(2, 2)
		first := w.StartPlacer()
		a := alone(3, firstDone)
		a.Priority, a.Meta["pal_preempt"] = 20, "true"
		w.Submit(a)
		w.ExpectRunning("a", 10*time.Second)
		w.RunFor(25 * time.Second)
		first.Kill()
		w.StartPlacer()
		w.RunFor(5 * time.Second)
		w.Submit(Gang{Name: "urgent", Members: 4, Runs: 10 * time.Second, Priority: 90})
		w.ExpectFinished("urgent", time.Minute)
		w.ExpectRunning("a", 10*time.Second)
		if v := *w.Nomad.Job(Key("a")).Version; v != 3 { // versions: started, stopped, started
			t.Errorf("it is in version %d, want 3:\n%s", v, w.Describe())
		}
	})
}
