// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package scenario

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// All contains the scenarios in the order in which they run.
var All = []Scenario{
	{"gate", gate},
	{"pins", pins},
	{"destructive", destructive},
	{"stopped behind the gate", stoppedBehindGate},
	{"run again over pins", runAgain},
	{"the same again", same},
	{"partial", partial},
	{"check and set", checkAndSet},
	{"finishes", finishes},
	{"finishes behind the gate", finishesBehindGate},
	{"another count", anotherCount},
	{"fails", fails},
	{"is tried again", triedAgain},
	{"fails while it is deployed", failsInDeployment},
	{"reverted", reverted},
	{"not reverted", notReverted},
	{"reverted after its deadline", revertedAfterDeadline},
	{"a member is tried again while it is deployed", triedAgainInDeployment},
	{"fails after its deployment has failed", failsAfterFailedDeployment},
	{"nothing to revert to", nothingToRevertTo},
	{"stopped and started", stoppedAndStarted},
	{"purged", purged},
	{"purged and registered again", purgedAndBack},
	{"blocked", blocked},
	{"preempted", preempted},
	{"preempted by two", preemptedByTwo},
	{"restarted", restarted},
	{"dry run", dryRun},
	{"drained", drained},
	{"drained-beside-one-that-finished", drainedBesideOneThatFinished},
	{"drained behind the gate", drainedBehindGate},
	{"drained member by member", drainedMemberByMember},
	{"node down", nodeDown},
	{"node purged", nodePurged},
	{"node purged without other room", nodePurgedAlone},
	{"a canary is promoted", promoted},
	{"a canary is promoted too early", promotedTooEarly},
	{"a canary is failed by its author", failedByAuthor},
	{"a canary is failed by its author and reverted", failedAndReverted},
	{"edited while its canary waits", editedWhileCanaryWaits},
	{"stopped while its canary waits", stoppedWhileCanaryWaits},
	{"a member goes while a canary waits", goneWhileCanaryWaits},
	{"paused while its canary waits", paused},
	{"reverted to a stopped version", revertedToStopped},
	{"reverted to the oldest version", revertedToOldest},
	{"dispatched", dispatched},
	{"a template is edited", templateEdited},
	{"periodic", periodic},
	{"launched by the clock", launched},
	{"away", awayBatch},
	{"away beside", awayBeside},
	{"away and crashed", crashed(10 * time.Minute)},
	{"crashed", crashed(0)},
	{"lost and finished", lostAndOver(0)},
	{"lost and failed", lostAndOver(3)},
	{"rebooted", rebooted},
	{"away and replaced", awayReplaced(api.ReconcileOptionKeepOriginal)},
	{"away and replaced for good", awayReplaced(api.ReconcileOptionKeepReplacement)},
	{"away and replaced by one as good", awayReplaced(api.ReconcileOptionBestScore)},
	{"away and replaced by a better one", awayReplacedBetter},
	{"away and replaced later", awayReplaced(api.ReconcileOptionLongestRunning)},
	{"away without room", awayWithoutRoom},
	{"away too long", awayTooLong},
	{"away too long and not replaced", awayNotReplaced},
	{"down and not replaced", downNotReplaced},
	{"away and finished", awayFinished},
	{"away and failed", awayFailed},
	{"away and stopped", awayStopped},
	{"away and its job stopped", awayJobStopped},
	{"away behind the gate", awayBehindGate},
	{"away and updated", awayUpdated},
	{"away and fewer", awayFewer},
	{"stopped and down", stoppedAndDown},
	{"replaced after a while", replacedAfterAWhile},
}

// OfEachKind names the scenarios that run on a real Nomad if it would take too long to run all
// scenarios.
var OfEachKind = []string{
	"gate", "destructive", "partial", "check and set", "finishes", "is tried again", "reverted", "stopped and started",
	"purged and registered again", "preempted by two", "restarted", "dry run", "drained", "node down", "node purged",
	"a canary is promoted too early", "paused while its canary waits", "dispatched", "periodic", "away behind the gate",
	"away and replaced", "crashed", "rebooted",
}

