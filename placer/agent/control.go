// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	"github.com/nomad-pal/nomad-pal/placer"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/request"
)

// controls maps each command to its change of a job's [gang.Control].
var controls = map[string]func(c *gang.Control, said *gang.Said, priority int){
	"hold": func(c *gang.Control, said *gang.Said, _ int) {
		if c.Held == nil || said.Why != "" { // otherwise the first hold and its reason stay
			c.Held = said
		}
	},
	"unhold":   func(c *gang.Control, _ *gang.Said, _ int) { c.Held = nil },
	"requeue":  func(c *gang.Control, said *gang.Said, _ int) { c.Requeue = said },
	"priority": func(c *gang.Control, _ *gang.Said, priority int) { c.Priority = priority },
	"release":  func(c *gang.Control, said *gang.Said, _ int) { c.Release = said },
	"keep":     func(c *gang.Control, _ *gang.Said, _ int) { c.Release = nil },
}

// serveControl carries out a command about one job:
// PUT /v1/job/<id>/{hold,unhold,requeue,priority,release,keep,cancel}. The caller needs the right to
// register the job.
func (s *server) serveControl(w http.ResponseWriter, r *http.Request) {
	dir, what := path.Split(r.PathValue("id"))
	id, change := strings.TrimSuffix(dir, "/"), controls[what]
	if id == "" || change == nil && what != "cancel" {
		http.NotFound(w, r)
		return
	}
	var in palapi.ControlRequest
	done, ok := s.bodies.decode(w, r, &in)
	if !ok {
		return
	}
	defer done()
	if in.Priority < 0 || in.Priority > mostPriority || len(in.Why) > palapi.LongestWhy {
		http.Error(w, fmt.Sprintf("a priority is a number from 1 to %d, or 0 for the jobspec's priority; a reason has at most %d bytes", mostPriority, palapi.LongestWhy), http.StatusBadRequest)
		return
	}
	k := cluster.JobKey{Namespace: cmp.Or(r.URL.Query().Get("namespace"), api.DefaultNamespace), ID: id}
	if what == "cancel" {
		s.cancel(w, r, k)
		return
	}
	var name string
	_, ok = s.judged(w, r, func(c *caller, ctx context.Context) error {
		job, err := c.submits(ctx, k, in.Priority)
		if err != nil {
			return err
		}
		if what == "hold" || what == "requeue" || what == "release" || in.Priority > 0 {
			if err := queues(what, job); err != nil {
				return err
			}
		}
		if what == "release" {
			if err := c.client.MayRelease(ctx, job); err != nil {
				return err
			}
		}
		name, err = c.name(ctx)
		return err
	})
	if !ok {
		return
	}
	p := s.agent.current.Load()
	if p == nil {
		refuse(w, errNotAtWork)
		return
	}
	said := &gang.Said{By: cmp.Or(name, in.By), At: time.Now().UTC(), Why: in.Why}
	is, err := p.Control(r.Context(), k, func(of *gang.Control) { change(of, said, in.Priority) })
	if err != nil {
		refuse(w, err)
		return
	}
	s.agent.log.Named("audit").Info("accepted a command for a job", "job", k.ID, "namespace", k.Namespace, "what", what, "by", said.By, "why", said.Why, "priority", in.Priority)
	s.snapshots.changed()
	writeJSON(w, http.StatusOK, is)
}

// cancel stops a job and, if it is a template, its runs, as nomad-pal cancel does. The agent asks Nomad
// with the caller's token, so Nomad itself judges the caller.
func (s *server) cancel(w http.ResponseWriter, r *http.Request, k cluster.JobKey) {
	stopped := []string{}
	c, ok := s.judged(w, r, func(c *caller, ctx context.Context) error {
		if err := c.readsJob(ctx, k); err != nil {
			return err
		}
		runs, err := c.client.Runs(ctx, k)
		if err != nil {
			return needs(err, fmt.Sprintf("the capability %q in namespace %q", "list-jobs", k.Namespace))
		}
		ids := []string{k.ID} // first, because a stopped template starts no further runs
		for _, run := range runs {
			if run.Status != "dead" {
				ids = append(ids, run.ID)
			}
		}
		for _, id := range ids {
			if err := c.client.Deregister(ctx, cluster.JobKey{Namespace: k.Namespace, ID: id}, false); err != nil {
				return needs(err, fmt.Sprintf("the capability %q in namespace %q", "submit-job", k.Namespace))
			}
			stopped = append(stopped, k.Namespace+"/"+id)
		}
		return nil
	})
	if len(stopped) > 0 {
		s.audit(r.Context(), c, "cancelled jobs", "jobs", stopped)
	}
	if ok {
		writeJSON(w, http.StatusOK, stopped)
	}
}

