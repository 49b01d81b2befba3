// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomadtest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// The following texts are Nomad's descriptions of a deployment.
const (
	failedByAuthor  = "Deployment marked as failed"
	failedByAllocs  = "Failed due to unhealthy allocations"
	failedByTime    = "Failed due to progress deadline"
	cancelledByStop = "Cancelled because job is stopped"
	cancelledByNew  = "Cancelled due to newer version of job"
)

// end ends a deployment.
func (d *deployment) end(status, why string) { d.status, d.why = status, why }

func (d *deployment) paused() bool { return d != nil && d.status == api.DeploymentStatusPaused }

// description returns Nomad's description of the progress of a deployment.
func (d *deployment) description() string {
	switch {
	case d.why != "":
		return d.why
	case d.paused():
		return "Deployment is paused"
	case d.status == api.DeploymentStatusSuccessful:
		return "Deployment completed successfully"
	}
	for _, g := range d.groups {
		if g.canaries > 0 && !g.promoted && !d.resumed {
			if value(g.update.AutoPromote) {
				return "Deployment is running pending automatic promotion"
			}
			return "Deployment is running but requires manual promotion"
		}
	}
	return "Deployment is running"
}

// serveDeployment answers requests about a deployment.
func (s *Server) serveDeployment(r *http.Request, parts []string) (any, error) {
	k, d := s.deploymentByID(parts[len(parts)-1])
	if d == nil {
		return nil, httpError(http.StatusNotFound, "deployment not found")
	}
	if len(parts) == 1 {
		if err := s.authorize(r, k.Namespace, readJobs); err != nil {
			return nil, err
		}
		return s.tellDeployment(k, d), nil
	}
	if err := s.authorize(r, k.Namespace, submitJobs); err != nil {
		return nil, err
	}
	if !d.goesOn() {
		return nil, httpError(http.StatusInternalServerError, "can't %s terminal deployment", parts[0])
	}
	s.commitDelay(r, k)
	if !d.goesOn() {
		return nil, httpError(http.StatusInternalServerError, "Deployment %q has terminal status %q:", d.id, d.status)
	}
	switch parts[0] {
	case "promote":
		return s.promoteByAuthor(k, d)
	case "fail":
		s.failDeployment(k, d, d.reverts(), failedByAuthor)
		return api.DeploymentUpdateResponse{DeploymentModifyIndex: s.index}, nil
	case "pause":
		return s.pauseDeployment(r, k, d)
	}
	return nil, httpError(http.StatusNotFound, "Invalid URL: %s", r.URL.Path)
}

// deploymentByID finds a deployment by its id. deploymentByID looks only at the newest deployment
// of each job.
func (s *Server) deploymentByID(id string) (Key, *deployment) {
	for _, k := range sortedKeys(s.jobs) {
		if d := s.jobs[k].deployment; d != nil && d.id == id {
			return k, d
		}
	}
	return Key{}, nil
}

// reverts reports whether Nomad reverts the job if the deployment fails.
func (d *deployment) reverts() bool {
	for _, g := range d.groups {
		if value(g.update.AutoRevert) {
			return true
		}
	}
	return false
}

// promoteByAuthor promotes the canaries of all groups.
func (s *Server) promoteByAuthor(k Key, d *deployment) (any, error) {
	lack := ""
	for _, name := range slices.Sorted(maps.Keys(d.groups)) {
		g, healthy := d.groups[name], 0
		for _, a := range s.byJob[k] {
			if a.group == name && a.canary && d.has(a) && a.healthy && !a.terminal() {
				healthy++
			}
		}
		if healthy < g.canaries {
			lack += fmt.Sprintf("\t* Task group %q has %d/%d healthy allocations\n", name, healthy, g.canaries)
		}
	}
	if n := strings.Count(lack, "\n"); n == 1 {
		return nil, httpError(http.StatusInternalServerError, "1 error occurred:\n%s\n", lack)
	} else if n > 1 {
		return nil, httpError(http.StatusInternalServerError, "%d errors occurred:\n%s\n", n, lack)
	}
	s.nextIndex("jobs", "evals", "allocs")
	s.promote(k, d)
	s.evaluate(k, "deployment-watcher")
	return api.DeploymentUpdateResponse{DeploymentModifyIndex: s.index}, nil
}

