// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/failure"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/query"
)

const (
	// deltasKept is how many changes are kept for pages that reconnect, enough for at least half a
	// minute. A page that was away for longer gets the whole state.
	deltasKept = 32
	// slowReader is the time limit for writing a message to a page; a slower page is disconnected.
	slowReader = 15 * time.Second
	// aliveEvery is the interval of keep-alive messages.
	aliveEvery = 10 * time.Second
)

// serveStream serves GET /v1/stream?version=<version>: server-sent events with the state of the
// cluster, and then with each change, for a web page.
//
// A message is the whole state or, with "from", the difference from the state of that version. The
// agent makes a message once for all pages. If the token of a page cannot read
// nodes, the messages to this page contain no GPUs; they only tell the page when to read its
// lists again.
func (s *server) serveStream(w http.ResponseWriter, r *http.Request) {
	version, err := strconv.ParseUint(r.URL.Query().Get("version"), 10, 64)
	if err != nil && r.URL.Query().Get("version") != "" {
		http.Error(w, "version is not a number", http.StatusBadRequest)
		return
	}
	c, ok := s.judged(w, r, (*caller).readsNodesOrJobs)
	if !ok {
		return
	}
	done, ok := s.agent.followers.take(w, r)
	if !ok {
		return
	}
	defer done()
	nodes := c.readsNodes(r.Context()) == nil
	w.Header().Set("Content-Type", "text/event-stream")
	over, tick, heard := time.NewTimer(followFor), time.NewTicker(snapshotAge), time.Now()
	defer over.Stop()
	defer tick.Stop()
	// Send the latest snapshot at once, although it may be old.
	if snapshot := s.snapshots.latest(); snapshot != nil {
		var messages []message
		if messages, version = s.pages.after(snapshot, version, nodes); send(w, messages) != nil {
			return
		}
	}
	for {
		var messages []message
		if snapshot, err := s.snapshots.get(r.Context()); err != nil {
			messages = []message{newMessage("trouble", map[string]string{"trouble": publicError(err)})}
		} else {
			messages, version = s.pages.after(snapshot, version, nodes)
		}
		if time.Since(heard) > aliveEvery && len(messages) == 0 {
			messages = []message{alive}
		}
		if len(messages) > 0 {
			if heard = time.Now(); send(w, messages) != nil {
				return // the page is gone, or too slow
			}
		}
		select {
		case <-tick.C:
		case <-over.C:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// message is a server-sent event.
type message []byte

var alive = newMessage("alive", struct{}{})

func newMessage(event string, data any) message {
	text, err := json.Marshal(data)
	if err != nil {
		panic(err) // impossible: data has only numbers and texts
	}
	return fmt.Appendf(nil, "event: %s\ndata: %s\n\n", event, text)
}

// send writes messages to a page.
func send(w http.ResponseWriter, ms []message) error {
	c := http.NewResponseController(w)
	_ = c.SetWriteDeadline(time.Now().Add(slowReader)) // test recorders have no deadline
	for _, m := range ms {
		if _, err := w.Write(m); err != nil {
			return err
		}
	}
	return c.Flush()
}

// pages is the state that the stream sends to all pages, with its last changes.
type pages struct {
	mu      sync.Mutex
	of      *query.Snapshot
	version uint64
	racks   []byte // in JSON
	cells   []query.Cell
	jobs    uint64 // incremented when queue changes
	queue   uint64 // see hashOf
	deltas  []delta
	whole   *delta // built on demand
}

// delta is a change of the state, or the whole state (from is 0). m has the message for pages that
// may not read nodes, and the message for pages that may.
type delta struct {
	from, to uint64
	m        [2]message
}

// state is the content of a message. Without From, Cells has the cells of all GPUs. With From, Cells
// has the index of each changed cell, followed by the cell's new value.
type state struct {
	Version uint64          `json:"version"`
	From    uint64          `json:"from,omitempty"`
	Jobs    uint64          `json:"jobs"`
	Racks   json.RawMessage `json:"racks,omitempty"`
	Cells   []int           `json:"cells,omitempty"`
}

func newDelta(s state) delta {
	hidden := s
	hidden.Racks, hidden.Cells = nil, nil
	return delta{s.From, s.Version, [2]message{newMessage("state", hidden), newMessage("state", s)}}
}

// after returns the messages that bring a page from its version to the current version, and the
// current version (to).
func (p *pages) after(now *query.Snapshot, version uint64, nodes bool) (ms []message, to uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of != now {
		p.advance(now.Map(), hashOf(now.Jobs(), now.Model().Failures, now.Ailing()))
		p.of = now
	}
	which := 0
	if nodes {
		which = 1
	}
	if version == p.version {
		return nil, version
	}
	if i := slices.IndexFunc(p.deltas, func(d delta) bool { return d.from == version }); i >= 0 {
		for _, d := range p.deltas[i:] {
			ms = append(ms, d.m[which])
		}
		return ms, p.version
	}
	if p.whole == nil {
		cells := make([]int, len(p.cells))
		for i, c := range p.cells {
			cells[i] = int(c)
		}
		d := newDelta(state{Version: p.version, Jobs: p.jobs, Racks: p.racks, Cells: cells})
		p.whole = &d
	}
	return []message{p.whole.m[which]}, p.version
}

// advance makes m and queue (see [hashOf]) the current state, and stores the change.
func (p *pages) advance(m *query.Map, queue uint64) {
	racks, err := json.Marshal(m.Racks)
	if err != nil {
		panic(err) // impossible: racks have only names and numbers
	}
	same := p.version != 0 && bytes.Equal(racks, p.racks)
	var changed []int
	if same {
		for i, c := range m.Cells {
			if c != p.cells[i] {
				changed = append(changed, i, int(c))
			}
		}
	}
	if same && len(changed) == 0 && queue == p.queue {
		return
	}
	if queue != p.queue {
		p.jobs++
	}
	was := p.version
	// The version contains the time. Versions of earlier agents are therefore smaller, and a page
	// with such a version gets the whole state.
	p.version = max(was+1, uint64(time.Now().UnixMilli()))
	p.racks, p.cells, p.queue, p.whole = racks, m.Cells, queue, nil
	if !same || len(changed) > len(p.cells)/2 { // the whole state is shorter
		p.deltas = nil
		return
	}
	if len(p.deltas) == deltasKept {
		p.deltas = slices.Delete(p.deltas, 0, 1)
	}
	p.deltas = append(p.deltas, newDelta(state{Version: p.version, From: was, Jobs: p.jobs, Cells: changed}))
}

// hashOf returns a hash of what the page shows about jobs, failures and ailing GPUs. Expected
// starts move with the clock, so the hash contains them only to the minute. The hash leaves out
// expected ends, which change all the time.
func hashOf(jobs []model.JobStatus, failures []failure.Failure, ailing []query.GPU) uint64 {
	h := fnv.New64a()
	for _, f := range failures[max(0, len(failures)-1):] { // the last failure suffices
		fmt.Fprintln(h, f.Alloc, f.At.UnixNano())
	}
	out := json.NewEncoder(h)
	for _, j := range jobs {
		j.StartFrom, j.StartTo = j.StartFrom.Truncate(time.Minute), j.StartTo.Truncate(time.Minute)
		j.EndFrom, j.EndTo = time.Time{}, time.Time{}
		_ = out.Encode(j) // cannot fail
	}
	_ = out.Encode(ailing) // cannot fail
	return h.Sum64()
}
