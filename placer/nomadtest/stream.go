// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomadtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"
)

// heartbeatInterval is the time between two heartbeats of Nomad on the event stream.
const heartbeatInterval = 10 * time.Second

var (
	errServerClosed = errors.New("the server was closed")
	errRestarted    = errors.New("unexpected EOF: the server was restarted")
)

// EventFaults contains the probability of each fault, for each event or stream. With the
// probability Lost, an event is dropped and the stream ends. Nomad drops events and ends the stream
// if a subscriber is too slow. With the probability SilentlyLost, an event is dropped but the
// stream does not end, which never happens in Nomad.
type EventFaults struct {
	Lost, SilentlyLost, Late, Doubled float64
	// Delay is the maximum delay of an event that comes late. Other events can overtake a late
	// event.
	Delay time.Duration
	// Early is the probability that an event arrives up to half a second before its change. Nomad
	// sends events before it commits the changes (txn.Commit in Nomad 1.11.3). So a reader that
	// reacts to an event can still read the old version of a job.
	Early float64
}

// SetEventFaults sets the faults of all later events.
func (s *Server) SetEventFaults(f EventFaults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.eventFaults = f
}

// earlyBy is the maximum time by which an event can come before its change.
const earlyBy = 500 * time.Millisecond

// uncommitted contains the jobs that the last write changed, in the form that they had before the
// write. Readers that do not see the change yet get the earlier form. When one reader has seen the
// change, all readers see it, because Nomad's answers never go back in time.
type uncommitted struct {
	index uint64
	until time.Time
	jobs  map[Key]*job
}

// setJob stores a job at the current index. If j is nil, setJob removes the job.
func (s *Server) setJob(k Key, j *job) {
	if s.was.index != s.index {
		s.was = uncommitted{index: s.index, jobs: map[Key]*job{}}
	}
	if _, ok := s.was.jobs[k]; !ok {
		s.was.jobs[k] = s.jobs[k]
	}
	if s.jobs[k] = j; j == nil {
		delete(s.jobs, k)
	}
}

// visible returns a job in the form that a reader sees.
func (s *Server) visible(k Key) *job {
	was, changed := s.was.jobs[k]
	if !changed || s.was.index != s.index || !s.opts.Now().Before(s.was.until) {
		s.was = uncommitted{}
		return s.jobs[k]
	}
	s.count("fault: an event comes before its change")
	return was
}

// stream is a subscription to events.
type stream struct {
	client    string
	topics    map[string]bool
	notify    chan struct{}
	ctx       context.Context
	without   map[string]bool // namespaces that did not exist when the stream began
	lineDelay time.Duration   // delay between two lines; each client has another delay
	unread    []byte          // the rest of the line that is being read

	mu     sync.Mutex
	buffer []byte
	err    error
	silent bool // the stream does not even send heartbeats
}

// subscribe begins a subscription.
func (s *Server) subscribe(ctx context.Context, client string, topics []string) *stream {
	st := &stream{client: client, topics: map[string]bool{}, without: map[string]bool{}, notify: make(chan struct{}, 1), ctx: ctx, buffer: []byte("{}\n")}
	st.lineDelay = s.jitter(time.Microsecond, "moment of "+client)
	for _, t := range topics {
		st.topics[t] = true
	}
	if s.refused[client] {
		st.silent, st.buffer = true, nil
	}
	s.streams = append(s.streams, st)
	return st
}

// RefuseEvents determines whether later event streams of a client are silent from the beginning. A
// real Nomad sends nothing if a client may not read the jobs of some namespace (seen on 1.11.3).
func (s *Server) RefuseEvents(client string, yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refused == nil {
		s.refused = map[string]bool{}
	}
	s.refused[client] = yes
}

// AddNamespace creates a namespace. Streams that are already open send no events of the new
// namespace, because Nomad resolves "all namespaces" when a stream begins (seen on 1.11.3).
func (s *Server) AddNamespace(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.namespaces = append(s.namespaces, name)
	for _, st := range s.streams {
		st.without[name] = true
	}
}

// listNamespaces lists the default namespace and the namespaces that were created.
func (s *Server) listNamespaces() (out []*api.Namespace) {
	for _, name := range append([]string{api.DefaultNamespace}, s.namespaces...) {
		out = append(out, &api.Namespace{Name: name})
	}
	return out
}

func (st *stream) end(err error) {
	st.mu.Lock()
	if st.err == nil {
		st.err = err
	}
	st.mu.Unlock()
	st.wake()
}

func (st *stream) wake() {
	select {
	case st.notify <- struct{}{}:
	default:
	}
}

func (st *stream) send(line []byte) {
	st.mu.Lock()
	if !st.silent {
		st.buffer = append(st.buffer, line...)
	}
	st.mu.Unlock()
	st.wake()
}

