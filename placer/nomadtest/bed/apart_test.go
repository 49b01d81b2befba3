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
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
)

const (
	firstDone   = "sleep 20; [ $NOMAD_ALLOC_INDEX = 0 ] && exit 0; sleep 3600; exit 0"
	firstFailed = "sleep 20; [ $NOMAD_ALLOC_INDEX = 0 ] && exit 1; sleep 3600; exit 0"
)

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

// tries returns all allocations of a member of job "a", oldest first.
func (w *World) tries(group string, n int) (out []nomadtest.Member) {
	for _, m := range w.Nomad.Members(Key("a")) {
		if m.Group == group && m.Number == n {
			out = append(out, m)
		}
	}
	return out
}

// drainShortly drains a node for five seconds.
func (w *World) drainShortly(node string) {
	w.Nomad.Drain(node)
	w.RunFor(5 * time.Second)
	w.Nomad.SetEligible(node, true)
}

// One member has finished. Another fails, Nomad reschedules it, and it fails for good.
func TestApartFailedForGood(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(2, 4)
		w.StartPlacer()
		g := alone(2, "sleep 20; [ $NOMAD_ALLOC_INDEX = 0 ] && exit 1; sleep 20; exit 0")
		g.Reschedules = 1
		w.Submit(g)
		w.RunFor(5 * time.Minute)
		n := len(w.Nomad.Evaluations(Key("a")))
		for i := range 20 { // watch for evaluations
			w.Submit(Gang{Name: fmt.Sprint("busy", i), Runs: 20 * time.Second})
			w.RunFor(30 * time.Second)
		}
		if e := w.explained("a"); e.State != palapi.Ended {
			w.T.Errorf("%s: %s", e.State, e.Reason.String())
		}
		if more := len(w.Nomad.Evaluations(Key("a"))) - n; more > 0 {
			w.T.Errorf("%d evaluations in 10 minutes of a job that has ended", more)
		}
	})
}

// A helper is drained and placed again, and then fails for good.
func TestHelperFailsAfterADrain(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(3, 2)
		w.StartPlacer()
		w.Submit(gangBesideHelper("sleep 1200; exit 0", "sleep 120; exit 1"))
		w.RunFor(20 * time.Second)
		w.drainShortly(NodeID(1))
		w.RunFor(5 * time.Minute)
		n := len(w.Nomad.Evaluations(Key("a")))
		w.RunFor(10 * time.Minute)
		if more := len(w.Nomad.Evaluations(Key("a"))) - n; more > 0 {
			w.T.Errorf("%d evaluations in 10 minutes for a helper that failed for good", more)
		}
		w.RunFor(20 * time.Minute)
		if e := w.explained("a"); e.State != palapi.Ended {
			w.T.Errorf("%s: %s", e.State, e.Reason.String())
		}
	})
}

// A helper that lacks room has a blocked evaluation, so Nomad places it when there is room.
func TestHelperLacksRoom(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(2, 4)
		w.StartPlacer()
		w.Submit(gangBesideHelper("sleep 3600; exit 0", "sleep 86400"))
		w.RunFor(20 * time.Second)
		w.Nomad.Drain(NodeID(1))
		w.RunFor(2 * time.Minute)
		n := len(w.Nomad.Evaluations(Key("a")))
		w.RunFor(20 * time.Minute)
		if more := len(w.Nomad.Evaluations(Key("a"))) - n; more > 0 {
			w.T.Errorf("%d evaluations in 20 minutes for a helper with a blocked evaluation", more)
		}
		w.RunFor(time.Hour)
		if e := w.explained("a"); e.State == palapi.Lost {
			w.T.Errorf("%s: %s", e.State, e.Reason.String())
		}
	})
}