// endsSoon sets the time between the signal to end and the kill to one second. The default is five
// seconds.
func endsSoon(job *api.Job) {
	second := time.Second
	job.TaskGroups[0].Tasks[0].KillTimeout = &second
}

// soonHealthy calls endsSoon. soonHealthy also lets the members of a service count as healthy after
// two seconds.
func soonHealthy(job *api.Job) {
	endsSoon(job)
	if *job.Type == api.JobTypeService {
		job.TaskGroups[0].Update = &api.UpdateStrategy{MaxParallel: new(1), HealthCheck: new("task_states"), MinHealthyTime: new(2 * time.Second)}
	}
}

func gang(name string, members int) *api.Job {
	return bed.Gang{Name: name, Members: members, Ungated: true, Change: endsSoon}.Job()
}

func working(name string, members int, d time.Duration, exit int) *api.Job {
	return bed.Gang{Name: name, Members: members, Runs: d, Exit: exit, Ungated: true, Change: endsSoon}.Job()
}

// untilTold returns a job that runs until Finish is called. So the result is the same on a slow
// machine.
func untilTold(name string) *api.Job {
	job := gang(name, 1)
	job.TaskGroups[0].Tasks[0].Config["args"] = []string{"-c", "trap 'kill $! && exit 0' USR1; sleep infinity & wait"}
	return job
}

// finish makes all members of a job end successfully.
func (x *Script) finish(id string) {
	for _, a := range x.allocs(id) {
		x.Finish(a.ID)
	}
}

func gate(x *Script) {
	x.say("a gated job")
	x.register(rewrite.Gate(gang("a", 2)))
	x.show("a")
	x.say("its gate is removed")
	x.register(gang("a", 2))
	x.show("a")
}

func pins(x *Script) {
	x.say("a job with pins")
	job := gang("a", 2)
	x.register(x.pinned(job, "GPU-0-1", "GPU-1-0"))
	x.show("a")
	x.gpusOf("a")
	x.say("one more node")
	x.register(x.pinnedTo(job, []int{2}, "GPU-0-1", "GPU-1-0"))
	x.show("a")
	x.gpusOf("a")
}

func destructive(x *Script) {
	job := gang("a", 2)
	x.register(x.pinned(job, "GPU-0-1", "GPU-1-0"))
	x.show("a")
	x.say("pins to other GPUs")
	x.register(x.pinned(job, "GPU-1-1", "GPU-2-0"))
	x.show("a")
	x.gpusOf("a")
}

func stoppedBehindGate(x *Script) {
	job := x.pinned(gang("a", 2), "GPU-0-1", "GPU-1-0")
	x.register(job)
	x.show("a")
	x.say("the gate over its pins")
	x.register(rewrite.Gate(job))
	x.show("a")
	x.say("its members are stopped")
	x.stopMembers("a")
	x.show("a")
	x.say("other pins")
	x.register(x.pinned(gang("a", 2), "GPU-2-0", "GPU-2-1"))
	x.show("a")
	x.gpusOf("a")
}

func runAgain(x *Script) {
	job := gang("a", 2)
	x.register(x.pinned(job, "GPU-0-1", "GPU-1-0"))
	x.show("a")
	x.say("the author's version, with the gate")
	x.register(rewrite.Gate(job))
	x.show("a")
	x.say("its pins again")
	x.register(x.pinned(job, "GPU-0-1", "GPU-1-0"))
	x.show("a")
	x.gpusOf("a")
}

func same(x *Script) {
	job := x.pinned(gang("a", 1), "GPU-0-1")
	x.register(job)
	x.show("a")
	x.say("the same")
	x.register(job)
	x.show("a")
}

