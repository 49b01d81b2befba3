// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomadtest

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"
)

// deployment simulates the deployment of one version of a service.
type deployment struct {
	id     string
	of     uint64 // the version's JobModifyIndex
	job    *api.Job
	status string
	why    string // why the deployment ended
	// resumed is true if the author paused the deployment and then resumed it.
	resumed bool
	groups  map[string]*groupDeployment
	before  *deployment // the deployment of an earlier version
}

// groupDeployment is the part of a deployment that concerns one group.
type groupDeployment struct {
	update *api.UpdateStrategy
	// total is the number of members that must become healthy. canaries is the number of members
	// that must become healthy before the others. healthy also counts members that were healthy and
	// later failed.
	total, canaries, healthy int
	promoted                 bool
	// by is the time by which the next member must become healthy, or zero if no member was placed
	// yet.
	by time.Time
}

// goesOn reports whether a deployment has not ended, even if it is paused.
func (d *deployment) goesOn() bool {
	return d != nil && (d.status == api.DeploymentStatusRunning || d.paused())
}

func (d *deployment) failed() bool { return d != nil && d.status == api.DeploymentStatusFailed }

// has reports whether the allocation was placed or updated in the deployment.
func (d *deployment) has(a *alloc) bool { return d != nil && a.deployment == d.of }

// done reports whether as many members as possible are healthy. Before the author promotes the
// canaries, only the canaries can become healthy.
func (g *groupDeployment) done() bool {
	if g.canaries > 0 && !g.promoted {
		return g.healthy >= g.canaries
	}
	return g.healthy >= g.total
}

// deploymentOf returns the deployment of a version. deploymentOf returns nil if there is no
// deployment or the deployment has succeeded.
func (s *Server) deploymentOf(job *api.Job) *deployment {
	if job == nil {
		return nil
	}
	d := s.jobs[Key{Namespace: *job.Namespace, ID: *job.ID}].deployment
	if d == nil || d.of != *job.JobModifyIndex || d.status == api.DeploymentStatusSuccessful {
		return nil
	}
	return d
}

// deploy creates a deployment if the version is new or changes members, and has no deployment yet.
// destructive is the number of members that must be replaced. place is the number of members that
// must be placed.
func (p *plan) deploy(g *api.TaskGroup, destructive, place int) {
	if value(p.job.Type) != api.JobTypeService || g.Update == nil || value(g.Update.MaxParallel) == 0 {
		return
	}
	if p.deployment != nil && p.deployment.groups[*g.Name] != nil {
		return
	}
	inPlace, had := 0, false
	for _, a := range p.update {
		if a.group == *g.Name {
			inPlace++
		}
	}
	for _, a := range p.s.byJob[p.key] {
		had = had || a.group == *g.Name && *a.job.JobModifyIndex == *p.job.JobModifyIndex
	}
	total := destructive + inPlace + place
	if total == 0 || had && destructive+inPlace == 0 {
		return
	}
	if p.deployment == nil {
		p.deployment = &deployment{
			id: p.s.id(fmt.Sprint("deployment ", p.key, *p.job.Version)), of: *p.job.JobModifyIndex, job: p.job, status: api.DeploymentStatusRunning, groups: map[string]*groupDeployment{}, before: p.had(),
		}
	}
	d := &groupDeployment{update: g.Update, total: total}
	if destructive > 0 {
		d.canaries = value(g.Update.Canary)
	}
	p.deployment.groups[*g.Name] = d
}

// had returns the newest deployment that the job had before this plan, or nil.
func (p *plan) had() *deployment {
	if j := p.s.jobs[p.key]; j != nil {
		return j.deployment
	}
	return nil
}

// canarying reports whether the group has canaries that still wait for promotion.
func (p *plan) canarying(g *api.TaskGroup) bool {
	if p.deployment == nil {
		return false
	}
	d := p.deployment.groups[*g.Name]
	return d != nil && d.canaries > 0 && !d.promoted
}

// stopCanaries stops the canaries of an earlier version or of a failed deployment, if they were not
// promoted.
func (p *plan) stopCanaries(g *api.TaskGroup) {
	for _, a := range p.s.byJob[p.key] {
		if a.group == *g.Name && a.waitingCanary() && a.desired == api.AllocDesiredStatusRun && (p.deployment.failed() || a.deployment != *p.job.JobModifyIndex) {
			p.stop[a] = ""
		}
	}
}

