// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package scenario

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// away is a job of which a member may be on a node that is away (disconnect).
func away(g bed.Gang, d api.DisconnectStrategy) *api.Job {
	g.Name, g.Members, g.Ungated = "a", max(2, g.Members), true
	g.Change = func(job *api.Job) {
		soonHealthy(job)
		job.TaskGroups[0].Disconnect = &d
	}
	return g.Job()
}

// lostAfter is a disconnect block with nothing but lost_after.
func lostAfter(d time.Duration) api.DisconnectStrategy { return api.DisconnectStrategy{LostAfter: &d} }

// places places two members on nodes 0 and 1, and leaves them room on node 2.
func (x *Script) places(job *api.Job) {
	x.byNode = true
	x.SetHealth("GPU-2-0", false)
	x.register(x.pinned(job, "GPU-0-0", "GPU-1-0", "GPU-2-0"))
	x.untilRunning("a", 2)
	if *job.Type == api.JobTypeService {
		x.untilDeployed("a")
	}
	x.SetHealth("GPU-2-0", true)
	x.show("a")
}

func (x *Script) cut() {
	x.say("a node is cut off")
	x.Hang(1)
	x.untilGone()
}

func (x *Script) untilGone() {
	x.untilAllocs("Nomad knows of it", "a", 1, func(a *api.AllocationListStub) bool {
		return a.ClientStatus == api.AllocClientStatusUnknown || a.ClientStatus == api.AllocClientStatusLost
	})
	x.show("a")
}

// back brings the node back, and waits until its client has ended what Nomad took for lost, and nothing else is
// unknown or about to end.
func (x *Script) back() { x.backOn(1) }

func (x *Script) backOn(n int) {
	x.say("the node is back")
	x.Recover(n)
	x.Until("its client has told of all", func() bool {
		return !slices.ContainsFunc(x.allocs("a"), func(a *api.AllocationListStub) bool {
			return a.ClientStatus == api.AllocClientStatusUnknown || a.ClientStatus == api.AllocClientStatusLost ||
				a.DesiredStatus != api.AllocDesiredStatusRun && !over(a)
		})
	})
	x.settleDown()
	x.show("a")
}

// settleDown waits until no evaluation waits for its time but that of lost_after.
func (x *Script) settleDown() {
	x.Until("no member is to be tried again", func() bool {
		return !slices.ContainsFunc(x.evals("a"), func(e *api.Evaluation) bool {
			return e.Status == api.EvalStatusPending && e.TriggeredBy != "max-disconnect-timeout"
		})
	})
}

// awayBeside: of another job on the same node the member is lost, and replaced.
func awayBeside(x *Script) {
	x.SetHealth("GPU-0-1", false)
	x.register(x.pinned(gang("b", 1), "GPU-1-1", "GPU-0-1"))
	x.untilRunning("b", 1)
	x.SetHealth("GPU-0-1", true)
	x.places(away(bed.Gang{}, lostAfter(10*time.Minute)))
	x.cut()
	x.untilAllocs("the other is placed again", "b", 2, func(*api.AllocationListStub) bool { return true })
	x.show("b")
	x.back()
	x.Until("what was lost is over", func() bool {
		return !slices.ContainsFunc(x.allocs("b"), func(a *api.AllocationListStub) bool { return a.ClientStatus == api.AllocClientStatusLost })
	})
	x.show("b")
}

// crashed: the client of a machine that boots again starts what it ran, if it is to.
func crashed(d time.Duration) func(x *Script) {
	return func(x *Script) {
		x.places(away(bed.Gang{}, lostAfter(d)))
		x.say("a node crashes")
		x.Crash(1)
		x.untilGone()
		if d == 0 {
			x.back()
			return
		}
		x.say("the node is back")
		x.Recover(1)
		x.untilStartedAgain()
	}
}

// lostAndOver: a member that Nomad takes for lost ends by itself before the node is back.
func lostAndOver(exit int) func(x *Script) {
	return func(x *Script) {
		job := away(bed.Gang{}, api.DisconnectStrategy{})
		job.TaskGroups[0].Tasks[0].Config["args"] = []string{"-c", fmt.Sprintf("sleep 40; [ $NOMAD_ALLOC_INDEX = 0 ] && exit %d; sleep infinity", exit)}
		n := x.placesFirst(job)
		x.register(x.pinned(working("b", 1, 40*time.Second, 0), "GPU-2-0"))
		x.untilOver("b", 1) // later than the first
		x.backOn(n)
	}
}

// rebooted: its client starts again what it ran.
func rebooted(x *Script) {
	x.places(away(bed.Gang{}, api.DisconnectStrategy{}))
	x.say("a node crashes, and is back before Nomad knows")
	x.Reboot(1)
	x.untilStartedAgain()
}

