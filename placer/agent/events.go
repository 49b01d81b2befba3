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
	"time"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
)

const (
	// eventsKept is the maximum number of events that the agent keeps, which is enough for a busy
	// day. An event needs about 300 bytes.
	eventsKept = 5000
	// followFor is how long one request receives new events. The client then sends another request
	// with the last ID, and the agent checks the client's token again.
	followFor = time.Minute
)

// serveEvents returns events of the placer, oldest first, one JSON object per line:
//
//	GET /v1/events?after=<id>&job=<id>&namespace=<namespace>&kind=<kind>,…&last=<n>&follow=true
//
// serveEvents returns the events after the given ID, or all events, filtered by job, namespace and
// kind. With follow=true, the answer continues with new events for a minute. The client then sends
// another request with the last ID. The answer has no events of namespaces whose jobs the token cannot list.
// Events about GPUs require a token that can read the variable nomad-pal/failures. The agent keeps
// the last 5,000 events of its own placers in memory.
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
	last, err := count(q, "last")
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	wanted, follow := eventsWanted(q), q.Get("follow") == "true"
	if follow {
		done, ok := s.agent.followers.take(w, r)
		if !ok {
			return
		}
		defer done()
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	enc := json.NewEncoder(w)
	sees, operates := c.sees(r.Context()), c.asOperator(r.Context())
	over := time.NewTimer(followFor)
	defer over.Stop()
	for {
		events, changed := s.agent.hooks.Events.After(after)
		if len(events) > 0 {
			after = events[len(events)-1].ID
		}
		mine := func(e palapi.Event) (palapi.Event, bool) {
			e, ok := e.RedactedFor(sees, operates)
			return e, ok && wanted(e)
		}
		if tell(events, last, mine, enc) != nil {
			return // the client is gone
		}
		last = 0 // send all later events
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

// tell writes the events that mine accepts. If last is not 0, tell writes only that many of the
// newest. A list of them would stay in memory while a slow client reads, so tell makes none.
func tell(events []palapi.Event, last int, mine func(palapi.Event) (palapi.Event, bool), to *json.Encoder) error {
	from := 0
	for n := 0; last > 0 && n < last && from < len(events); {
		from++
		if _, ok := mine(events[len(events)-from]); ok {
			n++
		}
	}
	if last > 0 {
		events = events[len(events)-from:]
	}
	for _, e := range events {
		if e, ok := mine(e); ok {
			if err := to.Encode(e); err != nil {
				return err
			}
		}
	}
	return nil
}

// count returns the value of a parameter that limits the answer; 0, which means no limit, if the
// parameter is missing.
func count(q url.Values, name string) (int, error) {
	text := q.Get(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%s=%q is not a positive integer", name, text)
	}
	return n, nil
}

// eventsWanted returns a filter for the requested kinds, namespace, and job including its runs.
func eventsWanted(q url.Values) func(palapi.Event) bool {
	kinds := words(q["kind"])
	job := q.Get("job")
	ns := q.Get("namespace")
	return func(e palapi.Event) bool {
		return (job == "" || e.Job == job || runOf(e.Job, job)) && (ns == "" || ns == "*" || e.Namespace == ns) &&
			(len(kinds) == 0 || slices.Contains(kinds, string(e.Kind)))
	}
}

// runOf reports whether the job id is a run (a child) of the parameterized or periodic job parent.
// runOf only compares names, because Nomad may no longer have the run.
func runOf(id, parent string) bool {
	return strings.HasPrefix(id, parent+"/dispatch-") || strings.HasPrefix(id, parent+"/periodic-")
}
