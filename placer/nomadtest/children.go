// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomadtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/cronexpr"
	"github.com/hashicorp/nomad/api"
)

// RPC is a header. The header marks a registration or dry run as a request through the RPC port of
// Nomad's servers. Over RPC, the servers accept a job unchanged. The HTTP API drops the fields that
// mark a job as dispatched or periodic.
const RPC = "Nomadtest-Rpc"

// overHTTP drops the fields that Nomad's HTTP API drops, unless the request has the header RPC.
func overHTTP(r *http.Request, j *api.Job) {
	if r.Header.Get(RPC) == "" {
		j.ParentID, j.Dispatched, j.DispatchIdempotencyToken, j.Payload, j.Version = nil, false, nil, nil, nil
	}
}

// isParameterized reports whether the job takes parameters. Nomad never places such a job itself,
// but only the jobs that are dispatched from it.
func isParameterized(j *api.Job) bool { return j.ParameterizedJob != nil && !j.Dispatched }

// isTemplate reports whether the job is parameterized or periodic, so that it is never placed
// itself.
func isTemplate(j *api.Job) bool { return j.Periodic != nil || isParameterized(j) }

// jobInEvents returns a job in the form in which events contain it. Events contain compressed
// payloads, so an empty payload is one zero byte.
func jobInEvents(j *api.Job) *api.Job {
	if !j.Dispatched {
		return j
	}
	own := *j
	own.Payload = append([]byte{byte(len(j.Payload))}, j.Payload...)
	return &own
}

// checkUpdate returns Nomad's error if a new version of a job makes a change that Nomad forbids.
func checkUpdate(was *job, j *api.Job) error {
	if was == nil {
		return nil
	}
	what := ""
	switch {
	case value(was.Type) != value(j.Type):
		what = fmt.Sprintf("cannot update job from type %q to %q", value(was.Type), value(j.Type))
	case was.Periodic != nil && j.Periodic == nil:
		what = "cannot update periodic job to being non-periodic"
	case was.Periodic == nil && j.Periodic != nil:
		what = "cannot update non-periodic job to being periodic"
	case isParameterized(was.Job) && !isParameterized(j):
		what = "cannot update parameterized job to being non-parameterized"
	case !isParameterized(was.Job) && isParameterized(j):
		what = "cannot update non-parameterized job to being parameterized"
	case was.Dispatched != j.Dispatched:
		what = "field 'Dispatched' is read-only"
	default:
		return nil
	}
	return httpError(http.StatusInternalServerError, "%s", what)
}

// serveDispatch dispatches a parameterized job.
func (s *Server) serveDispatch(r *http.Request, k Key) (any, error) {
	var request api.JobDispatchRequest
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		return nil, httpError(http.StatusBadRequest, "%v", err)
	}
	j := s.jobs[k]
	if err := checkDispatch(j, k, &request); err != nil {
		return nil, err
	}
	token := r.URL.Query().Get("idempotency_token")
	for _, c := range sortedKeys(s.jobs) {
		if o := s.jobs[c]; token != "" && c.Namespace == k.Namespace && value(o.ParentID) == k.ID && value(o.DispatchIdempotencyToken) == token {
			return &api.JobDispatchResponse{DispatchedJobID: c.ID, JobCreateIndex: *o.CreateIndex}, nil
		}
	}
	own := *j.Job
	id := s.id(fmt.Sprint("dispatch ", k, s.count("dispatch "+k.String())))[:8]
	prefix := ""
	if request.IdPrefixTemplate != "" {
		prefix = request.IdPrefixTemplate + "-"
	}
	own.ID = new(fmt.Sprintf("%s/dispatch-%s%d-%s", k.ID, prefix, s.now().Unix(), id))
	own.Dispatched, own.DispatchIdempotencyToken, own.Payload = true, &token, request.Payload
	if own.Meta = maps.Clone(own.Meta); own.Meta == nil {
		own.Meta = map[string]string{}
	}
	maps.Copy(own.Meta, request.Meta)
	if request.Priority != 0 {
		own.Priority = &request.Priority
	}
	checked := s.index
	own.SubmitTime = new(s.now().UnixNano())
	s.commitDelay(r, k)
	out := s.launchChild(r.Header.Get(clientHeader), "dispatch", k, &own, checked)
	return &api.JobDispatchResponse{DispatchedJobID: *own.ID, EvalID: out.EvalID, EvalCreateIndex: out.EvalCreateIndex, JobCreateIndex: out.JobModifyIndex}, nil
}

