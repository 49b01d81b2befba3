// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

// Client talks to one Nomad cluster. A Client is safe for concurrent use.
type Client struct {
	api *api.Client
	// namespace is the namespace of the placer's variables.
	namespace string
	// children registers dispatched and periodic jobs, which Nomad's HTTP API cannot update. If
	// children is nil, the client cannot update such jobs.
	children *Children
}

// NewClient returns a client. The client stores the placer's variables in the given namespace (""
// means "default"). The functions in through wrap the HTTP transport of the client.
func NewClient(cfg *api.Config, namespace string, through ...func(http.RoundTripper) http.RoundTripper) (*Client, error) {
	if u, err := url.Parse(cfg.Address); cfg.Address != "" && (err != nil || u.Scheme == "" || u.Host+u.Path == "") {
		return nil, fmt.Errorf("the address %q of Nomad (NOMAD_ADDR) is not a URL; example: http://127.0.0.1:4646", cfg.Address)
	}
	own := *cfg
	if own.HttpClient == nil {
		c, err := HTTPClient(cfg, 0)
		if err != nil {
			return nil, err
		}
		own.HttpClient = c
	}
	limited := *own.HttpClient
	inner := cmp.Or(limited.Transport, http.DefaultTransport)
	next := inner
	for _, t := range through {
		next = t(next)
	}
	limited.Transport = deadlines{next, inner}
	own.HttpClient = &limited
	c, err := api.NewClient(&own)
	if err != nil {
		return nil, fmt.Errorf("connecting to Nomad at %q: %w", cfg.Address, err)
	}
	return &Client{api: c, namespace: cmp.Or(namespace, "default")}, nil
}

// Config returns the configuration for a connection to Nomad. The values in over take precedence
// over Nomad's environment variables. The configuration has no namespace, because every request
// names its own namespace.
func Config(over api.Config) *api.Config {
	cfg := api.DefaultConfig()
	cfg.Address, cfg.Region = cmp.Or(over.Address, cfg.Address), cmp.Or(over.Region, cfg.Region)
	cfg.SecretID, cfg.Namespace = cmp.Or(over.SecretID, cfg.SecretID), ""
	t, o := cfg.TLSConfig, over.TLSConfig
	t.CACert, t.CAPath = cmp.Or(o.CACert, t.CACert), cmp.Or(o.CAPath, t.CAPath)
	t.ClientCert, t.ClientKey = cmp.Or(o.ClientCert, t.ClientCert), cmp.Or(o.ClientKey, t.ClientKey)
	t.TLSServerName, t.Insecure = cmp.Or(o.TLSServerName, t.TLSServerName), t.Insecure || o.Insecure
	return cfg
}

// API returns the client from Nomad's own API module.
func (c *Client) API() *api.Client { return c.api }

// ErrConflict means that somebody else has changed the job since the caller read it.
var ErrConflict = errors.New("the job changed meanwhile")

// Register writes a job that the caller read at the given JobModifyIndex. If the job has changed
// since the caller read it, Register fails with [ErrConflict]. If the error is [ErrUnknownOutcome],
// Nomad may have written the job, or may still write it. If Nomad has the jobspec that the author
// submitted, the new version keeps it as its source.
func (c *Client) Register(ctx context.Context, job *api.Job, index uint64) (*api.JobRegisterResponse, error) {
	return c.RegisterWith(ctx, job, c.Source(ctx, job), index)
}

// RegisterWith is like Register, but the caller provides the source.
func (c *Client) RegisterWith(ctx context.Context, job *api.Job, source *api.JobSubmission, index uint64) (*api.JobRegisterResponse, error) {
	if cluster.Child(job) {
		return c.registerChild(ctx, job, index)
	}
	opts := &api.RegisterOptions{EnforceIndex: true, ModifyIndex: index, Submission: source}
	w := (&api.WriteOptions{Namespace: *job.Namespace}).WithContext(ctx)
	resp, _, err := c.api.Jobs().RegisterOpts(job, opts, w)
	switch {
	case err != nil && strings.Contains(err.Error(), api.RegisterEnforceIndexErrPrefix):
		return nil, fmt.Errorf("registering job %q: %w", *job.ID, ErrConflict)
	case err != nil:
		return nil, fmt.Errorf("registering job %q: %w", *job.ID, MarkUnknown(Denied(err, SubmitJob)))
	}
	return resp, nil
}

// sourceWithin is the longest time for which a registration waits for the job's source. The time is
// short, because the source must not delay the start of a gang.
const sourceWithin = 2 * time.Second