func (x *Script) untilStartedAgain() {
	x.untilAllocs("a member is started again", "a", 1, func(a *api.AllocationListStub) bool { return strings.Count(events(a), api.TaskStarted) == 2 })
	x.settleDown()
	x.show("a")
}

// awayBatch: a member of a batch job is not replaced while its node is away.
func awayBatch(x *Script) {
	x.places(away(bed.Gang{Reschedules: 3}, lostAfter(10*time.Minute)))
	x.cut()
	x.settleDown()
	x.show("a")
	x.say("the job is evaluated")
	x.evaluate("a")
	x.show("a")
	x.back()
}

func (x *Script) evaluate(id string) {
	_, _, err := x.API().Jobs().ForceEvaluate(x.id(id), nil)
	x.must(err)
}

// awayReplaced: one of a service is, by its reschedule block, and when the node is back one of them is stopped.
func awayReplaced(keep api.ReconcileOption) func(x *Script) {
	return func(x *Script) {
		d := lostAfter(10 * time.Minute)
		d.Reconcile = &keep
		x.places(away(bed.Gang{Service: true, Reschedules: 3}, d))
		x.cut()
		x.untilAllocs("it is replaced", "a", 3, func(*api.AllocationListStub) bool { return true })
		x.settleDown()
		x.show("a")
		x.back()
	}
}

// awayReplacedBetter: the replacement is on a node that is fuller, which Nomad takes for better.
func awayReplacedBetter(x *Script) {
	x.register(x.pinned(gang("b", 1), "GPU-2-1"))
	x.untilRunning("b", 1)
	awayReplaced(api.ReconcileOptionBestScore)(x)
}

// awayWithoutRoom: there is room for the replacement only later, when Nomad no longer wants it.
func awayWithoutRoom(x *Script) {
	x.places(away(bed.Gang{Service: true, Reschedules: 3}, lostAfter(10*time.Minute)))
	x.SetHealth("GPU-2-0", false)
	x.cut()
	x.settleDown()
	x.show("a")
	x.say("there is room")
	x.SetHealth("GPU-2-0", true)
	x.evaluate("a")
	x.show("a")
	x.back()
}

// untilLost waits until a member is lost.
func (x *Script) untilLost() {
	x.untilAllocs("it is lost", "a", 1, func(a *api.AllocationListStub) bool { return a.ClientStatus == api.AllocClientStatusLost })
	x.settleDown()
	x.show("a")
}

// awayTooLong: what is away for longer is lost.
func awayTooLong(x *Script) {
	x.places(away(bed.Gang{}, lostAfter(8*time.Second)))
	x.cut()
	x.untilLost()
	x.back()
}

func notReplaced(d api.DisconnectStrategy) api.DisconnectStrategy {
	d.Replace = new(false)
	return d
}

// awayNotReplaced: replace = false is for as long as it is not lost.
func awayNotReplaced(x *Script) {
	x.places(away(bed.Gang{Service: true, Reschedules: 3}, notReplaced(lostAfter(15*time.Second))))
	x.cut()
	x.settleDown()
	x.show("a")
	x.untilLost()
	x.back()
}

// downNotReplaced: it has no say without lost_after.
func downNotReplaced(x *Script) {
	x.places(away(bed.Gang{Service: true, Reschedules: 3}, notReplaced(api.DisconnectStrategy{})))
	x.say("a node is cut off")
	x.Hang(1)
	x.untilLost()
	x.untilRunning("a", 2)
	x.show("a")
	x.back()
}

// awayFinished: a member finishes while its node is away.
func awayFinished(x *Script) {
	x.places(away(bed.Gang{Runs: 40 * time.Second}, lostAfter(10*time.Minute)))
	x.cut()
	x.untilOver("a", 1)
	x.show("a")
	x.say("the node is back")
	x.Recover(1)
	x.untilOver("a", 2)
	x.settleDown()
	x.show("a")
}

// awayFailed: a member fails, and is replaced though it is not to be tried again.
func awayFailed(x *Script) {
	job := away(bed.Gang{}, lostAfter(10*time.Minute))
	job.TaskGroups[0].Tasks[0].Config["args"] = []string{"-c", "sleep 40; [ $NOMAD_ALLOC_INDEX = 0 ] && exit 3; sleep infinity"}
	n := x.placesFirst(job)
	x.register(x.pinned(working("b", 1, 40*time.Second, 0), "GPU-2-0"))
	x.untilOver("b", 1) // later than the first
	x.say("the node is back")
	x.Recover(n)
	x.untilOver("a", 1)
	x.untilRunning("a", 2)
	x.settleDown()
	x.show("a")
}