func partial(x *Script) {
	x.say("one of two GPUs is unhealthy")
	x.SetHealth("GPU-1-0", false)
	x.register(x.pinned(gang("a", 2), "GPU-0-1", "GPU-1-0"))
	x.show("a")
	x.gpusOf("a")
	x.say("it is healthy again")
	x.SetHealth("GPU-1-0", true)
	x.Until("it is placed", func() bool { return len(x.allocs("a")) == 2 })
	x.show("a")
}

func checkAndSet(x *Script) {
	job := rewrite.Gate(gang("a", 1))
	x.say("registered with an index, although Nomad has no such job")
	x.register(job, 7)
	x.say("registered with index 0, as a new job")
	x.register(job, 0)
	x.show("a")
	x.say("again")
	x.register(job, 0)
	x.say("registered with the job's current index")
	index := *x.now("a").JobModifyIndex
	x.register(x.pinned(gang("a", 1), "GPU-0-0"), index)
	x.say("registered with an old index")
	x.register(rewrite.Gate(gang("a", 1)), index)
	x.show("a")
}

func (x *Script) untilOver(id string, members int) {
	x.untilAllocs("its members end", id, members, over)
}

func finishes(x *Script) {
	job := x.pinned(working("a", 2, time.Second, 0), "GPU-0-0", "GPU-0-1")
	x.register(job)
	x.untilOver("a", 2)
	x.show("a")
	x.say("the same")
	x.register(job)
	x.show("a")
	x.say("the gate")
	x.register(rewrite.Gate(job))
	x.show("a")
	x.say("without it")
	x.register(job)
	x.untilOver("a", 4)
	x.show("a")
}

func finishesBehindGate(x *Script) {
	job := x.pinned(working("a", 1, 4*time.Second, 0), "GPU-0-0")
	x.register(job)
	x.show("a")
	x.say("the gate, while it works")
	x.register(rewrite.Gate(job))
	x.show("a")
	x.untilOver("a", 1)
	x.show("a")
	x.say("without it")
	x.register(job)
	x.untilOver("a", 2)
	x.show("a")
}

// anotherCount changes the count of an elastic gang after a member has finished.
func anotherCount(x *Script) {
	count := func(n int) {
		x.register(x.pinned(bed.Gang{Name: "a", Members: n, Ungated: true, Change: func(job *api.Job) {
			endsSoon(job)
			job.TaskGroups[0].Tasks[0].Config["args"] = []string{"-c", "sleep 1; [ $NOMAD_ALLOC_INDEX = 0 ] && exit 0; sleep infinity"}
		}}.Job(), "GPU-0-0", "GPU-0-1", "GPU-1-0", "GPU-1-1"))
	}
	count(3)
	x.untilOver("a", 1)
	x.show("a")
	x.say("one more")
	count(4)
	x.untilOver("a", 2)
	x.show("a")
	x.say("two fewer")
	count(2)
	x.untilOver("a", 3)
	x.show("a")
}

func fails(x *Script) {
	x.register(x.pinned(working("a", 1, time.Second, 3), "GPU-0-0"))
	x.untilOver("a", 1)
	x.show("a")
}

func triedAgain(x *Script) {
	job := bed.Gang{Name: "a", Runs: time.Second, Exit: 3, Restarts: 1, Reschedules: 1, Ungated: true, Change: endsSoon}.Job()
	x.register(x.pinned(job, "GPU-0-0"))
	x.untilOver("a", 2)
	x.show("a")
}

