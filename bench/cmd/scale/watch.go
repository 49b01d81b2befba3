// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"
)

// watcher follows allocations through the event stream.
type watcher struct {
	cancel  context.CancelFunc
	done    chan struct{}
	mu      sync.Mutex
	exist   map[string]map[string]time.Time // job → allocation → when first seen
	running map[string]map[string]time.Time // job → allocation → when its task started
	grew    chan struct{}
	err     error
}

func (b *bed) watch(ctx context.Context) (*watcher, error) {
	ctx, cancel := context.WithCancel(ctx)
	body, err := b.allocations(ctx, 0)
	if err != nil {
		cancel()
		return nil, err
	}
	w := &watcher{
		cancel: cancel, done: make(chan struct{}), grew: make(chan struct{}),
		exist: map[string]map[string]time.Time{}, running: map[string]map[string]time.Time{},
	}
	go func() {
		defer close(w.done)
		last := w.follow(body)
		for tries := 0; ctx.Err() == nil && tries < resubscriptions; tries++ {
			// If a reader falls behind, Nomad ends the reader's stream.
			body, err := b.allocations(ctx, last+1)
			if err != nil {
				w.fail(err)
				return
			}
			last = max(last, w.follow(body))
		}
		if ctx.Err() != nil {
			return
		}
		w.fail(errors.New("following allocations: Nomad repeatedly closed the event stream"))
	}()
	return w, nil
}

// resubscriptions limits how often the watcher opens the stream again after Nomad has ended it.
const resubscriptions = 20

// events is the small part of a batch of events that the watcher parses. To parse more would take
// processor time from the measured programs.
type events struct {
	Index  uint64
	Events []struct {
		Payload struct {
			Allocation *struct {
				ID, JobID, ClientStatus string
				TaskStates              map[string]struct{ StartedAt time.Time }
			}
		}
	}
}

// allocations streams the events of allocations from an index on; if the index is 0, only new
// events.
func (b *bed) allocations(ctx context.Context, from uint64) (io.ReadCloser, error) {
	q := (&api.QueryOptions{Params: map[string]string{"topic": "Allocation:*", "index": strconv.FormatUint(from, 10)}}).WithContext(ctx)
	body, err := b.api.Raw().Response("/v1/event/stream", q)
	if err != nil {
		return nil, fmt.Errorf("following allocations: %w", err)
	}
	return body, nil
}

func (w *watcher) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
	close(w.grew)
	w.grew = make(chan struct{})
}

func (w *watcher) stop() {
	w.cancel()
	<-w.done
}

// follow records events until the stream ends, and returns the last event's index.
func (w *watcher) follow(body io.ReadCloser) (last uint64) {
	defer body.Close()
	for dec := json.NewDecoder(body); ; {
		var es events
		if dec.Decode(&es) != nil {
			return last
		}
		now := time.Now()
		last = max(last, es.Index)
		w.mu.Lock()
		for _, e := range es.Events {
			a := e.Payload.Allocation
			if a == nil {
				continue
			}
			note(w.exist, a.JobID, a.ID, now)
			if a.ClientStatus == api.AllocClientStatusRunning {
				// A client reports the start of a task up to a second late, so the watcher uses the
				// task's own time.
				began := now
				for _, t := range a.TaskStates {
					if !t.StartedAt.IsZero() {
						began = t.StartedAt
					}
				}
				note(w.running, a.JobID, a.ID, began)
			}
		}
		close(w.grew)
		w.grew = make(chan struct{})
		w.mu.Unlock()
	}
}

func note(in map[string]map[string]time.Time, job, alloc string, now time.Time) {
	if in[job] == nil {
		in[job] = map[string]time.Time{}
	}
	if _, ok := in[job][alloc]; !ok {
		in[job][alloc] = now
	}
}

// placed waits until the job has n allocations, and returns when the last one appeared.
func (w *watcher) placed(ctx context.Context, job string, n int) (time.Time, error) {
	return w.last(ctx, w.exist, job, n)
}

// runs waits until n allocations of the job have started, and returns when the last one started.
func (w *watcher) runs(ctx context.Context, job string, n int) (time.Time, error) {
	return w.last(ctx, w.running, job, n)
}

func (w *watcher) last(ctx context.Context, in map[string]map[string]time.Time, job string, n int) (time.Time, error) {
	at, err := w.wait(ctx, fmt.Sprintf("allocations of job %q", job), n, func() []time.Time { return slices.Collect(maps.Values(in[job])) })
	if err != nil {
		return time.Time{}, err
	}
	return at[len(at)-1], nil
}

// first waits until n jobs whose names begin with prefix have an allocation, and returns the sorted
// times at which their first allocations appeared.
func (w *watcher) first(ctx context.Context, prefix string, n int) ([]time.Time, error) {
	at, err := w.wait(ctx, "jobs "+prefix+"… with an allocation", n, func() (at []time.Time) {
		for job, allocs := range w.exist {
			if strings.HasPrefix(job, prefix) {
				at = append(at, slices.MinFunc(slices.Collect(maps.Values(allocs)), time.Time.Compare))
			}
		}
		return at
	})
	if err != nil {
		return nil, err
	}
	return at[:n], nil
}

// wait waits until there() returns at least n points in time, and returns them sorted.
func (w *watcher) wait(ctx context.Context, what string, n int, there func() []time.Time) ([]time.Time, error) {
	limit := time.NewTimer(5 * time.Minute)
	defer limit.Stop()
	for {
		w.mu.Lock()
		grew, err, at := w.grew, w.err, there()
		w.mu.Unlock()
		switch {
		case err != nil:
			return nil, err
		case len(at) >= n:
			slices.SortFunc(at, time.Time.Compare)
			return at, nil
		}
		select {
		case <-grew:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-limit.C:
			return nil, fmt.Errorf("only %d of %d %s after 5 minutes", len(at), n, what)
		}
	}
}
