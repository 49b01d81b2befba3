// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"

	"github.com/hashicorp/nomad/api"
	"golang.org/x/sync/errgroup"

	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

// parallelReads is the maximum number of parallel requests for single nodes and jobs. By default,
// Nomad allows 100 connections per client.
const parallelReads = 16

// Resync reads everything again. Resync copies nodes and jobs from old if they have not changed.
// old may be nil.
//
// Nomad cannot return several lists from one snapshot, so the order of the requests matters. The
// list of jobs comes before the list of allocations. If the placer places a gang between the two
// requests, the gang's allocations have a newer job version than the list of jobs. readOutrun
// notices this, and reads the job again. If the allocations came first, the gang would appear to
// have no allocations, and its GPUs would appear to be free.
func (c *Client) Resync(ctx context.Context, old *cluster.State) (*cluster.State, error) {
	old = cmp.Or(old, cluster.NewState())
	s := old.Next()
	if err := c.readNodes(ctx, s, old); err != nil {
		return nil, fmt.Errorf("reading nodes: %w", Denied(err, ReadNodes))
	}
	if err := c.readJobs(ctx, s, old); err != nil {
		return nil, fmt.Errorf("reading jobs: %w", Denied(err, ListJobs))
	}
	if err := c.readAllocs(ctx, s); err != nil {
		return nil, fmt.Errorf("reading allocations: %w", Denied(err, ReadJob))
	}
	if err := c.readOutrun(ctx, s); err != nil {
		return nil, fmt.Errorf("reading jobs again: %w", Denied(err, ReadJob))
	}
	s.Follow(old)
	return s, nil
}

// everywhere returns the options for a query of all namespaces.
func everywhere(ctx context.Context) *api.QueryOptions {
	return (&api.QueryOptions{Namespace: api.AllNamespacesNamespace}).WithContext(ctx)
}

// readNodes reads the nodes with GPUs. The list contains the ModifyIndex of each node, so readNodes
// reads only nodes whose index differs from the index in old. If a node cannot be read, readNodes
// keeps the node's old state.
func (c *Client) readNodes(ctx context.Context, s, old *cluster.State) error {
	stubs, meta, err := c.listNodes(ctx)
	if err != nil {
		return err
	}
	nodes, errs, err := readEach(ctx, len(stubs), func(i int) (*api.Node, bool) {
		n := old.Nodes[stubs[i].ID] // already sanitized
		return n, n != nil && n.ModifyIndex == stubs[i].ModifyIndex
	}, func(ctx context.Context, i int) (*api.Node, error) { return c.node(ctx, stubs[i].ID) })
	s.TakeNodes(old, meta.LastIndex, stubs, nodes, errs)
	return err
}

// withGPUs is a filter expression that selects nodes with GPUs.
const withGPUs = `any NodeResources.Devices as d { d.Vendor == "` + attr.Vendor + `" and (d.Type == "` + attr.Type + `" or d.Type == "` + attr.SharedType + `") }`

// listNodes lists the nodes with GPUs, but without their resources. The resources take 10 kB per
// node. If a node has no resources, Nomad's filter fails, and so does the request for the whole
// list. If the filter fails, listNodes lists all nodes, with their resources.
func (c *Client) listNodes(ctx context.Context) (stubs []*cluster.NodeStub, meta *api.QueryMeta, err error) {
	q := (&api.QueryOptions{Filter: withGPUs}).WithContext(ctx)
	if meta, err = c.api.Raw().Query("/v1/nodes", &stubs, q); StatusOf(err) != http.StatusBadRequest {
		return slices.DeleteFunc(stubs, func(n *cluster.NodeStub) bool { return n == nil }), meta, err
	}
	q.Filter, q.Params = "", map[string]string{"resources": "true"}
	meta, err = c.api.Raw().Query("/v1/nodes", &stubs, q)
	return slices.DeleteFunc(stubs, func(n *cluster.NodeStub) bool { return !n.HasGPUs() }), meta, err
}

// node reads a node. node returns nil if Nomad does not have the node.
func (c *Client) node(ctx context.Context, id string) (*api.Node, error) {
	var p *cluster.NodePayload
	err := c.read("/v1/node/"+url.PathEscape(id), &p, (&api.QueryOptions{}).WithContext(ctx))
	if err != nil && !notFound(err) {
		return nil, err
	}
	return p.AsNode(), nil
}

// withDevices is a filter expression that selects jobs that request devices.
const withDevices = `any TaskGroups as g { any g.Tasks as t { t.Resources.Devices is not empty } }`

// listJobs lists the jobs that request devices. If Nomad's filter fails for one job, the request
// for the whole list fails. If the filter fails, listJobs lists all jobs, so that the caller reads
// every job.
func (c *Client) listJobs(ctx context.Context) (stubs []*cluster.JobStub, meta *api.QueryMeta, err error) {
	q := everywhere(ctx)
	q.Filter = withDevices
	if meta, err = c.api.Raw().Query("/v1/jobs", &stubs, q); StatusOf(err) == http.StatusBadRequest {
		q.Filter = ""
		meta, err = c.api.Raw().Query("/v1/jobs", &stubs, q)
	}
	return slices.DeleteFunc(stubs, func(j *cluster.JobStub) bool { return j == nil }), meta, err
}