// failsInDeployment shows a member that fails after it was healthy. Another member then gets the
// GPU of the failed member.
func failsInDeployment(x *Script) {
	x.SetHealth("GPU-1-0", false)
	job := bed.Gang{Name: "a", Members: 2, Service: true, Reschedules: 1, Ungated: true, Change: func(job *api.Job) {
		soonHealthy(job)
		job.TaskGroups[0].Tasks[0].Config["args"] = []string{"-c", "sleep 4; [ $NOMAD_ALLOC_INDEX = 0 ] && exit 3; sleep infinity"}
	}}.Job()
	x.register(x.pinned(job, "GPU-0-1", "GPU-1-0"))
	x.untilOver("a", 1)
	x.untilRunning("a", 1)
	x.show("a")
	x.deployment("a")
	x.untilDeployed("a")
	x.deployment("a")
	x.say("there is room for it")
	x.SetHealth("GPU-1-0", true)
	x.show("a")
	x.say("the job is evaluated")
	_, _, err := x.API().Jobs().ForceEvaluate(x.id("a"), nil)
	x.must(err)
	x.untilOver("a", 2)
	x.show("a")
	x.deployment("a")
}

// deployed returns a service of three members whose deployments fail after half a minute. The
// members run the given script. If script is "", the members run forever.
func deployed(revert bool, reschedules int, script string) *api.Job {
	return bed.Gang{Name: "a", Members: 3, Service: true, Reschedules: reschedules, Ungated: true, Change: func(job *api.Job) {
		soonHealthy(job)
		u := job.TaskGroups[0].Update
		u.HealthyDeadline, u.ProgressDeadline, u.AutoRevert = new(20*time.Second), new(25*time.Second), &revert // for busy machines
		job.TaskGroups[0].ReschedulePolicy.Delay = new(5 * time.Second)                                         // Nomad's minimum
		if script != "" {
			job.TaskGroups[0].Tasks[0].Config["args"] = []string{"-c", script}
		}
	}}.Job()
}

const ownGPUs = "GPU-0-1 GPU-1-0 GPU-1-1"

func (x *Script) deploy(job *api.Job, gpus string) {
	x.register(x.pinned(job, strings.Fields(gpus)...))
}

// untilStatus waits until the newest deployment belongs to this version of the job and has this
// status. If the deployment ends with another status, untilStatus fails the scenario.
func (x *Script) untilStatus(version uint64, status string) {
	x.Until(fmt.Sprintf("the deployment of version %d is %s", version, status), func() bool {
		d, _, err := x.API().Jobs().LatestDeployment(x.id("a"), nil)
		x.must(err)
		if d == nil || d.JobVersion != version {
			return false
		}
		if ended := []string{api.DeploymentStatusFailed, api.DeploymentStatusSuccessful, api.DeploymentStatusCancelled}; d.Status != status && slices.Contains(ended, d.Status) {
			Fail(fmt.Errorf("the deployment of version %d should be %s, but is %s: %s", version, status, d.Status, d.StatusDescription))
		}
		return d.Status == status
	})
}

// reverted shows that Nomad restores the previous version if a new version fails on other GPUs.
func reverted(x *Script) {
	x.deploy(deployed(true, 0, ""), ownGPUs)
	x.untilDeployed("a")
	x.show("a")
	x.versions("a")
	x.say("a version that fails, with pins to other GPUs")
	x.deploy(deployed(true, 0, "sleep 1; exit 3"), "GPU-0-0 GPU-2-0 GPU-2-1")
	x.untilStatus(2, api.DeploymentStatusSuccessful)
	x.show("a")
	x.gpusOf("a")
	x.versions("a")
	x.deployment("a")
}

// notReverted shows that after a failed deployment, Nomad replaces only lost and drained members
// until there is a new version.
func notReverted(x *Script) {
	x.deploy(deployed(false, 0, ""), ownGPUs)
	x.untilDeployed("a")
	x.show("a")
	x.say("a version that fails")
	x.deploy(deployed(false, 0, "sleep 1; exit 3"), ownGPUs)
	x.untilStatus(1, api.DeploymentStatusFailed)
	x.show("a")
	x.say("the job is evaluated")
	_, _, err := x.API().Jobs().ForceEvaluate(x.id("a"), nil)
	x.must(err)
	x.show("a")
	x.say("other pins")
	x.deploy(deployed(false, 0, "sleep infinity"), "GPU-0-0 GPU-1-0 GPU-1-1")
	x.untilStatus(2, api.DeploymentStatusSuccessful)
	x.show("a")
	x.gpusOf("a")
}

