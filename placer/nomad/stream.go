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
	"github.com/tidwall/gjson"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

// eventsIn parses the events in one line of the stream. A heartbeat contains no events. The stream
// continues after an event that cannot be parsed. Whenever an allocation changes, Nomad also sends
// tens of kB about the allocation's node, which placement does not need (seen on 1.11.3). eventsIn
// skips such an event without parsing it.
func eventsIn(line []byte) (es []cluster.Event, err error) {
	batch := gjson.ParseBytes(line)
	if !batch.IsObject() {
		return nil, fmt.Errorf("%.80q is not a batch of events", line)
	}
	batch.Get("Events").ForEach(func(_, v gjson.Result) bool {
		kind := v.Get("Type").Str
		if v.Get("Topic").Str == "Node" && (kind == "AllocationUpdated" || kind == "PlanResult") {
			return true
		}
		var e cluster.Event
		wrong := json.Unmarshal([]byte(v.Raw), &e)
		if wrong != nil {
			if !gjson.ValidBytes(line) {
				err = fmt.Errorf("%.80q… is not a batch of events: %w", line, wrong)
				return false
			}
			e = cluster.Event{Topic: v.Get("Topic").Str, Key: v.Get("Key").Str, Index: v.Get("Index").Uint()}
			e.Unread = fmt.Errorf("event of %s %.100q: %w", e.Topic, e.Key, wrong)
		}
		es = append(es, e)
		return true
	})
	return es, err
}

// heartbeat is the longest time without data on the stream. Nomad sends an empty object every 30 s
// (1.11.3), so a longer time means that the connection is broken, or that the server has closed the
// subscription and left the connection open.
const heartbeat = 45 * time.Second

// ErrHeartbeatTimeout means that the client ended a stream because the server sent no more
// heartbeats.
var ErrHeartbeatTimeout = errors.New("the event stream sends no heartbeats")

// ErrSilent means that the client ended a stream on which nothing ever arrived, not even a
// heartbeat. If a token lacks a permission in a namespace, Nomad answers with status 200 and then
// sends nothing (seen on 1.11.3).
var ErrSilent = fmt.Errorf("the event stream stays silent: the token may lack %s", Events)

// Stream is a subscription to the events of Nomad.
type Stream struct {
	body   io.ReadCloser
	cancel context.CancelFunc
}

// Subscribe opens the event stream. The stream contains all events that happen after Subscribe has
// returned. The stream may also contain earlier events. So if a caller reads the lists after
// Subscribe has returned, the caller misses no change (see [cluster.State.Apply]).
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

// JobsIndex returns the index of the last change to any job.
func (c *Client) JobsIndex(ctx context.Context) (uint64, error) {
	q := everywhere(ctx)
	q.PerPage = 1
	_, meta, err := c.api.Jobs().List(q)
	if err != nil {
		return 0, fmt.Errorf("reading the index of jobs: %w", Denied(err, ListJobs))
	}
	return meta.LastIndex, nil
}

// Namespaces returns the set of the namespaces that the token may see.
func (c *Client) Namespaces(ctx context.Context) (map[string]bool, error) {
	list, _, err := c.api.Namespaces().List((&api.QueryOptions{}).WithContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("reading namespaces: %w", err)
	}
	names := map[string]bool{}
	for _, n := range list {
		if n != nil {
			names[n.Name] = true
		}
	}
	return names, nil
}

// Close ends the subscription, so that Run returns.
func (s *Stream) Close() {
	s.cancel()
	s.body.Close()
}

// Run calls f with each batch of events. Run returns when the stream breaks, heartbeats stop, or f
// returns an error.
func (s *Stream) Run(f func([]cluster.Event) error) error {
	var timedOut atomic.Bool
	watch := time.AfterFunc(heartbeat, func() { timedOut.Store(true); s.Close() })
	defer watch.Stop()
	in := bufio.NewReaderSize(s.body, 1<<16)
	for begun := false; ; begun = true {
		line, err := in.ReadBytes('\n')
		switch {
		case (timedOut.Load() || err == io.EOF) && !begun:
			return ErrSilent
		case timedOut.Load():
			return ErrHeartbeatTimeout
		}
		var es []cluster.Event
		if err == nil {
			es, err = eventsIn(line)
		}
		if err != nil {
			return fmt.Errorf("reading Nomad's events: %w", err)
		}
		if len(es) > 0 {
			watch.Stop() // f may take longer than the time limit for heartbeats
			if err := f(es); err != nil {
				return err
			}
		}
		watch.Reset(heartbeat)
	}
}