// Read waits until there is an event, or until a heartbeat is due. Read returns one line at a time,
// with a small delay between two lines. When the stream has ended, Read returns the end after a
// small delay. So a reader behaves in the same way, no matter when its goroutines run.
func (st *stream) Read(b []byte) (int, error) {
	next := time.NewTimer(heartbeatInterval)
	defer next.Stop()
	for {
		if n := copy(b, st.unread); n > 0 {
			st.unread = st.unread[n:]
			return n, nil
		}
		ready, err := st.pending()
		if ready || err != nil {
			if err := pause(st.ctx, st.lineDelay); err != nil {
				return 0, err
			}
			if !ready {
				return 0, err
			}
			st.takeBatch()
			continue
		}
		select {
		case <-st.notify:
		case <-next.C:
			st.send([]byte("{}\n"))
			next.Reset(heartbeatInterval)
		case <-st.ctx.Done():
			return 0, st.ctx.Err()
		}
	}
}

// pending reports whether there is something to read. err is the reason why the stream has ended,
// or nil if it has not.
func (st *stream) pending() (ready bool, err error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	return len(st.buffer) > 0, st.err
}

// takeBatch takes the next line from the buffer, or the part of this line that has arrived. As in
// Nomad, all events with the same index form one line.
func (st *stream) takeBatch() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.unread = st.cutLine()
	for {
		next, tail := st.cutLine(), batchEnd(st.unread)
		const head = `{"Events":[`
		if tail == "" || batchEnd(next) != tail || !bytes.HasPrefix(next, []byte(head)) {
			st.buffer = append(next, st.buffer...)
			return
		}
		st.unread = slices.Concat(st.unread[:len(st.unread)-len(tail)], []byte(","), next[len(head):])
	}
}

// cutLine removes the first line from the buffer and returns this line.
func (st *stream) cutLine() []byte {
	n := bytes.IndexByte(st.buffer, '\n') + 1
	if n == 0 {
		n = len(st.buffer)
	}
	line := slices.Clone(st.buffer[:n])
	st.buffer = st.buffer[n:]
	return line
}

// batchEnd returns the text that ends a batch of events. The end contains the index of the batch.
// batchEnd returns "" if the line is not a batch.
func batchEnd(line []byte) string {
	if i := bytes.LastIndex(line, []byte(`],"Index":`)); i >= 0 {
		return string(line[i:])
	}
	return ""
}

// Close ends the subscription.
func (st *stream) Close() error {
	st.end(io.ErrClosedPipe)
	return nil
}

// event is one event in Nomad's encoding.
type event struct {
	Topic, Type, Key, Namespace string
	FilterKeys                  []string
	Index                       uint64
	Payload                     any
}

// publish sends an event to all subscribers.
func (s *Server) publish(kind, topic, key, namespace string, payload any) {
	if rng := s.random(fmt.Sprint("early ", s.index)); s.was.index == s.index && rng.Float64() < s.eventFaults.Early {
		s.was.until = s.opts.Now().Add(time.Duration(rng.Float64() * float64(earlyBy)))
	}
	var line []byte
	for _, st := range slices.Clone(s.streams) {
		if st.ended() {
			s.streams = slices.DeleteFunc(s.streams, func(o *stream) bool { return o == st })
			continue
		}
		if !st.topics[topic] || st.without[namespace] {
			continue
		}
		if line == nil {
			text, err := json.Marshal(map[string]any{"Index": s.index, "Events": []event{{topic, kind, key, namespace, nil, s.index, payload}}})
			if err != nil {
				panic(err)
			}
			line = append(text, '\n')
		}
		s.deliver(st, line, fmt.Sprint(topic, " ", key, " ", s.index, " ", st.client))
	}
}

func (st *stream) ended() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.err != nil || st.ctx.Err() != nil
}

// deliver sends a line to a stream, and applies the random faults of s.eventFaults.
func (s *Server) deliver(st *stream, line []byte, name string) {
	f, roll := s.eventFaults, s.random("event "+name).Float64()
	switch {
	case roll < f.Lost:
		s.count("fault: an event is lost, and the stream ends")
		st.end(errors.New("unexpected EOF: subscription closed by server, client should resubscribe"))
		return
	case roll < f.Lost+f.SilentlyLost:
		s.count("fault: an event is lost")
		return
	case roll < f.Lost+f.SilentlyLost+f.Late:
		s.count("fault: an event is late")
		s.afterJitter(f.Delay/2, "late event "+name, func() { st.send(line) })
		return
	case roll < f.Lost+f.SilentlyLost+f.Late+f.Doubled:
		s.count("fault: an event comes twice")
		s.afterJitter(f.Delay/2, "event again "+name, func() { st.send(line) })
	}
	st.send(line)
}

// Restart restarts the servers, which ends all streams. A new leader continues pending work.
func (s *Server) Restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.streams {
		st.end(errRestarted)
	}
	s.streams = nil
	s.index += 5 // log entries of the new leader
}

// Silence makes all open streams silent, but does not end them.
func (s *Server) Silence() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.streams {
		st.mu.Lock()
		st.silent = true
		st.mu.Unlock()
	}
}