// revertedAfterDeadline deploys a version of which only one member has room.
func revertedAfterDeadline(x *Script) {
	x.deploy(deployed(true, 0, ""), ownGPUs)
	x.untilDeployed("a")
	x.show("a")
	x.say("a version with pins, one of them to an unhealthy GPU")
	x.SetHealth("GPU-2-0", false)
	x.SetHealth("GPU-2-1", false)
	x.deploy(deployed(true, 0, "sleep 1000"), "GPU-0-0 GPU-2-0 GPU-2-1")
	x.untilStatus(2, api.DeploymentStatusSuccessful)
	x.show("a")
	x.gpusOf("a")
	x.versions("a")
	x.SetHealth("GPU-2-0", true)
	x.SetHealth("GPU-2-1", true)
}

// triedAgainInDeployment shows that a deployment fails when the last attempt of a member has
// failed.
func triedAgainInDeployment(x *Script) {
	x.deploy(deployed(true, 1, ""), ownGPUs)
	x.untilDeployed("a")
	x.show("a")
	x.say("a version with a member that fails")
	change := deployed(true, 1, "[ $NOMAD_ALLOC_INDEX = 1 ] && sleep 1 && exit 3; sleep infinity")
	change.TaskGroups[0].Update.ProgressDeadline = new(time.Minute)
	x.deploy(change, ownGPUs)
	x.untilStatus(2, api.DeploymentStatusSuccessful)
	x.show("a")
	x.versions("a")
}

// failsAfterFailedDeployment deploys a version whose third member has no room, so the deployment
// fails. After the failed deployment, Nomad does not retry the members that were updated in it.
func failsAfterFailedDeployment(x *Script) {
	script := "sleep 50; [ $NOMAD_ALLOC_INDEX = 0 ] && exit 3; sleep infinity"
	job := deployed(false, 5, script)
	job.TaskGroups[0].Count = new(2)
	x.SetHealth("GPU-1-1", false)
	x.deploy(job, ownGPUs)
	x.untilDeployed("a")
	x.show("a")
	x.say("one more member, for which there is no room")
	x.deploy(deployed(false, 5, script), ownGPUs)
	x.untilStatus(1, api.DeploymentStatusFailed)
	x.untilOver("a", 1)
	x.show("a")
	x.say("there is room for the member, and Nomad evaluates the job")
	x.SetHealth("GPU-1-1", true)
	_, _, err := x.API().Jobs().ForceEvaluate(x.id("a"), nil)
	x.must(err)
	x.show("a")
}

// nothingToRevertTo shows that Nomad changes nothing if the first version of a job fails.
func nothingToRevertTo(x *Script) {
	x.deploy(deployed(true, 0, "sleep 1; exit 3"), ownGPUs)
	x.untilStatus(0, api.DeploymentStatusFailed)
	x.untilOver("a", 3)
	x.show("a")
	x.say("one that runs")
	x.deploy(deployed(true, 0, ""), ownGPUs)
	x.untilStatus(1, api.DeploymentStatusSuccessful)
	x.show("a")
	x.versions("a")
}

func stoppedAndStarted(x *Script) {
	job := x.pinned(gang("a", 1), "GPU-0-0")
	x.register(job)
	x.show("a")
	x.say("stopped")
	x.stop("a")
	x.say("and again")
	x.stop("a")
	x.say("the same again")
	x.register(job)
	x.show("a")
}

func purged(x *Script) {
	x.register(x.pinned(gang("a", 1), "GPU-0-0"))
	x.show("a")
	_, _, err := x.API().Jobs().Deregister(x.id("a"), true, nil)
	x.must(err)
	x.Until("Nomad forgets it", func() bool { return len(x.allocs("a")) == 0 })
	x.show("a")
}