// pauseDeployment pauses or resumes a deployment.
func (s *Server) pauseDeployment(r *http.Request, k Key, d *deployment) (any, error) {
	var request api.DeploymentPauseRequest
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		return nil, httpError(http.StatusBadRequest, "%v", err)
	}
	s.nextIndex("jobs", "evals")
	if d.status = api.DeploymentStatusPaused; !request.Pause {
		d.status, d.resumed = api.DeploymentStatusRunning, true
		s.evaluate(k, "deployment-watcher")
	}
	return api.DeploymentUpdateResponse{DeploymentModifyIndex: s.index}, nil
}

// tellDeployment returns a deployment in the form of Nomad's API.
func (s *Server) tellDeployment(k Key, d *deployment) *api.Deployment {
	out := &api.Deployment{
		ID: d.id, Namespace: k.Namespace, JobID: k.ID, JobVersion: *d.job.Version, JobModifyIndex: d.of, JobCreateIndex: *d.job.CreateIndex,
		Status: d.status, StatusDescription: d.description(), TaskGroups: map[string]*api.DeploymentState{},
	}
	for name, g := range d.groups {
		state := &api.DeploymentState{
			DesiredTotal: g.total, DesiredCanaries: g.canaries, HealthyAllocs: g.healthy, Promoted: g.promoted, AutoRevert: value(g.update.AutoRevert), RequireProgressBy: g.by,
		}
		for _, a := range s.byJob[k] {
			if a.canary && d.has(a) && a.group == name {
				state.PlacedCanaries = append(state.PlacedCanaries, a.id)
			}
		}
		out.TaskGroups[name] = state
	}
	return out
}

// dropCanaries stops the canaries of the deployment that are lost or must move, even if they are
// promoted. If necessary, new canaries replace the stopped ones.
func (p *plan) dropCanaries(is *groupAllocs) {
	drop := func(as []*alloc, status string) []*alloc {
		return slices.DeleteFunc(as, func(a *alloc) bool {
			if a.canary && p.deployment.has(a) {
				p.stop[a] = status
				return true
			}
			return false
		})
	}
	is.lost, is.migrate = drop(is.lost, api.AllocClientStatusLost), drop(is.migrate, "")
}

// placeAgain places a replacement of a member. If canaries wait and the member has an earlier
// version, the replacement runs the version that downgraded returns.
func (p *plan) placeAgain(g *api.TaskGroup, before *alloc, canarying bool) {
	own := p.job
	defer func() { p.job = own }()
	if job := p.downgraded(g, before); canarying && !before.waitingCanary() && job != nil {
		p.job, g = job, job.LookupTaskGroup(*g.Name)
	}
	if a := p.placeMember(g, before.number, before, false); a != nil && before.waitingCanary() {
		a.canary = true
	}
}

// waitingCanary reports whether the allocation is a canary that has not been promoted.
func (a *alloc) waitingCanary() bool { return a.canary && !a.promoted }

// downgraded returns the version for which a member is placed while canaries wait. The result is
// the last version that had no canaries, or whose canaries were promoted. If this is the current
// version, downgraded returns nil.
func (p *plan) downgraded(g *api.TaskGroup, before *alloc) *api.Job {
	j := p.s.jobs[p.key]
	if j == nil {
		return nil
	}
	find := func(version uint64) *api.Job {
		for _, v := range j.versions {
			if *v.Version == version && *v.Version >= *before.job.Version && v.LookupTaskGroup(*g.Name) != nil {
				return v
			}
		}
		return nil
	}
	for d := cmp.Or(p.deployment, p.had()); d != nil; d = d.before {
		if of := d.groups[*g.Name]; of != nil && (of.promoted || of.canaries == 0) {
			return find(*d.job.Version)
		}
	}
	if v := find(*before.job.Version); v != nil {
		if of := v.LookupTaskGroup(*g.Name); of.Update == nil || value(of.Update.MaxParallel) == 0 {
			return v
		}
	}
	return nil
}