// Source returns the jobspec that the author submitted for this version of the job, or nil if Nomad
// does not have it.
func (c *Client) Source(ctx context.Context, job *api.Job) *api.JobSubmission {
	if job.Version == nil || cluster.Child(job) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, sourceWithin)
	defer cancel()
	q := (&api.QueryOptions{Namespace: *job.Namespace}).WithContext(ctx)
	s, _, err := c.api.Jobs().Submission(*job.ID, int(*job.Version), q)
	if err != nil {
		return nil // no source, or no answer in time: do not delay the placement
	}
	return s
}

// Job reads a job. Job returns nil if Nomad does not have the job.
func (c *Client) Job(ctx context.Context, k cluster.JobKey) (*api.Job, error) {
	job := &api.Job{}
	err := c.read("/v1/job/"+url.PathEscape(k.ID), job, (&api.QueryOptions{Namespace: k.Namespace}).WithContext(ctx))
	if notFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading job %q: %w", k.ID, Denied(err, ReadJob))
	}
	if err := cluster.CheckStored(job); err != nil {
		return nil, fmt.Errorf("reading job %q: %w", k.ID, err)
	}
	return job, nil
}

// answers is a pool of buffers for Nomad's answers, because the client often reads thousands of
// jobs, one after another.
var answers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// read reads one object into a buffer from the pool. Nomad's API module would allocate a new buffer
// for each object.
func (c *Client) read(path string, object any, q *api.QueryOptions) error {
	body, err := c.api.Raw().Response(path, q)
	if err != nil {
		return err
	}
	defer body.Close()
	answer := answers.Get().(*bytes.Buffer)
	defer answers.Put(answer)
	answer.Reset()
	if _, err := answer.ReadFrom(body); err != nil {
		return err
	}
	return json.Unmarshal(answer.Bytes(), object)
}

// Versions returns the versions of a job that Nomad still keeps. The keys are the version numbers.
func (c *Client) Versions(ctx context.Context, k cluster.JobKey) (map[uint64]*api.Job, error) {
	jobs, _, _, err := c.api.Jobs().Versions(k.ID, false, (&api.QueryOptions{Namespace: k.Namespace}).WithContext(ctx))
	if err != nil && !notFound(err) {
		return nil, fmt.Errorf("reading the versions of job %q: %w", k.ID, Denied(err, ReadJob))
	}
	out := map[uint64]*api.Job{}
	for _, j := range jobs {
		if cluster.CheckStored(j) == nil { // a version that cannot be read counts as missing
			out[*j.Version] = j
		}
	}
	return out, nil
}

// AddVersionOf adds the job version of an allocation to the map versions, unless the map already
// contains this version. AddVersionOf reads the version from the allocation. An allocation contains
// its job version even if Nomad no longer keeps this version.
func (c *Client) AddVersionOf(ctx context.Context, versions map[uint64]*api.Job, a *cluster.Alloc) error {
	if a.Version != nil && versions[*a.Version] != nil {
		return nil
	}
	var full struct{ Job *api.Job }
	err := c.read("/v1/allocation/"+url.PathEscape(a.ID), &full, (&api.QueryOptions{Namespace: a.Job.Namespace}).WithContext(ctx))
	if err != nil && !notFound(err) {
		return fmt.Errorf("reading the job version of allocation %q of job %q: %w", a.ID, a.Job.ID, Denied(err, ReadJob))
	}
	if full.Job != nil && cluster.CheckStored(full.Job) == nil && versions[*full.Job.Version] == nil {
		versions[*full.Job.Version] = full.Job
	}
	return nil
}

// JobAllocs reads the allocations of one job. Each result contains its job version.
func (c *Client) JobAllocs(ctx context.Context, k cluster.JobKey) ([]*cluster.Alloc, error) {
	q := (&api.QueryOptions{Namespace: k.Namespace}).WithContext(ctx)
	var ps []*cluster.AllocPayload
	_, err := c.api.Raw().Query("/v1/job/"+url.PathEscape(k.ID)+"/allocations", &ps, q)
	if err != nil && !notFound(err) {
		return nil, fmt.Errorf("reading the allocations of job %q: %w", k.ID, Denied(err, ReadJob))
	}
	var as []*cluster.Alloc
	for _, p := range ps {
		if p == nil {
			continue
		}
		a := p.AsAlloc()
		if a.Version == nil {
			a.Version = new(uint64) // Nomad omits the version only if it is 0
		}
		as = append(as, a)
	}
	return as, nil
}