func purgedAndBack(x *Script) {
	x.register(x.pinned(gang("a", 1), "GPU-0-0"))
	x.show("a")
	x.say("the job is purged while it runs, and at once registered again with the gate")
	_, _, err := x.API().Jobs().Deregister(x.id("a"), true, nil)
	x.must(err)
	x.register(rewrite.Gate(gang("a", 1)))
	x.show("a")
	x.say("the gate is removed")
	x.register(x.pinned(gang("a", 1), "GPU-0-1"))
	x.show("a")
	all, _, err := x.API().Jobs().Allocations(x.id("a"), true, nil)
	x.must(err)
	for _, a := range all {
		fmt.Fprintf(&x.out, "of all: %s, to %s, version %d\n", a.ClientStatus, a.DesiredStatus, a.JobVersion)
	}
}

// blocked shows that Nomad tries the oldest waiting job first. The simulation of plain Nomad relies
// on this order.
func blocked(x *Script) {
	var jobs []string
	for i := range 9 {
		jobs = append(jobs, fmt.Sprintf("j%d", i))
		x.register(bed.Gang{Name: jobs[i], GPUs: 2, Runs: time.Second, Ungated: true, Change: endsSoon}.Job())
	}
	placed := map[string]uint64{}
	x.Until("all have finished", func() bool {
		for _, id := range jobs {
			for _, a := range x.allocs(id) {
				if over(a) {
					placed[id] = a.CreateIndex
				}
			}
		}
		return len(placed) == len(jobs)
	})
	slices.SortFunc(jobs, func(a, b string) int { return cmp.Compare(placed[a], placed[b]) })
	fmt.Fprintf(&x.out, "placed: %s\n", strings.Join(jobs, " "))
}

// preempted shows that, if preemption is enabled, Nomad stops jobs with a lower priority.
func preempted(x *Script) {
	x.preemption(true)
	defer x.preemption(false)
	x.byNode = true
	for k, low := range []string{"batch", "service"} {
		x.say("a gang with priority 20")
		first, high, service, gpus := len(x.seen)+1, "before-"+low, low == "service", []string{fmt.Sprint("GPU-0-", k), fmt.Sprint("GPU-1-", k)}
		x.register(x.pinned(bed.Gang{Name: low, Members: 2, Priority: 20, Service: service, Ungated: true, Change: soonHealthy}.Job(), gpus...))
		if service {
			x.untilDeployed(low)
		}
		x.show(low)
		x.say("a job with priority 30 requests a GPU of the first job")
		x.register(x.pinned(bed.Gang{Name: high, Priority: 30, Ungated: true, Change: endsSoon}.Job(), gpus[0]))
		x.show(high)
		x.show(low)
		x.order(first+2, first, low, high)
		x.say("that job is stopped")
		x.stop(high)
		x.untilRunning(low, 2) // Nomad evaluates blocked jobs some time after GPUs become free
		x.show(low)
		x.stop(low) // Nomad preempts any job with a GPU on the node
	}
}

// preemptedByTwo shows that Nomad preempts a member with two GPUs in favour of two members of one
// gang. Nomad makes only the first of the two members wait until the preempted member has ended.
func preemptedByTwo(x *Script) {
	x.preemption(true)
	defer x.preemption(false)
	x.say("a member with two GPUs, of priority 20")
	// The preempted member stops slowly. So even on a busy machine, the test sees which member
	// waits for it.
	slow := func(job *api.Job) { job.TaskGroups[0].Tasks[0].KillTimeout = new(8 * time.Second) }
	x.register(x.pinned(bed.Gang{Name: "wide", GPUs: 2, Priority: 20, Ungated: true, Change: slow}.Job(), "GPU-0-0", "GPU-0-1"))
	x.show("wide")
	x.say("a gang with priority 30 requests one of these GPUs for each member")
	x.register(x.pinned(bed.Gang{Name: "pair", Members: 2, Priority: 30, Ungated: true, Change: endsSoon}.Job(), "GPU-0-0", "GPU-0-1"))
	x.show("pair")
	x.show("wide")
	x.order(2, 1, "wide", "pair")
	x.order(3, 1, "wide", "pair")
}

