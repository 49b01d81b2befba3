// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package live reads the current load of GPUs: utilization, memory, temperature and power. Device
// plugins sample these values on their nodes, and Nomad's client API serves them (GET
// /v1/client/stats?node_id=, which needs node:read). To read the load of a node, a Nomad server and
// the node's client must both answer a request. So a [Reader] reads at most [MostNodes] nodes in
// one call, and caches the answers. Each request has a time limit, so that a node that does not
// answer cannot delay the other nodes.
package live

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"
	"golang.org/x/sync/errgroup"

	"github.com/nomad-pal/nomad-pal/pal/attr"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
)

const (
	// MostNodes is the maximum number of nodes that one call reads.
	MostNodes = 64
	// Fresh is how long a node's answer stays in the cache. If the node does not answer, the cache
	// keeps this failure for the same time.
	Fresh = 3 * time.Second
	// atOnce is the number of nodes that are queried in parallel. within is the time limit for each
	// node.
	atOnce = 16
	within = 3 * time.Second
)

// Of returns the load of each GPU from a node's statistics. The keys are GPU ids. The plugin
// nomad-device-nvidia uses the same names for these statistics. All parts of a shared GPU count as
// one GPU.
func Of(stats *api.HostStats) map[string]palapi.Load {
	out := map[string]palapi.Load{}
	for _, group := range stats.DeviceStats {
		if group == nil || group.Vendor != attr.Vendor {
			continue
		}
		for id, s := range group.InstanceStats {
			if s == nil || s.Stats == nil || s.Stats.Attributes[attr.StatUtilization] == nil {
				continue // of a shared GPU, only the first part has statistics
			}
			of := s.Stats.Attributes
			u := palapi.Load{At: s.Timestamp, TemperatureC: number(of, attr.StatTemperature)}
			n := number(of, attr.StatUtilization)
			if n != nil && *n <= 100 {
				u.Utilization = n
			}
			u.MemoryUsedMiB, u.MemoryTotalMiB = ratio(of, attr.StatMemory)
			u.PowerW, u.PowerLimitW = ratio(of, attr.StatPower)
			out[attr.GPUOf(id)] = u
		}
	}
	return out
}

func number(of map[string]*api.StatValue, name string) *int64 {
	n, _ := ratio(of, name)
	return n
}

// ratio returns the value and the maximum of a statistic. Negative numbers count as missing.
func ratio(of map[string]*api.StatValue, name string) (n, all *int64) {
	v := of[name]
	if v == nil || v.IntNumeratorVal == nil || *v.IntNumeratorVal < 0 {
		return nil, nil
	}
	all = v.IntDenominatorVal
	if all != nil && *all <= 0 {
		all = nil
	}
	return v.IntNumeratorVal, all
}

// Reader reads the load of the GPUs on nodes. The zero value of a Reader is ready to use. A Reader
// is safe for concurrent use.
type Reader struct {
	mu    sync.Mutex
	nodes map[string]*heard
}

// heard is a node's last answer. The mutex of the entry is locked during a request. So callers that
// read the same node at the same time share one request.
type heard struct {
	mu  sync.Mutex
	at  time.Time
	use map[string]palapi.Load
	err error
}

// Nodes returns the load of the GPUs on the given nodes. The keys are GPU ids. silent maps the id
// of each node that did not answer to the reason. If there are more than [MostNodes] nodes, Nodes
// returns an error.
func (r *Reader) Nodes(ctx context.Context, c *api.Client, nodes []string) (use map[string]palapi.Load, silent map[string]error, err error) {
	nodes = slices.Compact(slices.Sorted(slices.Values(nodes)))
	if len(nodes) > MostNodes {
		return nil, nil, fmt.Errorf("cannot read the GPU load of %d nodes: the limit is %d nodes per request; select nodes (-node) or a job (-job)", len(nodes), MostNodes)
	}
	answers := make([]*heard, len(nodes))
	var asking errgroup.Group
	asking.SetLimit(atOnce)
	for i, id := range nodes {
		asking.Go(func() error { answers[i] = r.node(ctx, c, id); return nil })
	}
	_ = asking.Wait() // the errors are in the answers of the nodes
	use, silent = map[string]palapi.Load{}, map[string]error{}
	for i, id := range nodes {
		if answers[i].err != nil {
			silent[id] = answers[i].err
		}
		maps.Copy(use, answers[i].use)
	}
	return use, silent, nil
}

// node returns the answer of one node. If the cache has a fresh answer, node does not send a
// request.
func (r *Reader) node(ctx context.Context, c *api.Client, id string) *heard {
	h := r.slot(id)
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Since(h.at) < Fresh {
		return &heard{use: h.use, err: h.err}
	}
	brief, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	stats, err := c.Nodes().Stats(id, (&api.QueryOptions{}).WithContext(brief))
	if ctx.Err() != nil { // the caller gave up; the node is not at fault
		return &heard{err: ctx.Err()}
	}
	h.at = time.Now()
	h.use = nil
	h.err = err
	if err == nil {
		h.use = Of(stats)
	}
	return &heard{use: h.use, err: err}
}

// slot returns the cache entry of a node.
func (r *Reader) slot(id string) *heard {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.nodes == nil {
		r.nodes = map[string]*heard{}
	}
	if r.nodes[id] == nil {
		r.nodes[id] = &heard{}
	}
	return r.nodes[id]
}
