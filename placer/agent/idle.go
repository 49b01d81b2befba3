// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/placer/accounting"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/live"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/query"
)

const (
	// idleAfter is how long a held GPU must compute nothing before it counts as idle.
	idleAfter = 15 * time.Minute
	// idleEvery is the interval at which the agent polls the next [live.MostNodes] nodes with held
	// GPUs. With up to 640 nodes, the agent polls each node once a minute; with more nodes, less
	// often.
	idleEvery = 6 * time.Second
	// askAgain is the minimum time between two polls of a node, and between two refreshes of the
	// list of held GPUs.
	askAgain = time.Minute
)

// idleGPUs are the held GPUs that compute nothing, according to the polls since this agent last
// became active.
type idleGPUs struct {
	mu    sync.Mutex
	since map[string]idleGPU // by the GPU's id
	asked map[string]time.Time
}

type idleGPU struct {
	job    string
	at     time.Time // time of the first poll that found the GPU idle under that job
	until  time.Time // time of the last such poll
	booked time.Time // end of the idle time that the history has; zero if it has none
}

// next returns the nodes to poll now: the nodes with held GPUs that were polled least recently.
func (i *idleGPUs) next(held []query.Held, now time.Time) (nodes []string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	of := map[string]bool{}
	for _, g := range held {
		of[g.NodeID] = true
	}
	maps.DeleteFunc(i.asked, func(node string, _ time.Time) bool { return !of[node] })
	for node := range of {
		if now.Sub(i.asked[node]) >= askAgain {
			nodes = append(nodes, node)
		}
	}
	slices.SortFunc(nodes, func(a, b string) int {
		return cmp.Or(i.asked[a].Compare(i.asked[b]), strings.Compare(a, b))
	})
	return nodes[:min(len(nodes), live.MostNodes)]
}

// heard records the answers of polled nodes. A GPU of a polled node counts as not idle unless the
// node's answer shows that it is idle. heard changes no GPUs of other nodes.
func (i *idleGPUs) heard(held []query.Held, nodes []string, uses map[string]palapi.Load, now time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.asked == nil {
		i.asked = map[string]time.Time{}
	}
	asked := map[string]bool{}
	for _, node := range nodes {
		asked[node], i.asked[node] = true, now
	}
	since := map[string]idleGPU{}
	for _, g := range held {
		was, known := i.since[g.ID]
		known = known && was.job == g.Job
		switch {
		case asked[g.NodeID] && !uses[attr.GPUOf(g.ID)].Idle():
		case known:
			if asked[g.NodeID] {
				was.until = now
			}
			since[g.ID] = was
		case asked[g.NodeID]:
			since[g.ID] = idleGPU{job: g.Job, at: now, until: now}
		}
	}
	i.since = since
}

// unbooked returns the idle time that the history does not have yet; ok is false if the GPU was not
// idle for long enough.
func (g idleGPU) unbooked(gpu string) (p accounting.IdleGPU, ok bool) {
	from := g.at
	if g.booked.After(from) {
		from = g.booked
	}
	return accounting.IdleGPU{GPU: gpu, Job: g.job, From: from, To: g.until}, g.until.Sub(g.at) >= idleAfter && g.until.After(from)
}

// unbooked returns the idle time, of GPUs that are still idle, that the history does not have yet.
func (i *idleGPUs) unbooked() []accounting.IdleGPU {
	i.mu.Lock()
	defer i.mu.Unlock()
	var all []accounting.IdleGPU
	for gpu, was := range i.since {
		if p, ok := was.unbooked(gpu); ok {
			all = append(all, p)
		}
	}
	return all
}

// booked marks idle time as stored in the history.
func (i *idleGPUs) booked(all []accounting.IdleGPU) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, p := range all {
		was := i.since[p.GPU]
		if was.job == p.Job && !was.at.After(p.From) {
			was.booked = p.To
			i.since[p.GPU] = was
		}
	}
}

// of returns the time since which a held GPU has been idle; zero if the GPU has been idle for less
// than [idleAfter].
func (i *idleGPUs) of(g palapi.GPU, now time.Time) time.Time {
	i.mu.Lock()
	defer i.mu.Unlock()
	was := i.since[g.ID]
	if was.job != "" && was.job == g.Job && now.Sub(was.at) >= idleAfter {
		return was.at
	}
	return time.Time{}
}

// count returns the number of idle GPUs.
func (i *idleGPUs) count(now time.Time) (n int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, was := range i.since {
		if now.Sub(was.at) >= idleAfter {
			n++
		}
	}
	return n
}

// watchIdle polls the nodes of held GPUs, a few nodes at a time, while the agent is active.
// watchIdle refreshes the list of held GPUs once a minute.
func (a *Agent) watchIdle(ctx context.Context, client *nomad.Client) {
	a.idle.heard(nil, nil, nil, time.Time{}) // what GPUs did while the agent was not active is unknown
	reader := live.Reader{}
	var held []query.Held
	var known time.Time
	tick := time.NewTicker(idleEvery)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			p := a.current.Load()
			if p != nil && now.Sub(known) >= askAgain {
				picture := p.Picture()
				if picture != nil {
					held, known = picture.Held(), now
				}
			}
			nodes := a.idle.next(held, now)
			uses, _, err := reader.Nodes(ctx, client.API(), nodes)
			if err == nil && ctx.Err() == nil {
				a.idle.heard(held, nodes, uses, now)
			}
		case <-ctx.Done():
			return
		}
	}
}