// placeCanaries places the canaries of a service update, if there are any. placeCanaries reports
// whether the other members wait for the canaries.
func (p *plan) placeCanaries(g *api.TaskGroup, destructive, canaries []*alloc) bool {
	if g.Update == nil || value(g.Update.Canary) == 0 || value(p.job.Type) != api.JobTypeService || len(destructive) == 0 || p.deployment.failed() {
		return false
	}
	if p.deployment != nil {
		if d := p.deployment.groups[*g.Name]; d != nil && d.promoted {
			return false
		}
	}
	taken := map[int]bool{}
	for _, a := range canaries {
		taken[a.number] = true
	}
	lack := value(g.Update.Canary) - len(canaries)
	for _, old := range destructive {
		if lack > 0 && !taken[old.number] && !p.deployment.paused() {
			if a := p.placeMember(g, old.number, nil, false); a != nil {
				a.canary = true
			}
			taken[old.number] = true
			lack--
		}
	}
	return true
}

// setDeployment stores the deployment of a plan. setDeployment cancels the deployment of an earlier
// version or of a stopped job.
func (s *Server) setDeployment(p *plan) {
	j := s.jobs[p.key]
	if j == nil {
		return
	}
	if was := j.deployment; value(j.Stop) && was.goesOn() {
		was.end(api.DeploymentStatusCancelled, cancelledByStop)
	} else if was.goesOn() && was != p.deployment {
		was.end(api.DeploymentStatusCancelled, cancelledByNew)
	}
	if p.deployment != nil {
		j.deployment = p.deployment
	}
}

// joinDeployment adds an allocation to a deployment. The deployment then waits until the allocation
// is healthy.
func (s *Server) joinDeployment(a *alloc, d *deployment) {
	if !d.goesOn() || d.groups[a.group] == nil || *a.job.JobModifyIndex != d.of {
		return
	}
	placed := a.deployment == 0
	a.deployment, a.healthy, a.unhealthy, a.mayReplace = d.of, false, false, false
	if g := d.groups[a.group]; g.by.IsZero() {
		s.expectProgress(a.key, d, g)
	}
	run := a.run
	s.after(value(d.groups[a.group].update.HealthyDeadline)+s.jitter(s.opts.Client, "deadline "+a.id), "healthy_deadline of "+a.id, func() {
		if d.has(a) && !a.healthy && !a.terminal() && a.client != api.AllocClientStatusPending {
			s.reportUnhealthy(a)
		}
	})
	if a.run == run && !placed {
		s.reportHealthy(a)
	}
}

// expectProgress makes a deployment fail unless a member becomes healthy within the
// progress_deadline of the group.
func (s *Server) expectProgress(k Key, d *deployment, g *groupDeployment) {
	within := value(g.update.ProgressDeadline)
	if within == 0 {
		return
	}
	at := s.opts.Now().Add(within)
	g.by = at
	s.after(within, "progress_deadline of "+d.id, func() {
		if d.goesOn() && g.by.Equal(at) && !g.done() {
			s.failDeployment(k, d, value(g.update.AutoRevert), failedByTime)
		}
	})
}

// reportHealthy marks a service's member as healthy in its deployment, after min_healthy_time.
// After that, Nomad replaces the next members.
func (s *Server) reportHealthy(a *alloc) {
	d := s.watched(a)
	if d == nil || a.client != api.AllocClientStatusRunning {
		return
	}
	run, g := a.run, d.groups[a.group]
	if value(g.update.HealthCheck) == "manual" {
		return // the model does not serve manual health
	}
	s.after(value(g.update.MinHealthyTime)+s.jitter(10*time.Millisecond, "healthy "+a.id), a.id+" is healthy", func() {
		if n := s.nodes[a.node]; a.run != run || a.client != api.AllocClientStatusRunning || s.watched(a) != d || n == nil || n.cut {
			return
		}
		a.healthy = true
		g.healthy++
		s.expectProgress(a.key, d, g)
		if value(g.update.AutoPromote) {
			s.promote(a.key, d)
		}
		s.nextIndex("evals")
		s.evaluate(a.key, "deployment-watcher")
	})
}