// awayStopped: a member is stopped that is away, which Nomad does when it is back.
func awayStopped(x *Script) {
	x.places(away(bed.Gang{}, lostAfter(10*time.Minute)))
	x.SetHealth("GPU-2-0", false)
	x.cut()
	x.say("it is stopped")
	for _, a := range x.allocs("a") {
		if a.ClientStatus == api.AllocClientStatusUnknown {
			_, err := x.API().Allocations().Stop(&api.Allocation{ID: a.ID}, nil)
			x.must(err)
		}
	}
	x.settleDown()
	x.show("a")
	x.say("the node is back")
	x.Recover(1)
	x.untilAllocs("it is placed again", "a", 3, func(*api.AllocationListStub) bool { return true })
	x.settleDown()
	x.show("a")
	x.SetHealth("GPU-2-0", true)
}

func awayJobStopped(x *Script) {
	x.places(away(bed.Gang{}, lostAfter(10*time.Minute)))
	x.cut()
	x.say("its job is stopped")
	x.stop("a")
	x.back()
}

// awayBehindGate is how the placer stops a gang.
func awayBehindGate(x *Script) {
	job := away(bed.Gang{Reschedules: 3}, lostAfter(10*time.Minute))
	x.places(job)
	x.cut()
	x.say("the gate over its pins")
	x.register(rewrite.Gate(x.pinned(job, "GPU-0-0", "GPU-1-0", "GPU-2-0")))
	x.show("a")
	x.say("its members are stopped")
	x.stopMembers("a")
	x.Until("one is over", func() bool { return slices.ContainsFunc(x.allocs("a"), over) })
	x.settleDown()
	x.show("a")
	x.say("other pins")
	x.register(x.pinned(job, "GPU-0-1", "GPU-2-1"))
	x.settleDown()
	x.show("a")
	x.back()
}

// awayUpdated: a new version that its members cannot take up as they run. It wants another GPU of node-0: a member that
// replaces the one that is away would not wait there for the end of the other.
func awayUpdated(x *Script) {
	x.places(away(bed.Gang{}, lostAfter(10*time.Minute)))
	x.cut()
	x.say("a new version")
	x.register(x.pinned(away(bed.Gang{Runs: time.Hour}, lostAfter(10*time.Minute)), "GPU-0-1", "GPU-1-0", "GPU-2-0"))
	x.untilRunning("a", 2)
	x.settleDown()
	x.show("a")
	x.back()
}

// awayFewer: of fewer members that are to be, the one that is away is none that there are too many.
func awayFewer(x *Script) {
	job := away(bed.Gang{}, lostAfter(10*time.Minute))
	n := x.placesFirst(job)
	x.say("one member fewer")
	job.TaskGroups[0].Count = new(1)
	x.register(x.pinned(job, "GPU-0-0", "GPU-1-0"))
	x.settleDown()
	x.show("a")
	x.backOn(n)
}

// placesFirst places two members, cuts off the node of the first, and says which that is.
func (x *Script) placesFirst(job *api.Job) (node int) {
	x.register(x.pinned(job, "GPU-0-0", "GPU-1-0"))
	x.untilRunning("a", 2)
	x.show("a")
	for _, a := range x.allocs("a") {
		if strings.TrimPrefix(a.Name, a.JobID+".") == "workers[0]" && a.NodeID == x.NodeID(1) {
			node = 1
		}
	}
	x.say("the node of the first is cut off")
	x.Hang(node)
	x.untilGone()
	return node
}

// stoppedAndDown: a node goes down before its client has ended what it is to stop.
func stoppedAndDown(x *Script) {
	job := away(bed.Gang{}, api.DisconnectStrategy{})
	job.TaskGroups[0].Tasks[0].KillTimeout = new(30 * time.Second)
	job.TaskGroups[0].Tasks[0].Config["args"] = []string{"-c", "trap '' INT TERM; while true; do sleep 0.2; done; sleep infinity"}
	x.places(job)
	_, _, err := x.API().Jobs().Deregister(x.id("a"), false, nil)
	x.must(err)
	x.say("its job is stopped, and a node is cut off")
	x.Hang(1)
	x.untilAllocs("Nomad takes it for lost", "a", 1, func(a *api.AllocationListStub) bool { return a.ClientStatus == api.AllocClientStatusLost })
	x.say("a member is lost, and the node is back")
	x.Recover(1)
	x.untilOver("a", 2)
	x.Until("its client has ended it", func() bool {
		return !slices.ContainsFunc(x.allocs("a"), func(a *api.AllocationListStub) bool { return a.ClientStatus == api.AllocClientStatusLost })
	})
	x.show("a")
}

// replacedAfterAWhile: a client is to stop what it runs without Nomad (stop_on_client_after), and Nomad waits for that.
func replacedAfterAWhile(x *Script) {
	x.places(away(bed.Gang{Service: true}, api.DisconnectStrategy{StopOnClientAfter: new(20 * time.Second)}))
	x.cut()
	x.Until("it is placed again", func() bool { return len(x.allocs("a")) == 3 })
	x.settleDown()
	x.show("a")
	x.back()
}