// One member has failed for good. A drain stops another.
func TestApartDrainedBesideFailed(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(3, 1)
		w.StartPlacer()
		w.Submit(alone(3, firstFailed))
		w.RunFor(30 * time.Second)
		w.drainShortly(w.tries("workers", 1)[0].Node)
		w.RunFor(30 * time.Minute)
		if len(w.tries("workers", 1)) < 2 {
			w.T.Errorf("the drained member is not placed again:\n%s", w.Describe())
		}
	})
}

// If the placer cannot read in which version a member finished, it adds nodes as if no member had
// finished.
func TestApartVersionUnread(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(6, 1)
		w.StartPlacer()
		w.Submit(alone(3, "sleep 60; [ $NOMAD_ALLOC_INDEX = 0 ] && exit 0; sleep 3600; exit 0"))
		w.RunFor(20 * time.Second)
		w.Nomad.CrashNode(w.tries("workers", 2)[0].Node) // the pins are extended
		w.RunFor(20 * time.Second)
		w.Nomad.Fail("placer-1", "GET /v1/allocation/*", nomadtest.TooMany, -1)
		w.RunFor(25 * time.Second) // the first has finished
		w.Nomad.SetEligible(w.tries("workers", 0)[0].Node, false)
		w.Nomad.CrashNode(w.tries("workers", 1)[0].Node)
		w.RunFor(2 * time.Minute)
	})
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

// One of two members has finished, and their node is drained shortly. The finished member does not
// run again.
func TestApartDrainedShortly(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(2, 2)
		w.StartPlacer()
		w.Submit(alone(2, firstDone))
		w.RunFor(40 * time.Second)
		w.Nomad.Drain(w.tries("workers", 1)[0].Node)
		w.RunFor(10 * time.Second)
		w.Nomad.SetEligible(w.tries("workers", 1)[0].Node, true)
		w.RunFor(2 * time.Minute)
		if n := len(w.tries("workers", 0)); n > 1 {
			w.T.Errorf("a finished member ran %d times:\n%s", n, w.Describe())
		}
	})
}

// Two members are lost, and there is room for only one of them.
func TestApartRoomForSome(t *testing.T) {
	for _, service := range []bool{false, true} {
		t.Run(fmt.Sprint(service), func(t *testing.T) {
			Run(t, Options{Seed: 1}, func(w *World) {
				w.AddNodes(4, 1)
				w.StartPlacer()
				g := alone(3, "sleep 3600; exit 0")
				g.Service = service
				w.Submit(g)
				w.RunFor(20 * time.Second)
				w.Submit(Gang{Name: "b", Runs: time.Minute})
				w.RunFor(20 * time.Second)
				w.Nomad.CrashNode(w.tries("workers", 0)[0].Node)
				w.Nomad.CrashNode(w.tries("workers", 1)[0].Node)
				w.RunFor(10 * time.Minute)
				if n := len(w.Members(Key("a"))); n != 2 {
					w.T.Errorf("%d members run, not 2:\n%s", n, w.Describe())
				}
			})
		})
	}
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

// If the job says distinct_hosts, a replica whose node is drained never gets a node with another
// replica. The placer adds a node to the pins.
func TestReplicasNeverShareANode(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(4, 4)
		w.StartPlacer()
		w.Submit(Gang{Name: "api", Service: true, Members: 3, Change: func(j *api.Job) {
			j.TaskGroups[0].Constraints = append(j.TaskGroups[0].Constraints, &api.Constraint{Operand: "distinct_hosts", RTarget: "true"})
		}})
		w.ExpectRunning("api", 10*time.Second)
		w.RunFor(10 * time.Minute)
		on := func() map[string]bool {
			nodes := map[string]bool{}
			for _, m := range w.Members(Key("api")) {
				nodes[m.Node] = true
			}
			return nodes
		}
		drained := w.Members(Key("api"))[0].Node
		w.Nomad.Drain(drained)
		w.Expect("the replica on another node", time.Minute, func() bool { return len(on()) == 3 && !on()[drained] })
	})
}
