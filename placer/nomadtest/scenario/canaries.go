// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package scenario

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// canaried returns a service with three members. Each update starts one canary, and the author must
// promote the canary.
func canaried(revert bool, script string) *api.Job {
	job := deployed(revert, 0, script)
	job.TaskGroups[0].Update.Canary = new(1)
	return job
}

const canaryGPUs = ownGPUs + " GPU-2-0"

// latest returns the newest deployment of the service.
func (x *Script) latest() *api.Deployment {
	d, _, err := x.API().Jobs().LatestDeployment(x.id("a"), nil)
	x.must(err)
	return d
}

// refused prints Nomad's error about a refused request. If err is nil, refused prints nothing.
func (x *Script) refused(err error) {
	var unexpected api.UnexpectedResponseError
	switch {
	case err == nil:
	case errors.As(err, &unexpected):
		fmt.Fprintf(&x.out, "refused, %d: %s\n", unexpected.StatusCode(), identities.ReplaceAllString(x.short(strings.TrimSpace(unexpected.Body())), "ID"))
	default:
		x.must(err)
	}
}

func (x *Script) promote() {
	_, _, err := x.API().Deployments().PromoteAll(x.latest().ID, nil)
	x.refused(err)
}

func (x *Script) failDeployment() {
	_, _, err := x.API().Deployments().Fail(x.latest().ID, nil)
	x.refused(err)
}

func (x *Script) pause(yes bool) {
	_, _, err := x.API().Deployments().Pause(x.latest().ID, yes, nil)
	x.refused(err)
}

// untilCanary waits until the canary of a version is healthy.
func (x *Script) untilCanary(version uint64) {
	x.Until("the canary is healthy", func() bool {
		d := x.latest()
		return d != nil && d.JobVersion == version && d.TaskGroups["workers"] != nil && d.TaskGroups["workers"].HealthyAllocs == 1
	})
}

// group prints the state of the newest deployment.
func (x *Script) group() {
	d := x.latest()
	fmt.Fprintf(&x.out, "deployment of version %d: %s, %s\n", d.JobVersion, d.Status, d.StatusDescription)
	if g := d.TaskGroups["workers"]; g != nil {
		fmt.Fprintf(&x.out, "  %d of %d canaries, promoted %v, %d of %d healthy\n", len(g.PlacedCanaries), g.DesiredCanaries, g.Promoted, g.HealthyAllocs, g.DesiredTotal)
	}
}

// startsCanary deploys the first version. startsCanary then deploys the second version, and waits
// until the canary is healthy.
func (x *Script) startsCanary(revert bool, script string) {
	x.deploy(canaried(revert, ""), ownGPUs)
	x.untilDeployed("a")
	x.show("a")
	x.say("another version, with pins for a canary")
	x.deploy(canaried(revert, script), canaryGPUs)
	x.untilCanary(1)
	x.show("a")
	x.group()
}

// promoted shows a canary that waits for longer than the progress deadline before its author
// promotes it.
func promoted(x *Script) {
	x.startsCanary(true, "sleep 1000")
	x.say("its progress deadline passes")
	by := x.latest().TaskGroups["workers"].RequireProgressBy.Add(3 * time.Second)
	x.Until("it is over", func() bool { return time.Now().After(by) })
	x.group()
	x.say("promoted")
	x.promote()
	x.untilDeployed("a")
	x.show("a")
	x.group()
	x.versions("a")
	x.say("and again")
	x.promote()
	x.failDeployment()
}

// promotedTooEarly promotes the canary before it is healthy. The canary fails, and so does the
// deployment.
func promotedTooEarly(x *Script) {
	x.deploy(canaried(false, ""), ownGPUs)
	x.untilDeployed("a")
	x.show("a")
	job := canaried(false, "sleep 10; exit 3") // promoted before it exits and before it counts as healthy
	job.TaskGroups[0].Update.MinHealthyTime = new(15 * time.Second)
	x.deploy(job, canaryGPUs)
	x.untilStatus(1, api.DeploymentStatusRunning)
	x.promote()
	x.untilStatus(1, api.DeploymentStatusFailed)
	x.show("a")
	x.promote()
	x.group()
}

// failedByAuthor marks a deployment as failed. The canary is stopped, and the old version keeps
// running.
func failedByAuthor(x *Script) {
	x.startsCanary(false, "sleep 1000")
	x.say("failed by its author")
	x.failDeployment()
	x.show("a")
	x.group()
	x.say("a member is stopped")
	x.stopNumber(1)
	x.show("a")
	x.say("then there is another version")
	x.deploy(canaried(false, "sleep 2000"), canaryGPUs)
	x.untilCanary(2)
	x.show("a")
	x.promote()
	x.untilDeployed("a")
	x.show("a")
}

