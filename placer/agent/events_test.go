// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
)

// Events after a given ID are served to callers who may see
// them. A token that may list nothing is rejected before the first event.
func TestEventsEndpoint(t *testing.T) {
	t.Parallel()
	f := newFake(t, map[string][]string{"alice": {"research"}})
	r := f.run(openConfig).ready()
	log := r.agent.hooks.Events
	log.Add(palapi.Event{Kind: palapi.EventPlaced, Namespace: "research", Job: "mine", Text: "gets GPUs", At: time.Unix(0, 0).UTC()})
	log.Add(palapi.Event{Kind: palapi.EventPlaced, Namespace: "default", Job: "hers", Text: "gets GPUs"})
	log.Add(palapi.Event{Kind: palapi.EventQuarantined, GPUs: []string{"GPU-1"}, Text: "is quarantined"})
	log.Add(palapi.Event{Kind: palapi.EventStopped, Namespace: "research", Job: "other", ForJob: "default/hers", Text: "is stopped"})
	log.Add(palapi.Event{Kind: palapi.EventPlaced, Namespace: "default", Job: "sweep/dispatch-1-a", Text: "gets GPUs"})
	get := func(path, token string) string {
		t.Helper()
		status, text := r.send(http.MethodGet, path, token, "")
		if status != http.StatusOK {
			t.Fatalf("%s: %d %s", path, status, text)
		}
		return text
	}
	all := get("/v1/events", agentsToken)
	if strings.Count(all, "\n") != 5 || !strings.Contains(all, "GPU-1") || !strings.Contains(all, `"for_job":"default/hers"`) {
		t.Errorf("to an operator:\n%s", all)
	}
	his := get("/v1/events", "alice")
	if strings.Count(his, "\n") != 2 || strings.Contains(his, "hers") || strings.Contains(his, "GPU-1") || !strings.Contains(his, palapi.Unseen) {
		t.Errorf("to alice:\n%s", his)
	}
	if one := get("/v1/events?job=mine", agentsToken); strings.Count(one, "\n") != 1 || !strings.Contains(one, `"mine"`) {
		t.Errorf("of one job:\n%s", one)
	}
	if runs := get("/v1/events?job=sweep", agentsToken); strings.Count(runs, "\n") != 1 || !strings.Contains(runs, "sweep/dispatch-1-a") {
		t.Errorf("of an array:\n%s", runs)
	}
	if some := get("/v1/events?namespace=default", agentsToken); strings.Count(some, "\n") != 2 || !strings.Contains(some, `"hers"`) {
		t.Errorf("of a namespace:\n%s", some)
	}
	if some := get("/v1/events?kind="+string(palapi.EventQuarantined), agentsToken); strings.Count(some, "\n") != 1 || !strings.Contains(some, "GPU-1") {
		t.Errorf("of a kind:\n%s", some)
	}
	if all := strings.SplitAfter(strings.TrimSpace(all), "\n"); len(all) > 2 {
		if two := get("/v1/events?last=2", agentsToken); strings.TrimSpace(two) != strings.Join(all[len(all)-2:], "") {
			t.Errorf("the last two:\n%s\nof\n%s", two, all)
		}
	}
	if status, _ := r.send(http.MethodGet, "/v1/events?last=0", agentsToken, ""); status != http.StatusBadRequest {
		t.Errorf("the last none: %d", status)
	}
	es, _ := log.After(0)
	kinds := fmt.Sprintf("/v1/events?kind=%s,%s", es[0].Kind, palapi.EventQuarantined)
	if two := get(kinds, agentsToken); !strings.Contains(two, "GPU-1") || !strings.Contains(two, string(es[0].Kind)) {
		t.Errorf("of two kinds:\n%s", two)
	}
	if last := get("/v1/events?after="+fmt.Sprint(es[2].ID), agentsToken); strings.Count(last, "\n") != 2 || !strings.Contains(last, `"other"`) {
		t.Errorf("after the third: %q", last)
	}
	if status, _ := r.send(http.MethodGet, "/v1/events?after=x", agentsToken, ""); status != http.StatusBadRequest {
		t.Errorf("an invalid ID: %d", status)
	}
	if status, _ := r.send(http.MethodGet, "/v1/events", "", ""); status != http.StatusForbidden {
		t.Errorf("without a token: %d", status)
	}
}

// A follower gets the events since its request. It counts towards the limit of followers only while
// it is connected.
func TestEventsFollow(t *testing.T) {
	t.Parallel()
	f := newFake(t, nil)
	r := f.run(openConfig).ready()
	ctx, cancel := context.WithCancel(t.Context())
	req := httptest.NewRequest(http.MethodGet, "/v1/events?follow=true", nil).WithContext(ctx)
	req.Header.Set("X-Nomad-Token", agentsToken)
	s, err := r.agent.newServer(fileAt(f.URL))
	if err != nil {
		t.Fatal(err)
	}
	w := &flushed{ResponseRecorder: httptest.NewRecorder(), flushed: make(chan string, 100)}
	ended := make(chan bool)
	go func() { s.serveEvents(w, req); close(ended) }()
	<-w.flushed
	r.agent.hooks.Events.Add(palapi.Event{Kind: palapi.EventPlaced, Namespace: "default", Job: "late", Text: "gets GPUs"})
	until(t, "the follower gets the event", func() bool {
		select {
		case text := <-w.flushed:
			return strings.Contains(text, `"late"`)
		default:
			return false
		}
	})
	if !r.agent.followers.room.TryAcquire(followersAtOnce - 1) {
		t.Fatal("more than one follows")
	}
	if status, _ := r.send(http.MethodGet, "/v1/events?follow=true", agentsToken, ""); status != http.StatusServiceUnavailable {
		t.Errorf("one too many: %d", status)
	}
	r.agent.followers.room.Release(followersAtOnce - 1)
	cancel()
	<-ended
	if !r.agent.followers.room.TryAcquire(followersAtOnce) {
		t.Error("one still follows")
	}
}

// flushed records what has been written at each flush.
type flushed struct {
	*httptest.ResponseRecorder
	flushed chan string
}

func (f *flushed) FlushError() error {
	f.flushed <- f.Body.String()
	return nil
}
