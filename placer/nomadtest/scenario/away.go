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

// away returns a job that has at least two members and a disconnect block. In these scenarios, a
// member is "away" if its node is disconnected.
func away(g bed.Gang, d api.DisconnectStrategy) *api.Job {
	g.Name, g.Members, g.Ungated = "a", max(2, g.Members), true
	g.Change = func(job *api.Job) {
		soonHealthy(job)
		job.TaskGroups[0].Disconnect = &d
	}
	return g.Job()
}

// lostAfter returns a disconnect block in which only lost_after is set.
func lostAfter(d time.Duration) api.DisconnectStrategy { return api.DisconnectStrategy{LostAfter: &d} }

// places registers a job whose two members run on nodes 0 and 1, so that node 2 has free GPUs.
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

// back reconnects node 1. back waits until the node's client has ended the members that
// Nomad considers lost, and until no member is unknown or about to end.
func (x *Script) back() { x.backOn(1) }

func (x *Script) backOn(n int) {
	x.say("the node is back")
	x.Recover(n)
	x.Until("the client has reported all allocations", func() bool {
		return !slices.ContainsFunc(x.allocs("a"), func(a *api.AllocationListStub) bool {
			return a.ClientStatus == api.AllocClientStatusUnknown || a.ClientStatus == api.AllocClientStatusLost ||
				a.DesiredStatus != api.AllocDesiredStatusRun && !over(a)
		})
	})
	x.settleDown()
	x.show("a")
}

// settleDown waits until no delayed evaluation is left, except the evaluation for lost_after.
func (x *Script) settleDown() {
	x.Until("no retry of a member is due", func() bool {
		return !slices.ContainsFunc(x.evals("a"), func(e *api.Evaluation) bool {
			return e.Status == api.EvalStatusPending && e.TriggeredBy != "max-disconnect-timeout"
		})
	})
}

// awayBeside shows that a member of another job on the same node is lost, so Nomad replaces it.
func awayBeside(x *Script) {
	x.SetHealth("GPU-0-1", false)
	x.register(x.pinned(gang("b", 1), "GPU-1-1", "GPU-0-1"))
	x.untilRunning("b", 1)
	x.SetHealth("GPU-0-1", true)
	x.places(away(bed.Gang{}, lostAfter(10*time.Minute)))
	x.cut()
	x.untilAllocs("job b is placed again", "b", 2, func(*api.AllocationListStub) bool { return true })
	x.show("b")
	x.back()
	x.Until("what was lost is over", func() bool {
		return !slices.ContainsFunc(x.allocs("b"), func(a *api.AllocationListStub) bool { return a.ClientStatus == api.AllocClientStatusLost })
	})
	x.show("b")
}

// crashed shows that, after a reboot, the client starts its members again if they should still run.
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

// lostAndOver shows a member that Nomad considers lost and whose tasks end before its node is back.
func lostAndOver(exit int) func(x *Script) {
	return func(x *Script) {
		job := away(bed.Gang{}, api.DisconnectStrategy{})
		job.TaskGroups[0].Tasks[0].Config["args"] = []string{"-c", fmt.Sprintf("sleep 40; [ $NOMAD_ALLOC_INDEX = 0 ] && exit %d; sleep infinity", exit)}
		n := x.placesFirst(job)
		x.register(x.pinned(working("b", 1, 40*time.Second, 0), "GPU-2-0"))
		x.untilOver("b", 1) // ends later than the first member of a
		x.backOn(n)
	}
}

// rebooted shows that the client starts its members again after a reboot.
func rebooted(x *Script) {
	x.places(away(bed.Gang{}, api.DisconnectStrategy{}))
	x.say("a node crashes, and is back before Nomad notices")
	x.Reboot(1)
	x.untilStartedAgain()
}

func (x *Script) untilStartedAgain() {
	x.untilAllocs("a member is started again", "a", 1, func(a *api.AllocationListStub) bool { return strings.Count(events(a), api.TaskStarted) == 2 })
	x.settleDown()
	x.show("a")
}

// awayBatch shows that Nomad does not replace a member of a batch job while the member's node is
// away.
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

// awayReplaced shows that Nomad replaces a member of a service if the reschedule block allows this.
// When the node is back, Nomad stops either the member or its replacement.
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

// awayReplacedBetter places the replacement on a fuller node, to which Nomad gives a better score.
func awayReplacedBetter(x *Script) {
	x.register(x.pinned(gang("b", 1), "GPU-2-1"))
	x.untilRunning("b", 1)
	awayReplaced(api.ReconcileOptionBestScore)(x)
}

// awayWithoutRoom frees GPUs for the replacement when Nomad no longer wants to replace the member.
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

// awayTooLong shows that Nomad counts a member as lost if the member is away for longer than
// lost_after.
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

// awayNotReplaced shows that replace = false has an effect only until the member is lost.
func awayNotReplaced(x *Script) {
	x.places(away(bed.Gang{Service: true, Reschedules: 3}, notReplaced(lostAfter(15*time.Second))))
	x.cut()
	x.settleDown()
	x.show("a")
	x.untilLost()
	x.back()
}

// downNotReplaced shows that replace = false has no effect without lost_after.
func downNotReplaced(x *Script) {
	x.places(away(bed.Gang{Service: true, Reschedules: 3}, notReplaced(api.DisconnectStrategy{})))
	x.say("a node is cut off")
	x.Hang(1)
	x.untilLost()
	x.untilRunning("a", 2)
	x.show("a")
	x.back()
}

// awayFinished shows a member that finishes while its node is away.
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

// awayFailed shows a member that fails while its node is away. Nomad replaces the failed member
// although the member must not be rescheduled.
func awayFailed(x *Script) {
	job := away(bed.Gang{}, lostAfter(10*time.Minute))
	job.TaskGroups[0].Tasks[0].Config["args"] = []string{"-c", "sleep 40; [ $NOMAD_ALLOC_INDEX = 0 ] && exit 3; sleep infinity"}
	n := x.placesFirst(job)
	x.register(x.pinned(working("b", 1, 40*time.Second, 0), "GPU-2-0"))
	x.untilOver("b", 1) // ends later than the first member of a
	x.say("the node is back")
	x.Recover(n)
	x.untilOver("a", 1)
	x.untilRunning("a", 2)
	x.settleDown()
	x.show("a")
}

// awayStopped stops a job's member while the member's node is away. Nomad stops the member when the
// node is back.
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

// awayBehindGate stops a gang with a member that is away, in the same way as the placer.
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

// awayUpdated registers a new version whose members cannot be updated in place. The new pins name
// another GPU of node-0. With pins to the same GPU, the replacement of the member that is away
// would not wait for the end of the old member.
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

// awayFewer shows that Nomad does not stop the member that is away when the author reduces the
// count.
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

// placesFirst places two members, disconnects the node of the first member, and returns this node.
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

// stoppedAndDown shows a node that goes down while its client must still end members.
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

// replacedAfterAWhile shows that a disconnected client stops its members after the time
// stop_on_client_after, and that Nomad does not replace them earlier.
func replacedAfterAWhile(x *Script) {
	x.places(away(bed.Gang{Service: true}, api.DisconnectStrategy{StopOnClientAfter: new(20 * time.Second)}))
	x.cut()
	x.Until("it is placed again", func() bool { return len(x.allocs("a")) == 3 })
	x.settleDown()
	x.show("a")
	x.back()
}