// readJobs reads the jobs that request devices, in the same way as readNodes reads nodes. If the
// placer only assumes the form of a job (State.Assume), readJobs reads the job even if the job's
// index has not changed.
func (c *Client) readJobs(ctx context.Context, s, old *cluster.State) error {
	stubs, meta, err := c.listJobs(ctx)
	if err != nil {
		return err
	}
	jobs, errs, err := readEach(ctx, len(stubs), func(i int) (*api.Job, bool) { return old.KnownJob(stubs[i]) },
		func(ctx context.Context, i int) (*api.Job, error) { return c.Job(ctx, stubs[i].Key()) })
	s.TakeJobs(old, meta.LastIndex, stubs, jobs, errs)
	return err
}

const (
	// jobTries is how often readEach tries to read a job or node.
	jobTries = 2
	// unreadShare limits how many jobs or nodes may be unreadable. The limit is one, or
	// 1/unreadShare of all jobs or nodes, whichever is larger. Up to this limit, readEach keeps the
	// old state of unreadable jobs or nodes. If more are unreadable, Nomad itself has a problem.
	unreadShare = 20
)

// readEach reads n objects with one request each, except objects that have not changed. If an
// object cannot be read, readEach returns its old state. If too many objects cannot be read,
// readEach returns an error.
func readEach[T any](
	ctx context.Context, n int, known func(int) (was *T, current bool), read func(context.Context, int) (*T, error),
) (objects []*T, errs []error, err error) {
	objects, errs = make([]*T, n), make([]error, n)
	var failed atomic.Int64
	err = parallel(ctx, n, func(ctx context.Context, i int) error {
		was, current := known(i)
		for try := 0; !current && try < jobTries; try++ {
			objects[i], errs[i] = read(ctx, i)
			if errs[i] == nil {
				return nil
			}
		}
		objects[i] = was
		if !current && !cluster.Unreadable(errs[i]) && failed.Add(1) > max(1, int64(n/unreadShare)) {
			return errs[i]
		}
		return nil
	})
	return objects, errs, err
}

// readAllocs reads all allocations into the state.
func (c *Client) readAllocs(ctx context.Context, s *cluster.State) error {
	as, index, err := c.Allocs(ctx, everywhere(ctx))
	if err != nil {
		return err
	}
	s.TakeAllocs(index, as)
	return nil
}

// readOutrun reads a job again if one of the job's allocations has a newer job version than the
// list of jobs. The version is newer if the placer starts a gang between the requests for the two
// lists. With the old version of the job, it would appear that Nomad placed the gang without the
// placer.
func (c *Client) readOutrun(ctx context.Context, s *cluster.State) error {
	outrun := s.Outrun()
	jobs, errs := make([]*api.Job, len(outrun)), make([]error, len(outrun))
	err := parallel(ctx, len(outrun), func(ctx context.Context, i int) error {
		jobs[i], errs[i] = c.Job(ctx, outrun[i])
		return nil
	})
	for i, k := range outrun {
		switch {
		case errs[i] != nil:
			s.Unread[k] = errs[i]
		case jobs[i] != nil:
			s.PutJob(jobs[i])
		}
	}
	return err
}

// ReadStale reads allocations about which events contain too little. ReadStale reads two kinds:
// allocations of jobs that no longer exist, and allocations that have succeeded, but perhaps for an
// older version of their job. If Nomad refuses to return an allocation, ReadStale still reads the
// others.
func (c *Client) ReadStale(ctx context.Context, s *cluster.State) error {
	var errs []error
	for _, a := range slices.Concat(s.Orphans(), s.StaleVersions()) {
		var p cluster.AllocPayload
		_, err := c.api.Raw().Query("/v1/allocation/"+url.PathEscape(a.ID), &p, everywhere(ctx))
		switch {
		case notFound(err):
			s.Vanished(a)
		case err != nil:
			errs = append(errs, fmt.Errorf("reading allocation %q: %w", a.ID, Denied(err, ReadJob)))
			if StatusOf(err) == 0 {
				return errors.Join(errs...) // Nomad did not answer
			}
		default:
			s.PutAlloc(p.AsAlloc())
		}
	}
	return errors.Join(errs...)
}

// parallel calls f for the numbers from 0 to n-1. parallel runs at most parallelReads calls at the
// same time, and stops when a call fails. If a call panics, parallel waits for the running calls
// and then panics itself. The caller can then recover from the panic. Each goroutine makes many
// calls, because a new goroutine is slow at first. The stack of a new goroutine must grow when the
// goroutine reads its first answer.
func parallel(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	workers, running := errgroup.WithContext(ctx)
	var next atomic.Int64
	var panicked atomic.Pointer[any]
	for range min(n, parallelReads) {
		workers.Go(func() (err error) {
			defer func() {
				r := recover()
				if r != nil {
					panicked.Store(&r)
					err = context.Canceled // stops the other calls
				}
			}()
			for err == nil && running.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return nil
				}
				err = f(running, i)
			}
			return err
		})
	}
	err := workers.Wait()
	r := panicked.Load()
	if r != nil {
		panic(*r)
	}
	if err != nil {
		return err
	}
	return context.Cause(ctx)
}
