// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"encoding/json"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// counts has the numbers of events of all players so far.
type counts struct {
	registered, heartbeats, running, started, completed, stopped, errors atomic.Int64

	lastError atomic.Value // string
}

// failed counts an error and keeps its text, unless ctx has ended, because connections then close.
func (c *counts) failed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	c.errors.Add(1)
	c.lastError.Store(err.Error())
}

// line is one line of progress. Times are seconds since the start.
type line struct {
	Phase      string  `json:"phase"`
	Seconds    float64 `json:"seconds"`
	Nodes      int     `json:"nodes"`
	Registered int64   `json:"registered"`
	Running    int64   `json:"running"`
	Started    int64   `json:"started"`
	Completed  int64   `json:"completed"`
	Stopped    int64   `json:"stopped"`
	Heartbeats int64   `json:"heartbeats"`
	Errors     int64   `json:"errors"`
	LastError  string  `json:"last_error,omitempty"`
}

// reporter writes a line each second, and another line at each change of the phase.
type reporter struct {
	counts *counts
	nodes  int
	start  time.Time
	ended  chan struct{}
	wait   sync.WaitGroup

	mu   sync.Mutex // guards the fields below
	now  string
	sink *json.Encoder
}

func startReporter(w io.Writer, counts *counts, nodes int) *reporter {
	r := &reporter{counts: counts, nodes: nodes, start: time.Now(), ended: make(chan struct{}), now: "registering", sink: json.NewEncoder(w)}
	r.wait.Go(func() {
		every := time.NewTicker(time.Second)
		defer every.Stop()
		for {
			select {
			case <-r.ended:
				return
			case <-every.C:
				r.phase("")
			}
		}
	})
	return r
}

// phase writes a line. A name other than "" starts a new phase.
func (r *reporter) phase(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if name != "" {
		r.now = name
	}
	c := r.counts
	lastError, _ := c.lastError.Load().(string)
	_ = r.sink.Encode(line{ // if nobody reads the output, play on
		Phase: r.now, Seconds: float64(time.Since(r.start).Milliseconds()) / 1000, Nodes: r.nodes,
		Registered: c.registered.Load(), Running: c.running.Load(), Started: c.started.Load(), Completed: c.completed.Load(),
		Stopped: c.stopped.Load(), Heartbeats: c.heartbeats.Load(), Errors: c.errors.Load(), LastError: lastError,
	})
}

// stop writes the last line.
func (r *reporter) stop(name string) {
	close(r.ended)
	r.wait.Wait()
	r.phase(name)
}