// serveQuarantine puts a GPU in quarantine until somebody lifts it, or lifts its quarantine:
// PUT /v1/gpu/<id>/{quarantine,lift}. The caller needs the right to write the variable
// nomad-pal/quarantine, which the agent writes with the caller's token.
func (s *server) serveQuarantine(w http.ResponseWriter, r *http.Request) {
	id, what := attr.GPUOf(r.PathValue("id")), r.PathValue("what")
	if what != "quarantine" && what != "lift" {
		http.NotFound(w, r)
		return
	}
	var in palapi.ControlRequest
	done, ok := s.bodies.decode(w, r, &in)
	if !ok {
		return
	}
	defer done()
	if len(in.Why) > palapi.LongestWhy || what == "quarantine" && in.Why == "" {
		http.Error(w, fmt.Sprintf("a quarantine has a reason of 1 to %d bytes", palapi.LongestWhy), http.StatusBadRequest)
		return
	}
	c, snapshot, ok := s.snapshotFor(w, r, (*caller).readsNodes)
	if !ok {
		return
	}
	known := slices.ContainsFunc(snapshot.GPUs(), func(g palapi.GPU) bool { return attr.GPUOf(g.ID) == id })
	var err error
	switch {
	case what == "lift":
		_, err = placer.LiftQuarantine(r.Context(), c.client, id) // also of a GPU that no node has now
	case known:
		err = placer.PutInQuarantine(r.Context(), c.client, palapi.LongestQuarantine, in.Why, id)
	}
	switch {
	case !known && (what == "quarantine" || errors.Is(err, placer.ErrNotQuarantined)):
		http.Error(w, fmt.Sprintf("no GPU %q", id), http.StatusNotFound)
		return
	case err != nil:
		refuse(w, needs(err, string(nomad.WriteVariables)))
		return
	}
	s.audit(r.Context(), c, "accepted a command for a GPU", "gpu", id, "what", what, "why", in.Why)
	p := s.agent.current.Load()
	if p != nil {
		p.Reread()
	}
	s.snapshots.changed()
	writeJSON(w, http.StatusOK, struct{}{})
}

// audit writes an entry with the name of the caller's token.
func (s *server) audit(ctx context.Context, c *caller, text string, more ...any) {
	by, err := c.name(ctx)
	if err != nil {
		by = "unknown"
	}
	s.agent.log.Named("audit").Info(text, append(more, "by", by)...)
}

// mostPriority is the highest priority that Nomad's configuration may allow (job_max_priority).
const mostPriority = 32766

// errPriority is the error for a priority that Nomad refuses (job_max_priority).
var errPriority = errors.New("Nomad refuses this priority")

// errNotQueued is the error for a command about a job that is not in the queue.
var errNotQueued = errors.New("the job is not in nomad-pal's queue")

// queues returns an error if the job is never in the queue. A command about such a job would have no
// effect. A parameterized or periodic job is never in the queue, but its runs are.
func queues(what string, job *api.Job) error {
	if what == "requeue" && cluster.Ended(job) {
		return fmt.Errorf("%w any more, because it has ended: run it again", errNotQueued)
	}
	if cluster.Template(job) {
		return fmt.Errorf("%w: %s", errNotQueued, reason.Reason{Kind: reason.Template, Cause: request.KindOfTemplate(job)})
	}
	if err := request.NeverGated(job); err != nil {
		return fmt.Errorf("%w: %w", errNotQueued, err)
	}
	return nil
}

