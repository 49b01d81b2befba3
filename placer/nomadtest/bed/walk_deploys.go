// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
)

// deploys returns a function that changes a service so that its deployments soon succeed or fail.
// Some of the changed services have auto_revert. Some services update with canaries. Most of the
// canaries wait until the author promotes them.
func (x *Walk) deploys() func(*api.Job) {
	u := &api.UpdateStrategy{
		MaxParallel: new(1 + x.rng.IntN(2)), HealthCheck: new("task_states"), MinHealthyTime: new(time.Duration(1+x.rng.IntN(10)) * time.Second),
		HealthyDeadline: new(20 * time.Second), ProgressDeadline: new(time.Duration(30+x.rng.IntN(90)) * time.Second), AutoRevert: new(x.rng.IntN(3) > 0),
	}
	if x.rng.IntN(2) == 0 {
		u.Canary, u.AutoPromote = new(1+x.rng.IntN(2)), new(x.rng.IntN(4) == 0)
		x.Counts["submit: a service with canaries"]++
	}
	return func(j *api.Job) { j.TaskGroups[0].Update = u }
}

// deploy registers a new version of a random service. Half of the new versions fail.
func (x *Walk) deploy() {
	k, ok := x.someService(func(job *api.Job) bool { return !*job.Stop })
	if !ok {
		return
	}
	script := fmt.Sprintf("true %d; sleep infinity", x.rng.IntN(100))
	if x.rng.IntN(2) == 0 {
		x.Counts["update a service: it fails"]++
		script = fmt.Sprintf("sleep %d; exit 1", 1+x.rng.IntN(20))
	}
	x.try(x.Edit(k, func(j *api.Job) { runsScript(j.TaskGroups[0], script) }))
}

// someService returns a random service that meets a condition.
func (x *Walk) someService(so func(*api.Job) bool) (k nomadtest.Key, ok bool) {
	services := slices.DeleteFunc(x.Nomad.Jobs(), func(k nomadtest.Key) bool {
		job := x.Nomad.Job(k)
		return *job.Type != api.JobTypeService || !so(job)
	})
	if len(services) == 0 {
		return nomadtest.Key{}, false
	}
	return services[x.rng.IntN(len(services))], true
}

// decide returns a function that acts on the active deployment of a random service.
func (x *Walk) decide(what string, do func(d *api.Deployment) error) func() {
	return func() {
		deployments := map[nomadtest.Key]*api.Deployment{}
		k, ok := x.someService(func(job *api.Job) bool {
			d, _, err := x.Author.Jobs().LatestDeployment(*job.ID, nil)
			deployments[nomadtest.Key{Namespace: *job.Namespace, ID: *job.ID}] = d
			return err == nil && d != nil && (d.Status == api.DeploymentStatusRunning || d.Status == api.DeploymentStatusPaused)
		})
		if !ok {
			return
		}
		err := do(deployments[k])
		if x.try(err); err == nil {
			x.Counts[what]++
			x.say("author: %s: job=%s, version %d", what, k.ID, deployments[k].JobVersion)
		}
	}
}

func (x *Walk) promote(d *api.Deployment) error {
	_, _, err := x.Author.Deployments().PromoteAll(d.ID, nil)
	return err
}

func (x *Walk) failDeployment(d *api.Deployment) error {
	_, _, err := x.Author.Deployments().Fail(d.ID, nil)
	return err
}

// pause pauses a running deployment, or resumes a paused one.
func (x *Walk) pause(d *api.Deployment) error {
	_, _, err := x.Author.Deployments().Pause(d.ID, d.Status == api.DeploymentStatusRunning, nil)
	return err
}