// Allocs reads all allocations of the query's namespace, with their GPUs, in one list. Allocs also
// returns Nomad's index of the list.
func (c *Client) Allocs(ctx context.Context, q *api.QueryOptions) ([]*cluster.Alloc, uint64, error) {
	q = q.WithContext(ctx)
	q.Params = map[string]string{"resources": "true"}
	var ps []*cluster.AllocPayload
	meta, err := c.api.Raw().Query("/v1/allocations", &ps, q)
	if err != nil {
		return nil, 0, err
	}
	as := make([]*cluster.Alloc, 0, len(ps))
	for _, p := range ps {
		if p != nil {
			as = append(as, p.AsAlloc())
		}
	}
	return as, meta.LastIndex, nil
}

// StopAlloc stops an allocation. After the stop, Nomad tries to replace the allocation.
func (c *Client) StopAlloc(ctx context.Context, k cluster.JobKey, id string) error {
	q := (&api.QueryOptions{Namespace: k.Namespace}).WithContext(ctx)
	_, err := c.api.Allocations().Stop(&api.Allocation{ID: id, Namespace: k.Namespace}, q)
	if err != nil {
		return fmt.Errorf("stopping allocation %q of job %q: %w", id, k.ID, Denied(err, AllocLifecycle))
	}
	return nil
}

// Evaluate asks Nomad's scheduler to evaluate the job again.
func (c *Client) Evaluate(ctx context.Context, k cluster.JobKey) error {
	w := (&api.WriteOptions{Namespace: k.Namespace}).WithContext(ctx)
	if _, _, err := c.api.Jobs().EvaluateWithOpts(k.ID, api.EvalOptions{}, w); err != nil {
		return fmt.Errorf("evaluating job %q: %w", k.ID, Denied(err, ReadJob))
	}
	return nil
}

// DryRun asks Nomad's scheduler whether it could place the whole job now. If Nomad could not place
// the job, the answer contains the reasons.
func (c *Client) DryRun(ctx context.Context, job *api.Job) (*api.JobPlanResponse, error) {
	if cluster.Child(job) && c.children != nil {
		resp, err := c.children.Plan(ctx, job)
		return resp, NoDryRun(err)
	}
	w := (&api.WriteOptions{Namespace: *job.Namespace}).WithContext(ctx)
	resp, _, err := c.api.Jobs().PlanOpts(job, &api.PlanOptions{Diff: false}, w)
	if err != nil {
		return nil, fmt.Errorf("planning job %q: %w", *job.ID, NoDryRun(Denied(err, SubmitJob)))
	}
	return resp, nil
}

// ErrNoDryRun means that Nomad refuses a dry run because the token is a workload identity, even
// though the token has the right to plan the job.
var ErrNoDryRun = errors.New("dry runs are not possible with a workload identity")

// NoDryRun returns ErrNoDryRun if err is Nomad's refusal of a dry run with a workload identity.
// NoDryRun returns any other error unchanged. Nomad 1.11.3 first checks the job and the token's
// right to plan it. Then Nomad fails because it looks up the token among the ACL tokens, and a
// workload identity is not an ACL token.
func NoDryRun(err error) error {
	if err != nil && strings.Contains(err.Error(), "acl token lookup failed") {
		return ErrNoDryRun
	}
	return err
}

func notFound(err error) bool { return StatusOf(err) == http.StatusNotFound }

// ErrNoJob means that Nomad does not have the job.
var ErrNoJob = errors.New("no job")

// NoJob returns an error that wraps [ErrNoJob] and contains the job's id and namespace.
func NoJob(k cluster.JobKey) error {
	return fmt.Errorf("%w %q in namespace %q", ErrNoJob, k.ID, k.Namespace)
}

// StatusOf returns the HTTP status of a refusal by Nomad or an agent. For any other error, StatusOf
// returns 0.
func StatusOf(err error) int {
	if unexpected, ok := errors.AsType[api.UnexpectedResponseError](err); ok {
		return unexpected.StatusCode()
	}
	return 0
}

// Evaluations reads the evaluations of a job. The newest evaluation comes first.
func (c *Client) Evaluations(ctx context.Context, k cluster.JobKey) ([]*api.Evaluation, error) {
	var es []*api.Evaluation
	_, err := c.api.Raw().Query("/v1/job/"+url.PathEscape(k.ID)+"/evaluations", &es, (&api.QueryOptions{Namespace: k.Namespace}).WithContext(ctx))
	if err != nil && !notFound(err) {
		return nil, fmt.Errorf("reading the evaluations of job %q: %w", k.ID, Denied(err, ReadJob))
	}
	es = slices.DeleteFunc(es, func(e *api.Evaluation) bool { return e == nil })
	slices.SortFunc(es, func(a, b *api.Evaluation) int { return cmp.Compare(b.CreateIndex, a.CreateIndex) })
	return es, nil
}

