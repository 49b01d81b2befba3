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

// parallelReads bounds the requests under way while reading nodes and jobs one
// by one; Nomad allows 100 connections per client by default.
const parallelReads = 16

// Resync reads everything again. Nodes and jobs that have not changed since old
// are taken from there instead of being read; old may be nil.
//
// Nomad has no snapshot over several lists, so the order matters. Jobs come before
// allocations: a gang that is placed in between then has allocations of a version that is
// not known yet, which shows, and the job is read again (readOutrun). The other way round
// it would look as if it had none, and its GPUs free.
func (c *Client) Resync(ctx context.Context, old *cluster.State) (*cluster.State, error) {
	old = cmp.Or(old, cluster.NewState())
	s := old.Next()
	if err := c.readNodes(ctx, s, old); err != nil {
		return nil, fmt.Errorf("reading nodes: %w", Denied(err, ReadNodes))
	}
	if err := c.readJobs(ctx, s, old); err != nil {
		return nil, fmt.Errorf("reading jobs: %w", Denied(err, ListJobs))
	}
	if q, err := c.BatchQueues(ctx, s.Pools()); err == nil {
		s.Queues = q
	} else if s.Queues = old.Queues; ctx.Err() != nil {
		return nil, err
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

// everywhere asks about all namespaces.
func everywhere(ctx context.Context) *api.QueryOptions {
	return (&api.QueryOptions{Namespace: api.AllNamespacesNamespace}).WithContext(ctx)
}

// readNodes reads the nodes with GPUs. The list tells each node's ModifyIndex; only nodes
// with another one than in old are read by themselves. A node that cannot be read counts
// as it was known.
func (c *Client) readNodes(ctx context.Context, s, old *cluster.State) error {
	stubs, meta, err := c.listNodes(ctx)
	if err != nil {
		return err
	}
	nodes, errs, err := readEach(ctx, len(stubs), func(i int) (*api.Node, bool) {
		n := old.Nodes[stubs[i].ID] // sanitized already
		return n, n != nil && n.ModifyIndex == stubs[i].ModifyIndex
	}, func(ctx context.Context, i int) (*api.Node, error) { return c.node(ctx, stubs[i].ID) })
	s.TakeNodes(old, meta.LastIndex, stubs, nodes, errs)
	return err
}

// withGPUs is what a node meets that has GPUs.
const withGPUs = `any NodeResources.Devices as d { d.Vendor == "` + attr.Vendor + `" and (d.Type == "` + attr.Type + `" or d.Type == "` + attr.SharedType + `") }`

// listNodes lists the nodes with GPUs, without what they have, which is 10 kB of each. If there is
// a node without resources, Nomad's filter refuses all: then what they have has to be listed.
func (c *Client) listNodes(ctx context.Context) (stubs []*cluster.NodeStub, meta *api.QueryMeta, err error) {
	q := (&api.QueryOptions{Filter: withGPUs}).WithContext(ctx)
	if meta, err = c.api.Raw().Query("/v1/nodes", &stubs, q); StatusOf(err) != http.StatusBadRequest {
		return slices.DeleteFunc(stubs, func(n *cluster.NodeStub) bool { return n == nil }), meta, err
	}
	q.Filter, q.Params = "", map[string]string{"resources": "true"}
	meta, err = c.api.Raw().Query("/v1/nodes", &stubs, q)
	return slices.DeleteFunc(stubs, func(n *cluster.NodeStub) bool { return !n.HasGPUs() }), meta, err
}

// node reads a node; nil if there is none.
func (c *Client) node(ctx context.Context, id string) (*api.Node, error) {
	var p *cluster.NodePayload
	err := c.read("/v1/node/"+url.PathEscape(id), &p, (&api.QueryOptions{}).WithContext(ctx))
	if err != nil && !notFound(err) {
		return nil, err
	}
	return p.AsNode(), nil
}

// withDevices is what a job meets that asks for devices.
const withDevices = `any TaskGroups as g { any g.Tasks as t { t.Resources.Devices is not empty } }`

// listJobs lists the jobs that ask for devices. If there is a job too odd for Nomad's filter, that
// refuses all: then every job is listed, and read.
func (c *Client) listJobs(ctx context.Context) (stubs []*cluster.JobStub, meta *api.QueryMeta, err error) {
	q := everywhere(ctx)
	q.Filter = withDevices
	if meta, err = c.api.Raw().Query("/v1/jobs", &stubs, q); StatusOf(err) == http.StatusBadRequest {
		q.Filter = ""
		meta, err = c.api.Raw().Query("/v1/jobs", &stubs, q)
	}
	return slices.DeleteFunc(stubs, func(j *cluster.JobStub) bool { return j == nil }), meta, err
}

// readJobs reads the jobs with GPUs in the same way. A job that the placer only assumes to be so
// (State.Assume) is always read.
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
	// jobTries is how often a job, or a node, is read that cannot be.
	jobTries = 2
	// unreadShare: of one in so many jobs, or nodes, or of one of a few, Nomad may give
	// no answer, and the others are served. More are its own fault.
	unreadShare = 20
)

// readEach reads n objects one by one, but for those that are still as they were known. One
// that cannot be read counts as it was known; the error is that of too many.
func readEach[T any](
	ctx context.Context, n int, known func(int) (was *T, current bool), read func(context.Context, int) (*T, error),
) (objects []*T, errs []error, err error) {
	objects, errs = make([]*T, n), make([]error, n)
	var failed atomic.Int64
	err = parallel(ctx, n, func(ctx context.Context, i int) error {
		was, current := known(i)
		for try := 0; !current && try < jobTries; try++ {
			if objects[i], errs[i] = read(ctx, i); errs[i] == nil {
				return nil
			}
		}
		if objects[i] = was; !current && !cluster.Unreadable(errs[i]) && failed.Add(1) > max(1, int64(n/unreadShare)) {
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

// readOutrun reads those jobs again that have allocations of a version which the list of
// jobs did not have yet: by the older form, a gang that was placed in between looks as if
// Nomad had placed it alone.
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

// ReadStale reads the allocations that events do not tell enough of: those of
// jobs that are gone, and those that may have ended for an older version. One that
// Nomad refuses to show does not keep it from reading the others.
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
				return errors.Join(errs...) // it is not there at all
			}
		default:
			s.PutAlloc(p.AsAlloc())
		}
	}
	return errors.Join(errs...)
}

// parallel calls f for 0…n-1, at most parallelReads at once, until one fails. If one
// panics, parallel does, after the calls under way, so that the caller can recover. A goroutine
// makes many calls: what is read grows its stack, which takes long.
func parallel(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	workers, running := errgroup.WithContext(ctx)
	var next atomic.Int64
	var panicked atomic.Pointer[any]
	for range min(n, parallelReads) {
		workers.Go(func() (err error) {
			defer func() {
				if r := recover(); r != nil {
					panicked.Store(&r)
					err = context.Canceled // ends the others
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
	if r := panicked.Load(); r != nil {
		panic(*r)
	}
	if err != nil {
		return err
	}
	return context.Cause(ctx)
}
