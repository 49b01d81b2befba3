// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomadtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// beat is how often Nomad sends a heartbeat on the event stream.
const beat = 10 * time.Second

var (
	errServerClosed = errors.New("the server was closed")
	errRestarted    = errors.New("unexpected EOF: the server was restarted")
)

// EventFaults are how likely it is for each event and stream that something
// happens to it. An event that is lost ends the stream, as Nomad does where a
// subscriber cannot follow; SilentlyLost does not, which Nomad never does.
type EventFaults struct {
	Lost, SilentlyLost, Late, Doubled float64
	// Delay is how late an event that is late comes at most; others overtake it.
	Delay time.Duration
}

// SetEventFaults sets what happens to events from now on.
func (s *Server) SetEventFaults(f EventFaults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.eventFaults = f
}

// stream is a subscription to the events.
type stream struct {
	client string
	topics map[string]bool
	notify chan struct{}
	ctx    context.Context

	mu     sync.Mutex
	buffer []byte
	err    error
	silent bool // not even heartbeats
}

// subscribe begins a subscription.
func (s *Server) subscribe(ctx context.Context, client string, topics []string) *stream {
	st := &stream{client: client, topics: map[string]bool{}, notify: make(chan struct{}, 1), ctx: ctx, buffer: []byte("{}\n")}
	for _, t := range topics {
		st.topics[t] = true
	}
	s.streams = append(s.streams, st)
	return st
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

// Read waits for events, or until a heartbeat is due.
func (st *stream) Read(b []byte) (int, error) {
	next := time.NewTimer(beat)
	defer next.Stop()
	for {
		st.mu.Lock()
		if n := copy(b, st.buffer); n > 0 {
			st.buffer = slices.Delete(st.buffer, 0, n)
			st.mu.Unlock()
			return n, nil
		}
		err := st.err
		st.mu.Unlock()
		if err != nil {
			return 0, err
		}
		select {
		case <-st.notify:
		case <-next.C:
			st.send([]byte("{}\n"))
			next.Reset(beat)
		case <-st.ctx.Done():
			return 0, st.ctx.Err()
		}
	}
}

// Close ends the subscription.
func (st *stream) Close() error {
	st.end(io.ErrClosedPipe)
	return nil
}

// event is one event as Nomad encodes it.
type event struct {
	Topic, Type, Key, Namespace string
	FilterKeys                  []string
	Index                       uint64
	Payload                     any
}

// tell sends an event to all who have subscribed.
func (s *Server) tell(kind, topic, key, namespace string, payload any) {
	var line []byte
	for _, st := range slices.Clone(s.streams) {
		if st.ended() {
			s.streams = slices.DeleteFunc(s.streams, func(o *stream) bool { return o == st })
			continue
		}
		if !st.topics[topic] {
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

// deliver sends a line with whatever chance makes of it.
func (s *Server) deliver(st *stream, line []byte, name string) {
	f, roll := s.eventFaults, s.random("event "+name).Float64()
	switch {
	case roll < f.Lost:
		st.end(errors.New("unexpected EOF: subscription closed by server, client should resubscribe"))
		return
	case roll < f.Lost+f.SilentlyLost:
		return
	case roll < f.Lost+f.SilentlyLost+f.Late:
		s.after(f.Delay/2, "late event "+name, func() { st.send(line) })
		return
	case roll < f.Lost+f.SilentlyLost+f.Late+f.Doubled:
		s.after(f.Delay/2, "event again "+name, func() { st.send(line) })
	}
	st.send(line)
}

// Restart restarts the servers: streams end, requests under way are not
// answered, and a new leader takes up what is pending.
func (s *Server) Restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.streams {
		st.end(errRestarted)
	}
	s.streams = nil
	s.index += 5 // a leader's own entries
}

// Silence has all streams that are open now fall silent, without an end.
func (s *Server) Silence() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.streams {
		st.mu.Lock()
		st.silent = true
		st.mu.Unlock()
	}
}