// failedAndReverted marks a deployment with auto_revert as failed.
func failedAndReverted(x *Script) {
	x.startsCanary(true, "sleep 1000")
	x.say("failed by its author")
	x.failDeployment()
	x.untilStatus(2, api.DeploymentStatusSuccessful)
	x.show("a")
	x.gpusOf("a")
	x.group()
	x.versions("a")
}

// editedWhileCanaryWaits shows that a waiting canary is replaced by the canary of the next version.
func editedWhileCanaryWaits(x *Script) {
	x.startsCanary(false, "sleep 1000")
	x.say("another version, with pins for its canary")
	x.deploy(canaried(false, "sleep 2000"), canaryGPUs+" GPU-2-1")
	x.untilCanary(2)
	x.show("a")
	x.group()
	x.say("back to the running version")
	x.deploy(canaried(false, ""), ownGPUs)
	x.untilStatus(3, api.DeploymentStatusSuccessful)
	x.show("a")
	x.gpusOf("a")
	x.group()
}

// stoppedWhileCanaryWaits stops the job while its canary waits, and then runs the job again.
func stoppedWhileCanaryWaits(x *Script) {
	x.startsCanary(false, "sleep 1000")
	x.say("stopped")
	x.stop("a")
	x.group()
	x.promote()
	x.say("the same again")
	x.deploy(canaried(false, "sleep 1000"), canaryGPUs)
	x.untilStatus(3, api.DeploymentStatusSuccessful)
	x.show("a")
	x.group()
}

// goneWhileCanaryWaits shows that, if a member of the old version is stopped, Nomad replaces it
// with a member of the old version.
func goneWhileCanaryWaits(x *Script) {
	x.startsCanary(false, "sleep 1000")
	x.say("a member is stopped")
	x.stopNumber(1)
	x.show("a")
	x.say("the canary is stopped")
	x.stopNumber(0)
	x.show("a")
}

// stopNumber stops the newest member that has this number.
func (x *Script) stopNumber(n int) {
	as := x.allocs("a")
	slices.SortFunc(as, func(a, b *api.AllocationListStub) int { return int(b.CreateIndex) - int(a.CreateIndex) })
	for _, a := range as {
		if x.name(a) == fmt.Sprintf("workers[%d]", n) && !over(a) {
			_, err := x.API().Allocations().Stop(&api.Allocation{ID: a.ID}, nil)
			x.must(err)
			return
		}
	}
	Fail(fmt.Errorf("no member %d", n))
}

// paused shows that Nomad places no members while a deployment is paused.
func paused(x *Script) {
	x.startsCanary(false, "sleep 1000")
	x.say("paused")
	x.pause(true)
	x.show("a")
	x.group()
	x.say("promoted")
	x.promote()
	x.show("a")
	x.group()
	x.say("resumed")
	x.pause(false)
	x.untilDeployed("a")
	x.show("a")
	x.group()
}

// revertedToStopped stops a job, and then registers a version that fails. Nomad reverts the job to
// the stopped version.
func revertedToStopped(x *Script) {
	single := func(script string) {
		job := deployed(true, 0, script)
		job.TaskGroups[0].Count = new(1)
		x.deploy(job, "GPU-0-1")
	}
	single("")
	x.untilDeployed("a")
	x.say("stopped")
	x.stop("a")
	x.say("a version that fails")
	single("sleep 1; exit 3")
	x.untilStatus(2, api.DeploymentStatusFailed)
	x.untilOver("a", 2)
	x.show("a")
	x.versions("a")
}

// revertedToOldest shows that Nomad keeps six versions. One of the six is the newest successful
// version. After Nomad has reverted to the oldest version, it no longer keeps the original of this
// version.
func revertedToOldest(x *Script) {
	job := deployed(true, 0, "")
	job.TaskGroups[0].Count = new(1)
	x.deploy(job, "GPU-0-1")
	x.untilDeployed("a")
	for n := range 6 {
		edited := rewrite.Gate(job)
		edited.Priority = new(60 + n)
		x.register(edited)
	}
	x.versions("a")
	x.say("a version that fails")
	fails := deployed(true, 0, "sleep 1; exit 3")
	fails.TaskGroups[0].Count = new(1)
	x.deploy(fails, "GPU-0-1")
	x.untilStatus(8, api.DeploymentStatusSuccessful)
	x.versions("a")
	x.show("a")
}