// restarted restarts the tasks of a gang in place, and then stops the gang with a gate. The tasks
// exit with 0 on a signal.
func restarted(x *Script) {
	job := gang("a", 2)
	job.TaskGroups[0].Tasks[0].Config["args"] = []string{"-c", "trap 'exit 0' INT TERM; while sleep 0.1; do :; done; sleep infinity"}
	job = x.pinned(job, "GPU-0-0", "GPU-1-0")
	x.register(job)
	x.show("a")
	x.say("the tasks are restarted in place")
	for _, a := range x.allocs("a") {
		x.must(x.API().Allocations().Restart(&api.Allocation{ID: a.ID}, "work", nil))
	}
	x.Until("they run again", func() bool {
		return !slices.ContainsFunc(x.allocs("a"), func(a *api.AllocationListStub) bool { return !strings.HasSuffix(events(a), "Restarting, Started") })
	})
	x.show("a")
	x.say("the job is gated, and its members are stopped")
	x.register(rewrite.Gate(job))
	x.stopMembers("a")
	x.show("a")
}

func dryRun(x *Script) {
	for _, gpus := range [][]string{{"GPU-0-0", "GPU-1-0"}, {"GPU-0-0", "GPU-0-9"}} {
		resp, _, err := x.API().Jobs().PlanOpts(x.own(x.pinned(gang("a", 2), gpus...)), &api.PlanOptions{}, nil)
		x.must(err)
		fmt.Fprintf(&x.out, "%d groups cannot be placed\n", len(resp.FailedTGAllocs))
	}
	x.show("a")
}

func drained(x *Script) {
	x.byNode = true
	x.register(x.pinned(gang("a", 2), "GPU-0-0", "GPU-1-0"))
	x.show("a")
	x.say("one node is drained")
	x.Drain(0)
	x.show("a")
	x.Undrain(0)
	x.show("a")
	x.say("the job is evaluated")
	_, _, err := x.API().Jobs().ForceEvaluate(x.id("a"), nil)
	x.must(err)
	x.Until("it is placed again", func() bool { return len(x.allocs("a")) == 3 })
	x.show("a")
}

// drainedMemberByMember shows that a drain moves the members of a service one after the other.
// drainedMemberByMember also shows that members of a batch job run until they end.
func drainedMemberByMember(x *Script) {
	x.byNode = true
	x.SetHealth("GPU-0-0", false)
	x.SetHealth("GPU-0-1", false)
	serve := bed.Gang{Name: "a", Members: 2, Service: true, Ungated: true, Change: func(job *api.Job) {
		soonHealthy(job)
		job.TaskGroups[0].Migrate = &api.MigrateStrategy{MaxParallel: new(1), HealthCheck: new("task_states"), MinHealthyTime: new(5 * time.Second), HealthyDeadline: new(time.Minute)}
	}}.Job()
	x.register(x.pinned(serve, "GPU-0-0", "GPU-0-1", "GPU-1-0", "GPU-1-1"))
	x.register(x.pinned(untilTold("b"), "GPU-2-0"))
	x.untilRunning("b", 1)
	x.untilDeployed("a")
	x.show("a")
	x.SetHealth("GPU-0-0", true)
	x.SetHealth("GPU-0-1", true)
	x.say("their nodes are drained")
	x.DrainGently(1)
	x.DrainGently(2)
	x.untilAllocs("both are moved", "a", 4, func(*api.AllocationListStub) bool { return true })
	x.untilRunning("a", 2)
	x.show("a")
	made := map[uint64]bool{}
	for _, a := range x.allocs("a") {
		made[a.CreateIndex] = true
	}
	fmt.Fprintf(&x.out, "in %d evaluations\n", len(made)-1)
	x.show("b")
	x.finish("b")
	x.untilOver("b", 1)
	x.untilEmpty(1)
	x.untilEmpty(2)
	x.show("b")
	x.Undrain(1)
	x.Undrain(2)
}

