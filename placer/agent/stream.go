// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/http"
	"strconv"
	"sync"
	"time"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/query"
)

const (
	// slowReader is the time limit for writing a message to a page; a slower page is disconnected.
	slowReader = 15 * time.Second
	// aliveEvery is the interval of keep-alive messages.
	aliveEvery = 10 * time.Second
)

// serveStream serves GET /v1/stream: server-sent events with the racks of the cluster, and then with
// each rack that changes, for a web page. The event "state" follows them: see [state].
//
// The agent makes the message of a rack once for all pages. If the token of a page cannot read nodes,
// the page gets no racks; the state only tells it when to read its lists again.
func (s *server) serveStream(w http.ResponseWriter, r *http.Request) {
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
	over := time.NewTimer(followFor)
	tick := time.NewTicker(snapshotAge)
	heard := time.Now()
	defer over.Stop()
	defer tick.Stop()
	var sent shown
	next := s.snapshots.latest() // at once, although it may be old
	for {
		var messages []message
		var err error
		if next == nil {
			next, err = s.snapshots.get(r.Context())
		}
		if err != nil {
			messages = []message{newMessage("trouble", map[string]string{"trouble": publicError(err)})}
		} else {
			now := s.pages.of(next)
			messages = now.since(sent, nodes)
			sent = now
		}
		if time.Since(heard) > aliveEvery && len(messages) == 0 {
			messages = []message{alive}
		}
		if len(messages) > 0 {
			heard = time.Now()
			if send(w, messages) != nil {
				return // the page is gone, or too slow
			}
		}
		next = nil
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

// shown is what a page shows: a message for each rack, and a hash of its lists (see [hashOf]).
type shown struct {
	racks []message
	lists string
}

// rackMessage is a rack, and its place in the list of racks.
type rackMessage struct {
	At int `json:"at"`
	query.MapRack
}

// state follows the racks that have changed. Racks is their number, or nil if the caller may not
// read nodes. A page reads its lists again if Lists differs.
type state struct {
	Racks *int   `json:"racks,omitempty"`
	Lists string `json:"lists"`
}

// since returns the messages for a page that has got the given messages.
func (now shown) since(sent shown, nodes bool) (ms []message) {
	is := state{Lists: now.lists}
	same := now.lists == sent.lists
	if nodes {
		n := len(now.racks)
		is.Racks = &n
		same = same && n == len(sent.racks)
		for i, m := range now.racks {
			if i >= len(sent.racks) || !bytes.Equal(m, sent.racks[i]) {
				ms = append(ms, m)
			}
		}
	}
	if len(ms) == 0 && same {
		return nil
	}
	return append(ms, newMessage("state", is))
}

// pages makes the messages of the latest snapshot once for all pages.
type pages struct {
	mu     sync.Mutex
	latest *query.Snapshot
	shown  shown
}

func (p *pages) of(now *query.Snapshot) shown {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.latest == now {
		return p.shown
	}
	p.shown = p.shown.with(now.Map(), hashOf(now.Jobs(), now.Model().Failures, now.Ailing()))
	p.latest = now
	return p.shown
}

// with returns the messages about racks and lists, and keeps those messages that stay the same.
func (was shown) with(racks []query.MapRack, lists uint64) shown {
	is := shown{lists: strconv.FormatUint(lists, 16)}
	for i, r := range racks {
		m := newMessage("rack", rackMessage{i, r})
		if i < len(was.racks) && bytes.Equal(m, was.racks[i]) {
			m = was.racks[i]
		}
		is.racks = append(is.racks, m)
	}
	return is
}

// hashOf returns a hash of what the page shows about jobs, failures and ailing GPUs. Expected
// starts move with the clock, so the hash contains them only to the minute. The hash leaves out
// expected ends, which change all the time.
func hashOf(jobs []palapi.JobStatus, failures []palapi.Failure, ailing []palapi.GPU) uint64 {
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
