// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/nomad/nomad/structs"
)

// secondsKey is the meta key that sets how long an allocation runs, in seconds.
const secondsKey = "sim_seconds"

// player plays one client.
type player struct {
	wire       *wire
	index      int // selects the connection
	id, secret string
	counts     *counts
	ttl        time.Duration // used by register, then only by heartbeat

	outbox outbox

	// tasks maps ids to allocations that run, or that have ended without the server knowing it yet.
	// Only watch uses this map.
	tasks map[string]*playedAlloc
}

// playedAlloc is an allocation that runs or has ended.
type playedAlloc struct {
	alloc *structs.Allocation
	done  *time.Timer // nil if the allocation runs until it is stopped
	ended bool
}

// queryTime is how long the server can wait for a change before it answers a query, as for real
// clients.
const queryTime = 5 * time.Minute

// watch follows the allocations that the server gives to this node, until ctx ends.
func (p *player) watch(ctx context.Context) {
	finished := make(chan string)
	news := make(chan map[string]uint64)
	var query sync.WaitGroup
	query.Go(func() { p.query(ctx, news) })
	defer query.Wait()
	defer p.outbox.senders.Wait()
	defer p.drop()
	known := map[string]uint64{}
	for {
		select {
		case <-ctx.Done():
			return
		case id := <-finished:
			p.finish(ctx, id)
		case now := <-news:
			var changed []string
			for id, index := range now {
				if known[id] != index {
					changed = append(changed, id)
				}
			}
			if err := p.apply(ctx, changed, finished); err != nil {
				p.counts.failed(ctx, err)
				continue // known is unchanged, so the next answer tries these allocations again
			}
			known = now
			maps.DeleteFunc(p.tasks, func(id string, t *playedAlloc) bool { _, there := now[id]; return t.ended && !there })
		}
	}
}

// query queries the node's allocations repeatedly and sends each answer to news.
func (p *player) query(ctx context.Context, news chan<- map[string]uint64) {
	req := structs.NodeSpecificRequest{NodeID: p.id, SecretID: p.secret, QueryOptions: structs.QueryOptions{
		Region: region, AllowStale: true, AuthToken: p.secret, MaxQueryTime: queryTime,
	}}
	for ctx.Err() == nil {
		var resp structs.NodeClientAllocsResponse
		if err := p.wire.call(p.index, "Node.GetClientAllocs", &req, &resp); err != nil {
			p.counts.failed(ctx, err)
			sleep(ctx, time.Second)
			continue
		}
		req.MinQueryIndex = resp.Index
		select {
		case news <- resp.Allocs:
		case <-ctx.Done():
		}
	}
}

// apply fetches allocations, and starts or stops them according to the server's desired status.
func (p *player) apply(ctx context.Context, ids []string, finished chan<- string) error {
	if len(ids) == 0 {
		return nil
	}
	req := structs.AllocsGetRequest{AllocIDs: ids, QueryOptions: structs.QueryOptions{
		Region: region, AllowStale: true, AuthToken: p.secret,
	}}
	var resp structs.AllocsGetResponse
	if err := p.wire.call(p.index, "Alloc.GetAllocs", &req, &resp); err != nil {
		return err
	}
	var updates []*structs.Allocation
	for _, a := range resp.Allocs {
		t := p.tasks[a.ID]
		switch {
		case a.ClientTerminalStatus():
			p.end(a.ID)
			delete(p.tasks, a.ID)
		case t != nil && t.ended: // its end is being reported
		case a.ServerTerminalStatus():
			p.end(a.ID)
			p.tasks[a.ID] = &playedAlloc{alloc: a, ended: true}
			p.counts.stopped.Add(1)
			updates = append(updates, state(a, structs.AllocClientStatusComplete, "stopped"))
		case t != nil:
		default:
			if err := p.start(ctx, a, finished); err != nil {
				updates = append(updates, state(a, structs.AllocClientStatusFailed, err.Error()))
				continue
			}
			updates = append(updates, state(a, structs.AllocClientStatusRunning, "simulated"))
		}
	}
	p.report(ctx, updates...)
	return nil
}

// start starts an allocation. If the job's meta has a run time, the allocation ends after this
// time.
func (p *player) start(ctx context.Context, a *structs.Allocation, finished chan<- string) error {
	t := &playedAlloc{alloc: a}
	d, limited, err := duration(a)
	if err != nil {
		return err
	}
	if limited {
		t.done = time.AfterFunc(d, func() {
			select {
			case finished <- a.ID:
			case <-ctx.Done():
			}
		})
	}
	p.tasks[a.ID] = t
	p.counts.running.Add(1)
	p.counts.started.Add(1)
	return nil
}

// duration returns how long an allocation runs; limited is false if it runs until it is stopped.
func duration(a *structs.Allocation) (d time.Duration, limited bool, err error) {
	text, ok := "", false
	if g := a.Job.LookupTaskGroup(a.TaskGroup); g != nil {
		text, ok = g.Meta[secondsKey]
	}
	if !ok {
		text, ok = a.Job.Meta[secondsKey]
	}
	if !ok {
		return 0, false, nil
	}
	s, err := strconv.ParseFloat(text, 64)
	if err != nil || s < 0 {
		return 0, false, fmt.Errorf("meta %s = %q is not a number of seconds", secondsKey, text)
	}
	return time.Duration(s * float64(time.Second)), true, nil
}

// finish reports a running allocation as complete, unless it was stopped meanwhile.
func (p *player) finish(ctx context.Context, id string) {
	t := p.tasks[id]
	if t == nil || t.ended {
		return
	}
	p.report(ctx, state(t.alloc, structs.AllocClientStatusComplete, "time is up"))
	p.end(id)
	p.counts.completed.Add(1)
}

// end ends a running allocation.
func (p *player) end(id string) {
	t := p.tasks[id]
	if t == nil || t.ended {
		return
	}
	if t.done != nil {
		t.done.Stop()
	}
	t.ended = true
	p.counts.running.Add(-1)
}

// drop stops the timers of all allocations.
func (p *player) drop() {
	for id := range p.tasks {
		p.end(id)
	}
}

// state returns a client's report about an allocation: a stub with the status and the state of each
// task.
func state(a *structs.Allocation, status, why string) *structs.Allocation {
	now := time.Now()
	out := &structs.Allocation{
		ID: a.ID, NodeID: a.NodeID, Namespace: a.Namespace, JobID: a.JobID, TaskGroup: a.TaskGroup,
		ClientStatus: status, ClientDescription: why, TaskStates: map[string]*structs.TaskState{},
	}
	g := a.Job.LookupTaskGroup(a.TaskGroup)
	if g == nil {
		return out
	}
	for _, task := range g.Tasks {
		s := &structs.TaskState{State: structs.TaskStateRunning, StartedAt: now}
		if status != structs.AllocClientStatusRunning {
			s.State, s.FinishedAt = structs.TaskStateDead, now
			s.Failed = status == structs.AllocClientStatusFailed
		}
		out.TaskStates[task.Name] = s
	}
	return out
}
