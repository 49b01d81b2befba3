// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomadtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"
)

// versionsKept is the number of versions of each job that Nomad keeps (job_tracked_versions).
const versionsKept = 6

// job contains a job, and the data that Nomad keeps about the job. A stored version is never
// changed, only replaced.
type job struct {
	*api.Job
	spec string // the spec of the current version
	// versions contains the newest version first. The first element is the current job.
	versions    []*api.Job
	submissions map[uint64]*api.JobSubmission
	// deployment is the job's newest deployment. The deployment belongs to the current version or
	// to an earlier version.
	deployment *deployment
}

// statusError is an answer with a status other than 200.
type statusError struct {
	code int
	text string
}

func (e *statusError) Error() string { return e.text }

func httpError(code int, format string, args ...any) error {
	return &statusError{code, fmt.Sprintf(format, args...)}
}

// Spec returns a text that describes what a job requests. The text does not contain the fields that
// Nomad sets for each version. Equal jobs have equal texts.
func Spec(j *api.Job) string {
	own := *j
	own.Status, own.StatusDescription, own.Stable, own.Version, own.SubmitTime = nil, nil, nil, nil, nil
	own.CreateIndex, own.ModifyIndex, own.JobModifyIndex, own.VersionTag = nil, nil, nil, nil
	own.NomadTokenID = nil
	text, err := json.Marshal(&own)
	if err != nil {
		panic(err) // cannot fail, because the job was decoded from JSON
	}
	return string(text)
}

// checkModifyIndex checks the index in a registration. Like Nomad, the caller makes this check
// before the write.
func (s *Server) checkModifyIndex(k Key, r *api.JobRegisterRequest) error {
	if !r.EnforceIndex {
		return nil
	}
	was := s.jobs[k]
	switch {
	case was != nil && r.JobModifyIndex == 0:
		return httpError(http.StatusInternalServerError, "%s 0: job already exists", api.RegisterEnforceIndexErrPrefix)
	case was != nil && r.JobModifyIndex != *was.JobModifyIndex:
		return httpError(http.StatusInternalServerError, "%s %d: job exists with conflicting job modify index: %d", api.RegisterEnforceIndexErrPrefix, r.JobModifyIndex, *was.JobModifyIndex)
	case was == nil && r.JobModifyIndex != 0:
		return httpError(http.StatusInternalServerError, "%s %d: job does not exist", api.RegisterEnforceIndexErrPrefix, r.JobModifyIndex)
	}
	return nil
}

// validate returns the error that Nomad returns for a job, or nil if Nomad accepts the job.
// validate makes only the checks that tests need.
func validate(j *api.Job) error {
	switch {
	case j == nil:
		return httpError(http.StatusBadRequest, "Job must be specified")
	case value(j.ID) == "":
		return httpError(http.StatusBadRequest, "Job ID hasn't been provided")
	case len(j.TaskGroups) == 0:
		return httpError(http.StatusInternalServerError, "1 error occurred:\n\t* Missing job task groups\n\n")
	}
	for _, g := range j.TaskGroups {
		if len(g.Tasks) == 0 {
			return httpError(http.StatusInternalServerError, "1 error occurred:\n\t* Task group %s validation failed: missing tasks\n\n", value(g.Name))
		}
	}
	return nil
}

// register writes a job without checking the index again. The job's submit time is the time when
// its index was checked. So if a version has an earlier submit time than the version before it,
// Nomad wrote the version late.
func (s *Server) register(r *api.JobRegisterRequest) *api.JobRegisterResponse {
	j, k := r.Job, Key{Namespace: *r.Job.Namespace, ID: *r.Job.ID}
	was := s.jobs[k]
	text := Spec(j)
	if was != nil && was.spec == text && value(was.Stop) == value(j.Stop) {
		// Nothing has changed, so Nomad writes nothing. But Nomad evaluates the job again.
		out := &api.JobRegisterResponse{JobModifyIndex: *was.JobModifyIndex}
		s.answerEval(out, s.evaluate(k, "job-register"))
		return out
	}
	at := s.nextIndex("jobs", "evals")
	own := *j
	own.Status = new("pending")
	if value(own.Stop) {
		own.Status = new("dead")
	}
	own.CreateIndex, own.ModifyIndex, own.JobModifyIndex, own.Version = new(at), new(at), new(at), new(value(j.Version))
	next := &job{Job: &own, spec: text, submissions: map[uint64]*api.JobSubmission{}}
	if was != nil {
		own.CreateIndex, own.Version = was.CreateIndex, new(max(*was.Version+1, value(j.Version)))
		if hasLive(s.byJob[k]) {
			own.Status = new("running")
		}
		next.versions, next.submissions, next.deployment = was.versions, was.submissions, was.deployment
	}
	s.addVersion(next, &own, r.Submission)
	s.setJob(k, next)
	s.track(k)
	if isTemplate(&own) {
		s.updateStatus(k)
	}
	s.publishRegistered(k, *s.jobs[k].Job)
	out := &api.JobRegisterResponse{JobModifyIndex: at}
	if !isTemplate(&own) {
		s.answerEval(out, s.evaluate(k, "job-register"))
	}
	return out
}

func (s *Server) answerEval(out *api.JobRegisterResponse, e *api.Evaluation) {
	if e != nil {
		out.EvalID, out.EvalCreateIndex = e.ID, e.CreateIndex
	}
}

