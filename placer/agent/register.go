// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// submitTimeout is how long an author waits for the placer's decision.
const submitTimeout = 5 * time.Second

// serveRegister registers a gated job like Nomad's PUT /v1/jobs, and chooses its GPUs if it can
// start at once. Request and answer have the same form as in Nomad's API. The agent registers the
// job with the caller's token, so Nomad decides whether the caller may register it. Status 503
// means that nothing was done.
func (s *server) serveRegister(w http.ResponseWriter, r *http.Request) {
	var in api.JobRegisterRequest
	done, ok := s.bodies.decode(w, r, &in)
	if !ok {
		return
	}
	defer done()
	job, err := sentJob(r, in.Job)
	if err == nil && !rewrite.Gated(job) {
		err = fmt.Errorf("job %q has no gate: register it with Nomad", *job.ID)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if s.misdirected(w, r, job) {
		return
	}
	p := s.agent.current.Load()
	if p == nil {
		http.Error(w, "this agent is not the active one", http.StatusServiceUnavailable)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), submitTimeout)
	defer cancel()
	author := author{s.authors, tokenOf(r)}
	if err := s.rights.check(author.token, *job.Namespace, time.Now(), func() error { return author.may(ctx, job, in) }); err != nil {
		refuseAs(w, err)
		return
	}
	c, err := s.caller(r)
	if err == nil {
		err = s.sayUser(ctx, c, job)
	}
	if err != nil {
		refuseAs(w, err)
		return
	}
	resp, err := p.Submit(ctx, job, author.register(in))
	if err != nil {
		refuseAs(w, err)
		return
	}
	s.snapshots.changed() // so that the author's next request shows the job
	writeJSON(w, http.StatusOK, resp)
}

// misdirected refuses a job for a region that this agent does not serve. Nomad would forward the job
// to that region, with the GPUs that the placer chose in its own.
func (s *server) misdirected(w http.ResponseWriter, r *http.Request, job *api.Job) bool {
	region := r.URL.Query().Get("region") // Nomad prefers it to the job's
	if region == "" && *job.Region != api.GlobalRegion {
		region = *job.Region // if a job names the region "global", Nomad does not forward it
	}
	if region == "" {
		return false
	}
	client, err := s.file.Nomad.connectAs("")
	if err != nil {
		return false
	}
	own, err := client.Status().Leader()
	if err != nil {
		return false
	}
	leader, err := client.Status().RegionLeader(region)
	if leader == own || err != nil && !nomad.NoRegion(err) {
		return false
	}
	http.Error(w, fmt.Sprintf("job %q is for region %q, but this agent serves another region", *job.ID, region), http.StatusMisdirectedRequest)
	return true
}

// author registers jobs with the token of a request's sender.
type author struct {
	nomad *api.Client
	token string
}

// may asks Nomad whether the author may register the job, without registering it. may sends a
// registration with a modify index that no job has. Nomad first checks the job and the token, and
// then refuses the index. Nomad has no call that makes only this check, and a dry run needs other
// rights ("plan-job" or "submit-job") than a registration ("register-job" or "submit-job").
func (a author) may(ctx context.Context, job *api.Job, request api.JobRegisterRequest) error {
	opts := &api.RegisterOptions{EnforceIndex: true, ModifyIndex: math.MaxUint64, PolicyOverride: request.PolicyOverride}
	w := (&api.WriteOptions{Namespace: *job.Namespace, AuthToken: a.token}).WithContext(ctx)
	_, _, err := a.nomad.Jobs().RegisterOpts(job, opts, w)
	switch {
	case err == nil:
		return fmt.Errorf("checking whether the token may register job %q: Nomad registered the job, although no version has the enforced index", *job.ID)
	case strings.Contains(err.Error(), api.RegisterEnforceIndexErrPrefix):
		return nil
	case !errors.As(err, new(api.UnexpectedResponseError)):
		return fmt.Errorf("%w: %s", placer.ErrNotSubmitted, publicError(err))
	}
	return err
}

// register returns a function that registers the job with the author's options. isNew means that
// the placer does not have the job. With isNew, an enforced index other than 0 is a conflict,
// because the author expects that the job exists.
func (a author) register(request api.JobRegisterRequest) placer.Register {
	return func(ctx context.Context, job *api.Job, isNew bool) (*api.JobRegisterResponse, error) {
		opts := &api.RegisterOptions{
			EnforceIndex: request.EnforceIndex, ModifyIndex: request.JobModifyIndex,
			PolicyOverride: request.PolicyOverride, PreserveCounts: request.PreserveCounts,
			PreserveResources: request.PreserveResources, EvalPriority: request.EvalPriority,
			Submission: request.Submission,
		}
		if isNew && opts.EnforceIndex && opts.ModifyIndex != 0 {
			return nil, nomad.ErrConflict
		}
		opts.EnforceIndex = opts.EnforceIndex || isNew
		w := (&api.WriteOptions{Namespace: *job.Namespace, AuthToken: a.token}).WithContext(ctx)
		resp, _, err := a.nomad.Jobs().RegisterOpts(job, opts, w)
		if isNew && err != nil && strings.Contains(err.Error(), api.RegisterEnforceIndexErrPrefix) {
			return nil, fmt.Errorf("registering job %q: %w", *job.ID, nomad.ErrConflict)
		}
		return resp, nomad.MarkUnknown(err)
	}
}

// refuseAs answers the request with the error that Nomad returned to the agent.
func refuseAs(w http.ResponseWriter, err error) {
	if crowded(w, err) {
		return
	}
	var unexpected api.UnexpectedResponseError
	switch {
	case errors.Is(err, placer.ErrNotSubmitted):
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	case denied(err):
		http.Error(w, err.Error(), http.StatusForbidden)
	case errors.As(err, &unexpected) && unexpected.StatusCode() != 0:
		http.Error(w, unexpected.Body(), unexpected.StatusCode())
	default:
		http.Error(w, publicError(err), http.StatusBadGateway)
	}
}

// rightsAge is how long the agent caches that a token may register jobs in a namespace. The check
// keeps a job out of the queue if its author could not register it. Nomad checks the token again at
// the registration itself. The agent caches the result because Nomad logs each check as a failed
// request.
const rightsAge = 30 * time.Second

// rights caches the tokens that may register jobs, by namespace. Other tokens are not cached,
// because they would use memory, and a newly granted right should count at once.
type rights struct {
	mu    sync.Mutex
	known map[[sha256.Size]byte]time.Time
}

// check returns nil if the cache has the token for this namespace, and otherwise calls ask, which
// returns an error if the token may not register jobs.
func (r *rights) check(token, namespace string, now time.Time, ask func() error) error {
	key := sha256.Sum256([]byte(token + "\x00" + namespace))
	if r.knows(key, now) {
		return nil
	}
	if err := ask(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil {
		r.known = map[[sha256.Size]byte]time.Time{}
	}
	maps.DeleteFunc(r.known, func(_ [sha256.Size]byte, at time.Time) bool { return now.Sub(at) >= rightsAge })
	r.known[key] = now
	return nil
}

func (r *rights) knows(key [sha256.Size]byte, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok := r.known[key]
	return ok && now.Sub(at) < rightsAge
}