func (x *Script) untilEmpty(n int) {
	x.Until("the node is drained", func() bool {
		node, _, err := x.API().Nodes().Info(x.NodeID(n), nil)
		x.must(err)
		return node.DrainStrategy == nil
	})
}

// drainedBesideOneThatFinished drains a member after another member has finished. After the drain,
// the job is dead, and Nomad evaluates it.
func drainedBesideOneThatFinished(x *Script) {
	x.register(x.pinned(bed.Gang{Name: "a", Members: 2, Ungated: true, Change: func(job *api.Job) {
		endsSoon(job)
		job.TaskGroups[0].Tasks[0].Config["args"] = []string{"-c", "sleep 1; [ $NOMAD_ALLOC_INDEX = 0 ] && exit 0; sleep infinity"}
	}}.Job(), "GPU-0-0", "GPU-0-1"))
	x.untilOver("a", 1)
	x.show("a")
	x.say("their node is drained")
	x.Drain(0)
	x.untilOver("a", 2)
	x.Undrain(0)
	x.show("a")
	x.say("the job is evaluated")
	_, _, err := x.API().Jobs().ForceEvaluate(x.id("a"), nil)
	x.must(err)
	x.Until("it runs again", func() bool { return len(x.allocs("a")) == 3 })
	x.show("a")
}

func drainedBehindGate(x *Script) {
	job := x.pinned(gang("a", 1), "GPU-0-0")
	x.register(job)
	x.show("a")
	x.register(rewrite.Gate(job))
	x.show("a")
	x.say("its node is drained")
	x.Drain(0)
	x.Until("it is over", func() bool { return over(x.allocs("a")[0]) })
	x.show("a")
	x.Undrain(0)
	x.show("a")
}

func nodeDown(x *Script) {
	x.byNode = true
	job := gang("a", 2)
	job.TaskGroups[0].Tasks[0].KillTimeout = new(20 * time.Second) // another member can start late
	x.register(x.pinned(job, "GPU-0-0", "GPU-1-0"))
	x.show("a")
	x.say("a node is cut off")
	x.Cut(1)
	lost := func(a *api.AllocationListStub) bool { return a.ClientStatus == api.AllocClientStatusLost }
	x.Until("it is lost", func() bool { return slices.ContainsFunc(x.allocs("a"), lost) })
	x.show("a")
	x.say("the node is back")
	x.Recover(1)
	x.Until("the member is placed again, and the lost allocation has ended", func() bool {
		return len(x.allocs("a")) == 3 && !slices.ContainsFunc(x.allocs("a"), lost)
	})
	x.show("a")
	x.order(3, 2, "a")
}

// nodePurged deletes a working node from Nomad. The node registers again with the same ID.
func nodePurged(x *Script) {
	x.places(away(bed.Gang{}, api.DisconnectStrategy{}))
	x.purgeNode()
}

// nodePurgedAlone shows a member that is lost because its node was purged. Nomad places the member
// again on the same node, where it still runs.
func nodePurgedAlone(x *Script) {
	x.byNode = true
	x.register(x.pinned(away(bed.Gang{}, api.DisconnectStrategy{}), "GPU-0-0", "GPU-1-0"))
	x.untilRunning("a", 2)
	x.show("a")
	x.purgeNode()
}

func (x *Script) purgeNode() {
	x.say("a node is purged while it works")
	x.Purge(1)
	x.untilOver("a", 1)
	x.untilRunning("a", 2)
	x.Until("the client has reported all allocations", func() bool {
		return !slices.ContainsFunc(x.allocs("a"), func(a *api.AllocationListStub) bool {
			return a.DesiredStatus != api.AllocDesiredStatusRun && !over(a) || a.ClientStatus == api.AllocClientStatusLost
		})
	})
	x.show("a")
}