func (s *Server) addVersion(j *job, v *api.Job, sub *api.JobSubmission) {
	j.versions = append([]*api.Job{v}, j.versions...)
	if n := versionsKept; len(j.versions) > n {
		if slices.IndexFunc(j.versions, func(v *api.Job) bool { return value(v.Stable) }) == n { // the newest stable version is kept
			j.versions[n-1], j.versions[n] = j.versions[n], j.versions[n-1]
		}
		for _, old := range j.versions[versionsKept:] {
			delete(j.submissions, *old.Version)
		}
		j.versions = j.versions[:versionsKept]
	}
	if sub != nil {
		j.submissions[*v.Version] = sub
	}
}

// deregister stops a job, or purges it.
func (s *Server) deregister(k Key, purge bool, submitted time.Time) (*api.JobDeregisterResponse, error) {
	was := s.jobs[k]
	out := &api.JobDeregisterResponse{}
	if was == nil {
		return out, nil
	}
	at := s.nextIndex("jobs", "evals")
	out.JobModifyIndex, out.EvalCreateIndex = at, at
	if purge {
		s.setJob(k, nil)
		s.track(k)
		if was.deployment.goesOn() {
			was.deployment.end(api.DeploymentStatusCancelled, cancelledByStop)
		}
		s.purgeAllocs(k)
		// The event contains the job in the form that it had before the purge.
		s.publish("JobDeregistered", "Job", k.ID, k.Namespace, map[string]any{"Job": jobInEvents(was.Job), "Deleted": true})
		out.EvalID = s.evaluate(k, "job-deregister").ID
		return out, nil
	}
	own := *was.Job
	own.Stop, own.Version = new(true), new(*was.Version+1)
	own.ModifyIndex, own.JobModifyIndex, own.SubmitTime = new(at), new(at), new(submitted.UnixNano())
	next := &job{Job: &own, spec: Spec(&own), versions: was.versions, submissions: was.submissions, deployment: was.deployment}
	s.addVersion(next, &own, nil)
	s.setJob(k, next)
	s.track(k)
	s.updateStatus(k)
	s.publishJob("JobDeregistered", k)
	if !isTemplate(&own) {
		out.EvalID = s.evaluate(k, "job-deregister").ID
	}
	return out, nil
}

// updateStatus computes the status of a job, and reports whether the status has changed. The caller
// publishes the new status. The new status must be in the event of the change that caused it.
func (s *Server) updateStatus(k Key) bool {
	j := s.jobs[k]
	if j == nil {
		return false
	}
	status := s.statusOf(k, j.Job)
	if status == value(j.Status) {
		return false
	}
	own := *j.Job
	own.Status, own.ModifyIndex = new(status), new(s.index)
	s.tables["jobs"] = s.index
	next := *j
	next.Job = &own
	// The version of the job stays the same.
	next.versions = slices.Clone(j.versions)
	next.versions[0] = &own
	s.setJob(k, &next)
	return true
}

func (s *Server) statusOf(k Key, j *api.Job) string {
	switch {
	case isTemplate(j) && value(j.Stop):
		return "dead"
	case isTemplate(j):
		return "running"
	case hasLive(s.byJob[k]):
		return "running"
	}
	for _, e := range s.evals[k] {
		if !terminalEval(e) {
			return "pending"
		}
	}
	if len(s.evals[k]) > 0 || value(j.Stop) {
		return "dead"
	}
	return "pending"
}

// hasLive reports whether an allocation is neither stopped nor ended.
func hasLive(as []*alloc) bool {
	return slices.ContainsFunc(as, func(a *alloc) bool { return !a.terminal() })
}

// publishRegistered publishes that a job was registered. Nomad publishes a registration twice:
// before and after it writes the job's evaluation. In the first event, the job is "dead" if nothing
// runs and all evaluations under its name have ended, even those of a purged job (seen on 1.11.3).
func (s *Server) publishRegistered(k Key, own api.Job) {
	if value(own.Stop) || s.statusOf(k, &own) != "dead" {
		s.publishJob("JobRegistered", k)
		return
	}
	tell := func(own api.Job) {
		s.publish("JobRegistered", "Job", k.ID, k.Namespace, map[string]any{"Job": jobInEvents(&own)})
	}
	s.after(time.Millisecond, "evaluation written", func() { tell(own) })
	own.Status = new("dead")
	tell(own)
}

func (s *Server) publishJob(event string, k Key) {
	s.publish(event, "Job", k.ID, k.Namespace, map[string]any{"Job": jobInEvents(s.jobs[k].Job)})
}

// Job returns the current version of a job, or nil if there is no such job.
func (s *Server) Job(k Key) *api.Job {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.jobs[k]; j != nil {
		return j.Job
	}
	return nil
}

// Collect deletes the jobs that have been dead for longer than the given time, and everything that
// belongs to them. Collect deletes a service only if it was stopped (Nomad 1.11.3, jobIsGCable).
func (s *Server) Collect(older time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range sortedKeys(s.jobs) {
		j := s.jobs[k]
		fresh := func(a *alloc) bool { return !a.clientTerminal() || s.now().Sub(a.modified) < older }
		if value(j.Status) != "dead" || value(j.Type) != api.JobTypeBatch && !value(j.Stop) || s.now().Sub(time.Unix(0, *j.SubmitTime)) < older || slices.ContainsFunc(s.byJob[k], fresh) {
			continue
		}
		s.nextIndex("jobs", "evals", "allocs")
		s.setJob(k, nil)
		for _, a := range s.byJob[k] {
			delete(s.allocs, a.id)
		}
		delete(s.byJob, k)
		delete(s.evals, k)
		s.publish("JobBatchDeregistered", "Job", k.ID, k.Namespace, map[string]any{"Job": jobInEvents(j.Job), "Deleted": true})
	}
}