// checkDispatch returns the error that Nomad returns for a dispatch, or nil if Nomad accepts the
// dispatch.
func checkDispatch(j *job, k Key, request *api.JobDispatchRequest) error {
	refused := func(format string, args ...any) error {
		return httpError(http.StatusInternalServerError, format, args...)
	}
	switch {
	case j == nil:
		return refused("parameterized job not found")
	case !isParameterized(j.Job):
		return refused("Specified job %q is not a parameterized job", k.ID)
	case value(j.Stop):
		return refused("Specified job %q is stopped", k.ID)
	case j.ParameterizedJob.Payload == "required" && len(request.Payload) == 0:
		return refused("Payload is not provided but required by parameterized job")
	case j.ParameterizedJob.Payload == "forbidden" && len(request.Payload) > 0:
		return refused("Payload provided but forbidden by parameterized job")
	}
	var unknown, missing []string
	for name := range request.Meta {
		if p := j.ParameterizedJob; !slices.Contains(p.MetaRequired, name) && !slices.Contains(p.MetaOptional, name) {
			unknown = append(unknown, name)
		}
	}
	for _, name := range j.ParameterizedJob.MetaRequired {
		if _, ok := request.Meta[name]; !ok {
			missing = append(missing, name)
		}
	}
	slices.Sort(unknown)
	switch {
	case len(unknown) > 0:
		return refused("Dispatch request included unpermitted metadata keys: %v", unknown)
	case len(missing) > 0:
		return refused("Dispatch did not provide required meta keys: %v", missing)
	}
	return nil
}

// launchChild registers a job that is made from a parameterized or periodic job. The new job's
// first version has the version number of the parameterized or periodic job (seen on 1.11.3).
func (s *Server) launchChild(client, kind string, parent Key, own *api.Job, checked uint64) *api.JobRegisterResponse {
	own.ParentID, own.Name, own.Stable = new(parent.ID), own.ID, new(false)
	k := Key{Namespace: parent.Namespace, ID: *own.ID}
	before := versionOf(s.jobs[k])
	out := s.register(&api.JobRegisterRequest{Job: own})
	s.notifyWrote(Write{Client: client, Kind: kind, Job: k, Before: before, After: s.jobs[k].Job, Checked: checked})
	return out
}

// launcher launches jobs for one version of a periodic job at the times that Nomad's clock shows.
type launcher struct {
	job  *api.Job
	spec *api.PeriodicConfig
}

// If a job is periodic, track starts to launch jobs for its current version. track stops launching
// jobs for earlier versions.
func (s *Server) track(k Key) {
	delete(s.launchers, k)
	j := s.jobs[k]
	if j == nil || j.Periodic == nil || value(j.Stop) || j.Periodic.Enabled != nil && !*j.Periodic.Enabled {
		return
	}
	l := &launcher{job: j.Job, spec: j.Periodic}
	s.launchers[k] = l
	s.launchAfter(k, l, s.now())
}

// launchAfter schedules the next launch after the given time, and all later launches. If somebody
// sets the clock forward, launchAfter makes up for missed launches.
func (s *Server) launchAfter(k Key, l *launcher, last time.Time) {
	at := l.next(last)
	if at.IsZero() {
		return
	}
	s.after(max(0, at.Sub(s.now())), "launch of "+k.String(), func() {
		if s.launchers[k] != l {
			return
		}
		s.launchAfter(k, l, at)
		if !value(l.spec.ProhibitOverlap) || !s.childGoesOn(k) {
			s.launch("nomad", k, l, at)
		}
	})
}

func (l *launcher) next(last time.Time) (first time.Time) {
	specs := l.spec.Specs
	if s := value(l.spec.Spec); s != "" {
		specs = []string{s}
	}
	for _, spec := range specs {
		cron, err := cronexpr.Parse(spec)
		if err != nil {
			continue // Nomad refuses such jobs
		}
		if at := cron.Next(last.UTC()); !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// launch launches one job for a periodic job.
func (s *Server) launch(client string, k Key, l *launcher, at time.Time) *api.JobRegisterResponse {
	own := *l.job
	own.ID, own.Periodic, own.SubmitTime = new(fmt.Sprintf("%s/periodic-%d", k.ID, at.Unix())), nil, new(s.now().UnixNano())
	return s.launchChild(client, "launch", k, &own, s.index)
}

// childGoesOn reports whether a job that was launched for a periodic job is waiting or running.
func (s *Server) childGoesOn(parent Key) bool {
	for _, k := range sortedKeys(s.jobs) {
		if k.Namespace != parent.Namespace || !strings.HasPrefix(k.ID, parent.ID+"/periodic-") || value(s.jobs[k].ParentID) != parent.ID {
			continue
		}
		waits := slices.ContainsFunc(s.evals[k], func(e *api.Evaluation) bool { return !terminalEval(e) })
		if waits || hasLive(s.byJob[k]) {
			return true
		}
	}
	return false
}

// serveForce launches a job for a periodic job at once, even if other jobs of the periodic job
// exist.
func (s *Server) serveForce(r *http.Request, k Key) (any, error) {
	switch j := s.jobs[k]; {
	case j == nil:
		return nil, httpError(http.StatusInternalServerError, "job not found")
	case j.Periodic == nil:
		return nil, httpError(http.StatusInternalServerError, "can't force launch non-periodic job")
	}
	l := s.launchers[k]
	if l == nil {
		return nil, httpError(http.StatusInternalServerError, "force launch for job %q failed: can't force run non-tracked job %q (%s)", k.ID, k.ID, k.Namespace)
	}
	at := s.now()
	s.commitDelay(r, k)
	out := s.launch(r.Header.Get(clientHeader), k, l, at)
	return map[string]any{"EvalID": out.EvalID, "EvalCreateIndex": out.EvalCreateIndex}, nil
}
