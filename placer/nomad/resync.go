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

// parallelReads bounds the parallel requests for single nodes and jobs; by default Nomad allows 100
// connections per client.
const parallelReads = 16

// Resync reads everything again. Nodes and jobs that have not changed since old are copied from
// there; old may be nil.
//
// Nomad has no snapshot over several lists, so the order matters. Jobs come before allocations. A
// gang that is placed in between then has allocations of a version that is not known yet;
// readOutrun sees that and reads the job again. In the other order the gang would seem to have no
// allocations, and its GPUs would seem free.
func (c *Client) Resync(ctx context.Context, old *cluster.State) (*cluster.State, error) {
	old = cmp.Or(old, cluster.NewState())
	s := old.Next()
	if err := c.readNodes(ctx, s, old); err != nil {
		return nil, fmt.Errorf("reading nodes: %w", Denied(err, ReadNodes))
	}
	if err := c.readJobs(ctx, s, old); err != nil {
		return nil, fmt.Errorf("reading jobs: %w", Denied(err, ListJobs))
	}
	if q, err := c.BatchQueues(ctx, s.Nodes.Pools()); err == nil {
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

// everywhere is the query for all namespaces.
func everywhere(ctx context.Context) *api.QueryOptions {
	return (&api.QueryOptions{Namespace: api.AllNamespacesNamespace}).WithContext(ctx)
}

// readNodes reads the nodes with GPUs. The list has each node's ModifyIndex; only nodes whose index
// differs from that in old are read one by one. If a node cannot be read, its old state is kept.
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

// withGPUs is a filter for nodes with GPUs.
const withGPUs = `any NodeResources.Devices as d { d.Vendor == "` + attr.Vendor + `" and (d.Type == "` + attr.Type + `" or d.Type == "` + attr.SharedType + `") }`

// listNodes lists the nodes with GPUs, without their resources, which are 10 kB each. If a node has
// no resources, Nomad's filter fails as a whole; then the list includes resources.
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

// withDevices is a filter for jobs that request devices.
const withDevices = `any TaskGroups as g { any g.Tasks as t { t.Resources.Devices is not empty } }`

// listJobs lists the jobs that request devices. If Nomad's filter cannot handle some job, it fails
// as a whole; then every job is listed and read.
func (c *Client) listJobs(ctx context.Context) (stubs []*cluster.JobStub, meta *api.QueryMeta, err error) {
	q := everywhere(ctx)
	q.Filter = withDevices
	if meta, err = c.api.Raw().Query("/v1/jobs", &stubs, q); StatusOf(err) == http.StatusBadRequest {
		q.Filter = ""
		meta, err = c.api.Raw().Query("/v1/jobs", &stubs, q)
	}
	return slices.DeleteFunc(stubs, func(j *cluster.JobStub) bool { return j == nil }), meta, err
}

// readJobs reads the jobs with GPUs in the same way. A job that the placer only assumes to have
// GPUs (State.Assume) is always read.
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
	// jobTries is how often a job or node that cannot be read is tried.
	jobTries = 2
	// unreadShare: if at most one in this many jobs or nodes (or one of a few) cannot be read, the
	// others are served. If more fail, Nomad itself is at fault.
	unreadShare = 20
)

// readEach reads n objects one by one, except those that are unchanged. An object that cannot be
// read keeps its old state; if too many cannot, readEach returns an error.
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

// readOutrun reads jobs again that have allocations of a newer version than the list of jobs had.
// With the old version, a gang that was placed in between would look as if Nomad alone had placed
// it.
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

// ReadStale reads allocations for which events are incomplete: those of jobs that are gone, and
// those that may have ended for an older version. If Nomad refuses one, the others are still read.
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
				return errors.Join(errs...) // there is no such allocation
			}
		default:
			s.PutAlloc(p.AsAlloc())
		}
	}
	return errors.Join(errs...)
}

// parallel calls f for 0…n-1, at most parallelReads at once, until one fails. If one panics,
// parallel panics after the running calls, so that the caller can recover. Each goroutine makes
// many calls, because growing its stack for the first answer takes long.
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