// submits returns the job, or an error unless the caller may register the job's current version
// with this priority. If priority is 0, the job keeps its own priority.
func (c *caller) submits(ctx context.Context, k cluster.JobKey, priority int) (*api.Job, error) {
	if err := request.Addressable(k.ID); err != nil {
		return nil, fmt.Errorf("%w: %w", nomad.NoJob(k), err)
	}
	job, _, err := c.nomad.Jobs().Info(k.ID, (&api.QueryOptions{Namespace: k.Namespace}).WithContext(ctx))
	if nomad.StatusOf(err) == http.StatusNotFound {
		return nil, nomad.NoJob(k)
	}
	if err != nil {
		return nil, needs(err, fmt.Sprintf("the capability %q in namespace %q", "read-job", k.Namespace))
	}
	if cluster.Child(job) { // Nomad's HTTP API cannot register a child
		_, err := c.submits(ctx, cluster.TemplateOf(job), priority)
		return job, err
	}
	if priority > 0 {
		job.Priority = &priority
	}
	err = c.mayRegister(ctx, job)
	if why, ok := nomad.Invalid(err); ok && strings.Contains(why, "job priority must be") {
		return nil, fmt.Errorf("%w: %s", errPriority, why)
	}
	return job, needs(err, fmt.Sprintf("the capability %q in namespace %q", "submit-job", k.Namespace))
}

// mayRegister asks Nomad whether the caller may register the job, without registering it.
// mayRegister sends a registration with a modify index that no job has. Nomad first checks the job
// and the token, and then refuses the index. Nomad has no call that makes only this check, and a dry
// run needs other rights ("plan-job" or "submit-job") than a registration ("register-job" or
// "submit-job").
func (c *caller) mayRegister(ctx context.Context, job *api.Job) error {
	opts := &api.RegisterOptions{EnforceIndex: true, ModifyIndex: math.MaxUint64}
	w := (&api.WriteOptions{Namespace: *job.Namespace}).WithContext(ctx)
	_, _, err := c.nomad.Jobs().RegisterOpts(job, opts, w)
	switch {
	case err == nil:
		return fmt.Errorf("checking whether the token may register job %q: Nomad registered the job, although no version has the enforced index", *job.ID)
	case strings.Contains(err.Error(), api.RegisterEnforceIndexErrPrefix):
		return nil
	}
	return err
}

// name returns the name of the caller's token; "" if Nomad has no access control.
func (c *caller) name(ctx context.Context) (string, error) {
	self, err := c.token(ctx)
	if err != nil || self == nil {
		return "", err
	}
	return cmp.Or(self.Name, self.AccessorID), nil
}

// token reads the caller's token; nil if Nomad has no access control.
func (c *caller) token(ctx context.Context) (*api.ACLToken, error) {
	self, _, err := c.nomad.ACLTokens().Self((&api.QueryOptions{}).WithContext(ctx))
	switch {
	case nomad.StatusOf(err) == http.StatusBadRequest || err == nil && (self == nil || self.AccessorID == "acls-disabled"):
		return nil, nil
	case nomad.StatusOf(err) == http.StatusNotFound: // Nomad keeps no record of a workload identity
		name := identityOf(c.secret)
		if name != "" {
			return &api.ACLToken{Name: name, Type: workloadIdentity}, nil
		}
		return nil, fmt.Errorf("%w: Nomad does not know the token", errDenied)
	case err != nil:
		return nil, fmt.Errorf("reading the name of the caller's token: %w", err)
	}
	return self, nil
}

// workloadIdentity is the type that [caller.token] gives to the token of a Nomad task.
const workloadIdentity = "workload identity"

// identityOf returns the job of a workload identity, as namespace/id, or "" if the token is not a
// workload identity. identityOf does not check the token's signature, because Nomad has already
// accepted the token.
func identityOf(token string) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	var claims struct {
		Namespace string `json:"nomad_namespace"`
		Job       string `json:"nomad_job_id"`
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(text, &claims) != nil || claims.Job == "" {
		return ""
	}
	return claims.Namespace + "/" + claims.Job
}

// serveReread makes the placer read at once what operators have written to Nomad's variables:
// POST /v1/reread.
func (s *server) serveReread(w http.ResponseWriter, r *http.Request) {
	_, ok := s.judged(w, r, func(c *caller, ctx context.Context) error {
		if !c.operates(ctx) {
			return fmt.Errorf("%w: the token cannot read the variable nomad-pal/failures", errDenied)
		}
		return nil
	})
	p := s.agent.current.Load()
	switch {
	case !ok:
	case p == nil:
		refuse(w, errNotAtWork)
	default:
		p.Reread()
		s.snapshots.changed()
		writeJSON(w, http.StatusOK, struct{}{})
	}
}
