// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nomad-pal/nomad-pal/placer"
)

const (
	// eventsKept is how many events the agent remembers: those of a busy day, some 300
	// bytes each.
	eventsKept = 5000
	// followFor is how long one request gets new events. Whoever wants more asks
	// again from the last ID on; then his token is judged again.
	followFor = time.Minute
	// followersAtOnce bounds the requests that wait for events.
	followersAtOnce = 100
)

// serveEvents answers what the placer did, the oldest first, one JSON object a line:
//
//	GET /v1/events?after=<id>&job=<id>&namespace=<namespace>&kind=<kind>,…&last=<n>&follow=true
//
// Of events behind the ID, all without one; of one job, namespace or kind, if it is named. With
// follow=true, new events follow as they happen for a minute: ask again with the last ID
// then. With Accept: text/event-stream they are server-sent events. Events of namespaces
// of which the token cannot list the jobs are left out; those about GPUs are for tokens
// that read variables "nomad-pal/*". The agent keeps the last 5,000 in memory; an agent
// that does not place has none.
func (s *server) serveEvents(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	after, err := strconv.ParseUint(q.Get("after"), 10, 64)
	if err != nil && q.Get("after") != "" {
		http.Error(w, fmt.Sprintf("after=%q is not the ID of an event", q.Get("after")), http.StatusBadRequest)
		return
	}
	c, ok := s.judged(w, r, (*caller).listsSome)
	if !ok {
		return
	}
	last, err := lastOf(q)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	wanted, follow := eventsWanted(q), q.Get("follow") == "true"
	if follow {
		if !s.agent.follows(w) {
			return
		}
		defer s.agent.followers.Add(-1)
	}
	write := lines(w, strings.Contains(r.Header.Get("Accept"), "text/event-stream"))
	sees, operates := c.sees(r.Context()), sync.OnceValue(func() bool { return c.operates(r.Context()) })
	over := time.NewTimer(followFor)
	defer over.Stop()
	for {
		events, changed := s.agent.hooks.Events.After(after)
		var told []placer.Event
		for _, e := range events {
			after = e.ID
			if mine, ok := e.For(sees, operates); ok && wanted(e) {
				told = append(told, mine)
			}
		}
		if last > 0 {
			told, last = told[max(0, len(told)-last):], 0 // the rest is sent in full
		}
		for _, e := range told {
			if write(e) != nil {
				return // the client is gone
			}
		}
		if !follow {
			return
		}
		if err := http.NewResponseController(w).Flush(); err != nil {
			return
		}
		select {
		case <-changed:
		case <-over.C:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// lastOf is how many events are sent at most, the last ones; 0: all.
func lastOf(q url.Values) (int, error) {
	text := q.Get("last")
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("last=%q is not a number of at least 1", text)
	}
	return n, nil
}

// eventsWanted reports whether an event is of the job or one of its runs, the namespace and the kinds
// that are asked for.
func eventsWanted(q url.Values) func(placer.Event) bool {
	kinds, job, ns := words(q["kind"]), q.Get("job"), q.Get("namespace")
	return func(e placer.Event) bool {
		return (job == "" || e.Job == job || runOf(e.Job, job)) && (ns == "" || ns == "*" || e.Namespace == ns) &&
			(len(kinds) == 0 || slices.Contains(kinds, string(e.Kind)))
	}
}

// runOf reports whether a job is a run of a parameterized or periodic one, by the name that Nomad
// gives such runs: the run may be gone.
func runOf(id, parent string) bool {
	return strings.HasPrefix(id, parent+"/dispatch-") || strings.HasPrefix(id, parent+"/periodic-")
}

// lines writes one event after another.
func lines(w http.ResponseWriter, sent bool) func(placer.Event) error {
	if sent {
		w.Header().Set("Content-Type", "text/event-stream")
		return func(e placer.Event) error {
			text, err := json.Marshal(e)
			if err == nil {
				_, err = fmt.Fprintf(w, "id: %d\ndata: %s\n\n", e.ID, text)
			}
			return err
		}
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	enc := json.NewEncoder(w)
	return func(e placer.Event) error { return enc.Encode(e) }
}
