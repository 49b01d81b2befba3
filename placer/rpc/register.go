// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package rpc registers dispatched and periodic jobs through the RPC port of Nomad's servers.
// Nomad's HTTP API refuses to update a dispatched job, and makes a periodic job forget its parent.
// The RPC port has neither of these problems.
//
// The package sends a job back as the generic map that the server returned, after it has replaced
// the constraints and counts by the placer's. So the job keeps any fields that this program does
// not know. The package never registers a job that was dispatched with a payload, because the
// registration would lose the payload.
//
// What must stay true when you change this package: transfer copies everything that package rewrite
// changes in a dispatched or periodic job, and nothing else.
package rpc

import (
	"context"
	"crypto/tls"
	"fmt"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

// Servers contains the RPC addresses of the servers of a region.
type Servers struct {
	// Addresses have the form host:port. The addresses are tried in order.
	Addresses []string
	// If Region is "", each call goes to the region of the server that gets it.
	Region string
	Token  string
	// TLS is nil if the servers accept connections without TLS. ServerName must be
	// server.<region>.nomad, unless the certificates contain other names.
	TLS *tls.Config
}

// envelope contains the fields that all calls have. The names of the fields come from Nomad's own
// structs.
type envelope struct {
	Region, Namespace, AuthToken string
}

type getJob struct {
	JobID string
	envelope
}

type registerJob struct {
	Job            map[string]any
	EnforceIndex   bool
	JobModifyIndex uint64
	envelope
}

// Register writes the constraints, affinities and counts of job into the job that the servers have.
// index is the index at which the caller read job. Register returns the new index. If the job has
// changed, Register returns [nomad.ErrConflict].
func (s *Servers) Register(ctx context.Context, job *api.Job, index uint64) (uint64, error) {
	newIndex, err := s.register(ctx, job, index)
	switch {
	case err != nil && strings.Contains(err.Error(), api.RegisterEnforceIndexErrPrefix):
		return 0, fmt.Errorf("registering job %q: %w", *job.ID, nomad.ErrConflict)
	case err != nil && strings.Contains(err.Error(), "Permission denied"):
		return 0, fmt.Errorf("registering job %q: %w\nThe token lacks %s, or %s", *job.ID, err, nomad.ReadJob, nomad.SubmitJob)
	case err != nil:
		return 0, fmt.Errorf("registering job %q: %w", *job.ID, err)
	}
	return newIndex, nil
}

func (s *Servers) register(ctx context.Context, job *api.Job, index uint64) (uint64, error) {
	c, err := s.dial(ctx)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	full, err := s.rewritten(ctx, c, job, index)
	if err != nil {
		return 0, err
	}
	var done struct{ JobModifyIndex uint64 }
	args := registerJob{Job: full, EnforceIndex: true, JobModifyIndex: index, envelope: s.common(job)}
	if err := c.call(ctx, "Job.Register", args, &done); err != nil {
		return 0, fmt.Errorf("%w: %w", nomad.ErrUnknownOutcome, err) // Register handles the server's refusals
	}
	return done.JobModifyIndex, nil
}

// rewritten returns the servers' version of job after replacing its constraints and counts by those
// of job.
func (s *Servers) rewritten(ctx context.Context, c *conn, job *api.Job, index uint64) (map[string]any, error) {
	var got struct{ Job map[string]any }
	if err := c.call(ctx, "Job.GetJob", getJob{JobID: *job.ID, envelope: s.common(job)}, &got); err != nil {
		return nil, err
	}
	if got.Job == nil {
		return nil, nomad.ErrConflict // the job was purged
	}
	if at, ok := number(got.Job["JobModifyIndex"]); !ok || at != index {
		return nil, nomad.ErrConflict
	}
	if err := dropEmptyPayload(got.Job); err != nil {
		return nil, err
	}
	return got.Job, transfer(got.Job, job)
}

func (s *Servers) common(job *api.Job) envelope {
	return envelope{Region: s.region(job), Namespace: *job.Namespace, AuthToken: s.Token}
}

func (s *Servers) region(job *api.Job) string {
	if s.Region == "" && job.Region != nil {
		return *job.Region
	}
	return s.Region
}

// dropEmptyPayload replaces an empty payload by nil, because a registration requires nil. The
// servers store payloads in compressed form, in which an empty payload is one zero byte.
func dropEmptyPayload(job map[string]any) error {
	switch payload := job["Payload"].(type) {
	case nil:
	case string:
		if payload != "" && payload != "\x00" {
			return cluster.ErrPayload
		}
	case []byte:
		s := string(payload)
		if s != "" && s != "\x00" {
			return cluster.ErrPayload
		}
	default:
		return fmt.Errorf("the job's payload is a %T: %w", payload, cluster.ErrPayload)
	}
	job["Payload"] = nil
	return nil
}

func number(v any) (uint64, bool) {
	switch n := v.(type) {
	case uint64:
		return n, true
	case int64:
		return uint64(n), n >= 0
	}
	return 0, false
}

type planJob struct {
	Job map[string]any
	envelope
}

// refusal contains the fields of Nomad's metrics that explain why Nomad cannot place a group.
type refusal struct {
	NodesEvaluated, NodesFiltered, NodesExhausted int
	ConstraintFiltered, DimensionExhausted        map[string]int
}

// Plan asks Nomad's scheduler whether it could place the whole job. Plan does not use the HTTP API,
// which would treat a dispatched job as a parameterized job. Nomad places no allocations of
// parameterized jobs.
func (s *Servers) Plan(ctx context.Context, job *api.Job) (*api.JobPlanResponse, error) {
	failed, err := s.plan(ctx, job)
	if err != nil {
		return nil, fmt.Errorf("planning job %q: %w", *job.ID, err)
	}
	resp := &api.JobPlanResponse{FailedTGAllocs: map[string]*api.AllocationMetric{}}
	for group, r := range failed {
		resp.FailedTGAllocs[group] = &api.AllocationMetric{
			NodesEvaluated: r.NodesEvaluated, NodesFiltered: r.NodesFiltered, NodesExhausted: r.NodesExhausted,
			ConstraintFiltered: r.ConstraintFiltered, DimensionExhausted: r.DimensionExhausted,
		}
	}
	return resp, nil
}

func (s *Servers) plan(ctx context.Context, job *api.Job) (map[string]refusal, error) {
	c, err := s.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	full, err := s.rewritten(ctx, c, job, *job.JobModifyIndex)
	if err != nil {
		return nil, err
	}
	var got struct{ FailedTGAllocs map[string]refusal }
	err = c.call(ctx, "Job.Plan", planJob{Job: full, envelope: s.common(job)}, &got)
	return got.FailedTGAllocs, err
}

// transfer copies the constraints, affinities and counts of one job to another, and removes scaling
// blocks that the first job does not have. transfer changes nothing else. Both jobs must have the
// same groups, tasks and devices, in the same order.
func transfer(to map[string]any, from *api.Job) error {
	to["Constraints"] = from.Constraints
	groups, err := list(to, "TaskGroups", len(from.TaskGroups))
	if err != nil {
		return err
	}
	for i, g := range from.TaskGroups {
		if err := transferGroup(groups[i], g); err != nil {
			return err
		}
	}
	return nil
}

func transferGroup(to map[string]any, from *api.TaskGroup) error {
	if to["Name"] != *from.Name {
		return fmt.Errorf("group %q is named %v on the server", *from.Name, to["Name"])
	}
	to["Constraints"], to["Affinities"] = from.Constraints, from.Affinities
	to["Count"] = *from.Count // differs for elastic gangs, and in dry runs of some members
	if from.Scaling == nil {
		delete(to, "Scaling") // see [rewrite.PinAlone]
	}
	tasks, err := list(to, "Tasks", len(from.Tasks))
	if err != nil {
		return err
	}
	for i, t := range from.Tasks {
		if tasks[i]["Name"] != t.Name {
			return fmt.Errorf("task %q is named %v on the server", t.Name, tasks[i]["Name"])
		}
		if t.Resources == nil || len(t.Resources.Devices) == 0 {
			continue
		}
		if err := transferDevices(tasks[i], t); err != nil {
			return fmt.Errorf("task %q: %w", t.Name, err)
		}
	}
	return nil
}

func transferDevices(to map[string]any, from *api.Task) error {
	resources, ok := to["Resources"].(map[string]any)
	if !ok {
		return fmt.Errorf("the server's job has no resources")
	}
	devices, err := list(resources, "Devices", len(from.Resources.Devices))
	if err != nil {
		return err
	}
	for i, d := range from.Resources.Devices {
		if devices[i]["Name"] != d.Name {
			return fmt.Errorf("device %q is named %v on the server", d.Name, devices[i]["Name"])
		}
		devices[i]["Constraints"], devices[i]["Affinities"] = d.Constraints, d.Affinities
	}
	return nil
}

// list returns the list under a key. The list must have exactly the given number of elements.
func list(m map[string]any, key string, want int) ([]map[string]any, error) {
	values, _ := m[key].([]any)
	if len(values) != want {
		return nil, fmt.Errorf("the server's job has %d %s, want %d", len(values), key, want)
	}
	out := make([]map[string]any, want)
	for i, v := range values {
		e, ok := v.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%s of the server's job contains a %T", key, v)
		}
		out[i] = e
	}
	return out, nil
}