// Deploys reports whether the newest deployment of a job is still active.
func (c *Client) Deploys(ctx context.Context, k cluster.JobKey) (bool, error) {
	d, err := c.Deployment(ctx, k)
	return Deploying(d), err
}

// Deploying reports whether a deployment is still active, which means that it has not succeeded,
// failed or been cancelled.
func Deploying(d *api.Deployment) bool {
	return d != nil && !slices.Contains([]string{api.DeploymentStatusSuccessful, api.DeploymentStatusFailed, api.DeploymentStatusCancelled}, d.Status)
}

// DeploymentFailed reports whether d, the newest deployment of a job, is of the job's current version and has
// failed.
func DeploymentFailed(d *api.Deployment, job *api.Job) bool {
	return d != nil && d.Status == api.DeploymentStatusFailed && d.JobVersion == *job.Version
}

// ErrDeploymentFailed means that a job cannot be released, because its current version failed its
// deployment.
var ErrDeploymentFailed = errors.New("failed its deployment, and a release would make Nomad deploy this version again")

// MayRelease returns an error if the deployment of the service's current version has failed. A
// release registers a new version with the same tasks, which Nomad would deploy.
func (c *Client) MayRelease(ctx context.Context, job *api.Job) error {
	if *job.Type != api.JobTypeService {
		return nil
	}
	d, err := c.Deployment(ctx, cluster.KeyOf(job))
	if err != nil || !DeploymentFailed(d, job) {
		return nil
	}
	return fmt.Errorf("job %q: version %d %w: first run a version that works, or revert to one (nomad job revert)", *job.ID, *job.Version, ErrDeploymentFailed)
}

// VersionsOfAllocs returns the job versions that a job's allocations run. The keys are allocation
// ids.
func (c *Client) VersionsOfAllocs(ctx context.Context, k cluster.JobKey) (map[string]uint64, error) {
	all, err := c.JobAllocs(ctx, k)
	if err != nil {
		return nil, err
	}
	versions := map[string]uint64{}
	for _, a := range all {
		if a.Version != nil {
			versions[a.ID] = *a.Version
		}
	}
	return versions, nil
}

// Deployment returns the newest deployment of a job, or nil if the job has none.
func (c *Client) Deployment(ctx context.Context, k cluster.JobKey) (*api.Deployment, error) {
	var d *api.Deployment
	_, err := c.api.Raw().Query("/v1/job/"+url.PathEscape(k.ID)+"/deployment", &d, (&api.QueryOptions{Namespace: k.Namespace}).WithContext(ctx))
	if err != nil && !notFound(err) {
		return nil, fmt.Errorf("reading the deployment of job %q: %w", k.ID, Denied(err, ReadJob))
	}
	return d, nil
}

// Namespace returns the namespace that contains the placer's variables.
func (c *Client) Namespace() string { return c.namespace }

// ReadNodes returns a state that contains only the nodes.
func (c *Client) ReadNodes(ctx context.Context) (*cluster.State, error) {
	s := cluster.NewState()
	if err := c.readNodes(ctx, s, cluster.NewState()); err != nil {
		return nil, fmt.Errorf("reading nodes: %w", Denied(err, ReadNodes))
	}
	return s, nil
}

// Runs lists the runs (children) of a parameterized or periodic job.
func (c *Client) Runs(ctx context.Context, k cluster.JobKey) ([]*api.JobListStub, error) {
	stubs, _, err := c.api.Jobs().List((&api.QueryOptions{Namespace: k.Namespace, Prefix: k.ID + "/"}).WithContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("listing the runs of job %q: %w", k.ID, Denied(err, ListJobs))
	}
	return slices.DeleteFunc(stubs, func(s *api.JobListStub) bool { return s.ParentID != k.ID }), nil
}

// Deregister stops a job. If purge is true, Nomad also deletes the job. If Nomad does not have the
// job, Deregister returns no error. If somebody else purges the job at the same time, Nomad's state
// store fails with "job not found" (an error 500 on 1.11.3). Deregister ignores this error, too.
func (c *Client) Deregister(ctx context.Context, k cluster.JobKey, purge bool) error {
	w := (&api.WriteOptions{Namespace: k.Namespace}).WithContext(ctx)
	_, _, err := c.api.Jobs().Deregister(k.ID, purge, w)
	if err != nil && !notFound(err) && !strings.Contains(err.Error(), "DeleteJob failed: job not found") {
		return fmt.Errorf("stopping job %q: %w", k.ID, Denied(err, SubmitJob))
	}
	return nil
}
