// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/hashicorp/nomad/api"
)

// Event is a change that [State.Apply] takes.
type Event struct {
	Topic, Type string
	Index       uint64
	Key         string
	Namespace   string
	Payload     struct {
		RawNode    json.RawMessage `json:"Node"`
		Node       *api.Node       `json:"-"`
		Job        *api.Job
		Deleted    bool // the job was purged
		Allocation *allocPayload
	}
}

// readNode decodes the node, unless the event is of an allocation: with every
// change of one Nomad sends its whole node again, in which nothing is new that
// placing looks at (seen on 1.11.3).
func (e *Event) readNode() error {
	if e.Payload.RawNode == nil || e.Type == "AllocationUpdated" || e.Type == "PlanResult" {
		return nil
	}
	if err := json.Unmarshal(e.Payload.RawNode, &e.Payload.Node); err != nil {
		return fmt.Errorf("node %q: %w", e.Key, err)
	}
	e.Payload.RawNode = nil
	return nil
}

// heartbeat is how long the stream may be silent; Nomad sends an empty object
// every 10 s.
const heartbeat = 45 * time.Second

// ErrSilent ends a stream whose server sends no heartbeats any more.
var ErrSilent = errors.New("the event stream is silent")

// Stream is a subscription to Nomad's events.
type Stream struct {
	body   io.ReadCloser
	cancel context.CancelFunc
}

// Subscribe opens the event stream. What happens from now on will be in it;
// what happened before may be, too. Nothing is lost when the lists are read
// after Subscribe returns: see [State.Apply].
func (c *Client) Subscribe(ctx context.Context) (*Stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	q := everywhere(ctx)
	v := url.Values{"topic": {"Node:*", "Job:*", "Allocation:*"}}
	body, err := c.api.Raw().Response("/v1/event/stream?"+v.Encode(), q)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("subscribing to Nomad's events: %w", Denied(err, Events))
	}
	return &Stream{body: body, cancel: cancel}, nil
}

// Close ends the subscription; Run then returns.
func (s *Stream) Close() {
	s.cancel()
	s.body.Close()
}

// Run hands batches of events to f until the stream breaks, falls silent or f
// returns an error.
func (s *Stream) Run(f func([]Event) error) error {
	var silent atomic.Bool
	watch := time.AfterFunc(heartbeat, func() { silent.Store(true); s.Close() })
	defer watch.Stop()
	dec := json.NewDecoder(bufio.NewReaderSize(s.body, 1<<16))
	for {
		var batch struct{ Events []Event }
		if err := dec.Decode(&batch); err != nil {
			if silent.Load() {
				return ErrSilent
			}
			return fmt.Errorf("reading Nomad's events: %w", err)
		}
		for i := range batch.Events {
			if err := batch.Events[i].readNode(); err != nil {
				return fmt.Errorf("reading Nomad's events: %w", err)
			}
		}
		if len(batch.Events) > 0 {
			watch.Stop() // it is not the server that is silent while f takes its time
			if err := f(batch.Events); err != nil {
				return err
			}
		}
		watch.Reset(heartbeat)
	}
}

// purged says whether the event's job is gone. Nomad says so from 1.11 on;
// before, a purge is told from a stop by the job alone, which a stop changes and
// a purge does not.
func (e Event) purged() bool {
	p := e.Payload
	return p.Deleted || e.Type == "JobDeregistered" && p.Job.ModifyIndex != nil && *p.Job.ModifyIndex < e.Index
}

// Apply takes an event unless the lists already hold it, and says whether
// anything that matters for GPUs changed.
func (s *State) Apply(e Event) bool {
	switch p := e.Payload; {
	case e.Topic == "Node" && e.Index > s.nodesAt && e.Type == "NodeDeregistration":
		s.dropNode(e.Key)
	case e.Topic == "Node" && e.Index > s.nodesAt && p.Node != nil:
		return s.putNode(p.Node)
	case e.Topic == "Allocation" && e.Index > s.allocsAt && p.Allocation != nil:
		s.PutAlloc(p.Allocation.alloc())
	case e.Topic == "Job" && e.Index > s.jobsAt && p.Job != nil && e.purged():
		if now := s.Jobs[KeyOf(p.Job)]; now != nil && *now.ModifyIndex > e.Index {
			return false // registered again since
		}
		s.dropJob(KeyOf(p.Job))
	case e.Topic == "Job" && e.Index > s.jobsAt && p.Job != nil:
		s.PutJob(p.Job)
	default:
		return false
	}
	return true
}