// watched returns the active deployment in which an allocation has not become healthy or unhealthy
// yet, or nil.
func (s *Server) watched(a *alloc) *deployment {
	j := s.jobs[a.key]
	if j == nil || !j.deployment.goesOn() || !j.deployment.has(a) || a.healthy || a.unhealthy {
		return nil
	}
	return j.deployment
}

// reportUnhealthy marks an allocation as unhealthy in its deployment. The deployment fails unless
// Nomad may reschedule the allocation. reportUnhealthy returns false if the allocation belongs to
// no active deployment.
func (s *Server) reportUnhealthy(a *alloc) bool {
	d := s.watched(a)
	if d == nil {
		return false
	}
	a.unhealthy = true
	g, failed := d.groups[a.group], a.failedAt
	if failed.IsZero() { // the tasks still run
		a.failedAt = s.now()
	}
	_, again := s.rescheduleTime(a)
	if a.failedAt = failed; !again || value(g.update.ProgressDeadline) == 0 {
		s.failDeployment(a.key, d, value(g.update.AutoRevert), failedByAllocs)
		return true
	}
	a.mayReplace = true
	s.nextIndex("evals")
	s.evaluate(a.key, "deployment-watcher")
	return true
}

// failDeployment ends a deployment. If revert is true, failDeployment also restores the last
// version whose deployment succeeded.
func (s *Server) failDeployment(k Key, d *deployment, revert bool, why string) {
	d.end(api.DeploymentStatusFailed, why)
	s.nextIndex("jobs", "evals")
	j := s.jobs[k]
	i := slices.IndexFunc(j.versions, func(v *api.Job) bool { return value(v.Stable) })
	if revert && i >= 0 && Spec(j.versions[i]) != Spec(d.job) {
		before := versionOf(j)
		s.putBack(k, j.versions[i])
		s.notifyWrote(Write{Client: "nomad", Kind: "revert", Job: k, Before: before, After: versionOf(s.jobs[k]), Checked: s.index - 1})
	}
	s.evaluate(k, "deployment-watcher")
}

// putBack registers an earlier version again as the newest version. The new version has the same
// submit time as the earlier version.
func (s *Server) putBack(k Key, version *api.Job) {
	was, own := s.jobs[k], *version
	own.Version, own.ModifyIndex, own.JobModifyIndex = new(*was.Version+1), new(s.index), new(s.index)
	next := &job{Job: &own, spec: Spec(&own), versions: was.versions, submissions: was.submissions, deployment: was.deployment}
	s.addVersion(next, &own, nil)
	s.setJob(k, next)
	own.Status = new(s.statusOf(k, &own))
	s.publishJob("DeploymentStatusUpdate", k)
}

// promote promotes the canaries when all of them are healthy.
func (s *Server) promote(k Key, d *deployment) {
	for _, g := range d.groups {
		if g.healthy < g.canaries {
			return
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.groups)) {
		g := d.groups[name]
		if g.promoted = true; !g.by.IsZero() {
			s.expectProgress(k, d, g)
		}
	}
	for _, a := range s.byJob[k] {
		if a.canary && d.has(a) && !a.terminal() {
			a.promoted = true
		}
	}
}

// endDeployment marks a deployment as successful. An evaluation calls endDeployment if all required
// members are healthy and nothing is left to do. The evaluation that calls endDeployment still uses
// the active deployment (seen on 1.11.3).
func (s *Server) endDeployment(p *plan) {
	d := p.deployment
	if !d.goesOn() || p.undone || len(p.update) > 0 {
		return
	}
	for _, g := range d.groups {
		if !g.done() || g.canaries > 0 && !g.promoted {
			return
		}
	}
	d.status = api.DeploymentStatusSuccessful
	j := s.jobs[p.key]
	own, next := *j.Job, *j
	own.Stable, own.ModifyIndex = new(true), new(s.index)
	next.Job = &own
	next.versions = slices.Clone(j.versions)
	next.versions[0] = &own
	s.setJob(p.key, &next)
	s.tables["jobs"] = s.index
	s.publishJob("PlanResult", p.key)
}

// latestDeployment returns the newest deployment of a job in the form of Nomad's API, or nil.
func (s *Server) latestDeployment(k Key) *api.Deployment {
	j := s.jobs[k]
	if j == nil || j.deployment == nil {
		return nil
	}
	return s.tellDeployment(k, j.deployment)
}
