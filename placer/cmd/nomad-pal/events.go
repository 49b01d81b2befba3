// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
)

var helpEvents = help("events [options]", `
Shows what nomad-pal did, oldest first: jobs queued, placed, moved to other GPUs,
resized, started, stopped, requeued, failed or ended; allocations that failed; and
GPUs that became unhealthy or were quarantined. The agent keeps in memory the last 5,000 events
since its start, and the last 120 failed allocations in Nomad. Events that your token may not see are left out.

Events Options:

  -follow                  Print new events as they happen, until interrupted.
  -job=<job>               Only events of this job, or of the runs of an array.
  -failures                Only failures: of allocations, with their cause, of jobs and of GPUs.
  -namespace=<namespace>   Only events of jobs of this namespace.
  -limit=<n>               Start with the last n events; 0: all. Default: 50 on
                           a terminal; otherwise all.
  -json                    Print one JSON object per line.
`, examples(
	"What happened to my job?", "nomad-pal events -job train",
	"What failed, and whose fault was it?", "nomad-pal events -failures",
	"Watch the cluster:", "nomad-pal events -follow -limit 10",
	"Append events to a file until Ctrl-C:", "nomad-pal events -follow -json >> events.jsonl",
), exitCodes, generalOptions)

// terminalEvents is the default number of events on a terminal.
const terminalEvents = 50

// failureKinds are the kinds of events that -failures selects.
var failureKinds = fmt.Sprintf("%s,%s,%s,%s,%s,%s", palapi.EventAllocFailed, palapi.EventLostMembers, palapi.EventGivenUp, palapi.EventRefused, palapi.EventQuarantined, palapi.EventUnhealthy)

// eventsAgain is the pause before retrying an agent that does not answer.
const eventsAgain = 2 * time.Second

func runEvents(b *base, args []string) int {
	fs := b.flags("events")
	follow := fs.Bool("follow", false, "")
	job := fs.String("job", "", "")
	failures := fs.Bool("failures", false, "")
	limit := fs.Int("limit", -1, "")
	if _, ok := b.parse(fs, args, 0); !ok {
		return 1
	}
	if b.given("limit") && *limit < 0 {
		return b.fail(fmt.Errorf("-limit %d is negative; 0 shows all", *limit))
	}
	if *limit < 0 && b.io.terminal {
		*limit = terminalEvents
	}
	s, err := b.ask()
	if err != nil {
		return b.fail(err)
	}
	q := url.Values{}
	if *job != "" {
		q.Set("job", *job)
	}
	if b.given("namespace") {
		q.Set("namespace", b.namespace)
	}
	if *failures {
		q.Set("kind", failureKinds)
	}
	last, err := pastEvents(b, s, q, *limit)
	if err != nil {
		return b.fail(err)
	}
	if !*follow {
		return s.close(0)
	}
	return followEvents(b, s, q, last)
}

// followEvents prints events as they happen, until the user interrupts the command.
func followEvents(b *base, s *answers, q url.Values, last uint64) int {
	q.Set("follow", "true")
	for lost := false; ; {
		if last > 0 {
			q.Set("after", fmt.Sprint(last))
		}
		err := readEvents(b, s, q, func(e palapi.Event) {
			last, lost = e.ID, false
			b.printEvent(e)
		})
		if b.ctx.Err() != nil {
			return 0
		}
		if err == nil {
			continue // the agent ends each answer after a while, so ask again
		}
		if !lost {
			fmt.Fprintln(b.io.err, "Warning: the agent does not answer; retrying:", err)
		}
		lost = true
		pause(b.ctx, eventsAgain)
	}
}

// pastEvents prints the last events, and returns the ID of the newest.
func pastEvents(b *base, s *answers, q url.Values, limit int) (last uint64, err error) {
	var all []palapi.Event
	if err := readEvents(b, s, q, func(e palapi.Event) { all = append(all, e) }); err != nil {
		return 0, err
	}
	switch {
	case len(all) > 0:
		last = all[len(all)-1].ID
	case b.given("namespace"):
		if err := b.noNamespace(s.nomad, b.namespace); err != nil {
			return 0, err
		}
	}
	if limit > 0 && len(all) > limit {
		all = all[len(all)-limit:]
	}
	for _, e := range all {
		b.printEvent(e)
	}
	if len(all) == 0 && !b.json {
		fmt.Fprintln(b.io.err, "No events yet.")
	}
	return last, nil
}

// readEvents sends one request for events, and calls take for each event in the answer.
func readEvents(b *base, s *answers, q url.Values, take func(palapi.Event)) error {
	body, err := s.agent.Raw().Response("/v1/events?"+q.Encode(), (&api.QueryOptions{}).WithContext(b.ctx))
	if err != nil {
		return s.plain(err)
	}
	defer body.Close()
	dec := json.NewDecoder(bufio.NewReader(body))
	for dec.More() {
		var e palapi.Event
		if err := dec.Decode(&e); err != nil {
			return fmt.Errorf("reading events: %w", err)
		}
		take(e)
	}
	return nil
}

// eventStyles maps kinds of events to styles. Events of other kinds have no colour.
var eventStyles = map[palapi.EventKind]style{
	palapi.EventStarted: green, palapi.EventPlaced: green, palapi.EventMoved: green, palapi.EventResized: green, palapi.EventRequeued: yellow, palapi.EventStopped: yellow, palapi.EventLostMembers: yellow,
	palapi.EventGivenUp: red, palapi.EventRefused: red, palapi.EventAllocFailed: red, palapi.EventQuarantined: red,
	palapi.EventUnhealthy: red, palapi.EventHealthy: green,
}

func (b *base) printEvent(e palapi.Event) {
	if b.json {
		text, err := json.Marshal(e)
		if err == nil {
			fmt.Fprintln(b.io.out, string(text))
		}
		return
	}
	whom := e.Namespace + "/" + e.Job
	if e.Job == "" {
		whom = e.GPU
	}
	text := whom + " " + e.Text
	if e.ForJob != "" {
		text += ", for " + e.ForJob
	}
	kind := string(e.Kind)
	if s, ok := eventStyles[e.Kind]; ok {
		kind = paint(s, kind)
	}
	mark := e.At.Local().Format("2006-01-02 15:04:05") + "  " + kind + strings.Repeat(" ", max(1, 13-len(e.Kind)))
	b.io.sayAfter(mark, plain, text)
}
