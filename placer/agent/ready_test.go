// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/internal/testlog"
	"github.com/nomad-pal/nomad-pal/placer"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/query"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// An agent that leads and knows no cluster yet is not healthy; one that stands by is.
func TestHealthBeforeTheFirstCycle(t *testing.T) {
	s := siteOn(t, "http://127.0.0.1:1")
	for leads, want := range map[bool]int{true: http.StatusServiceUnavailable, false: http.StatusOK} {
		s.agent.leads.Store(leads)
		w := httptest.NewRecorder()
		s.serveHealth(w, httptest.NewRequest(http.MethodGet, "/v1/health", nil))
		if w.Code != want {
			t.Errorf("leads %t: status %d: %s", leads, w.Code, w.Body)
		}
	}
}

// Where the API cannot be opened and no port was asked for, the agent goes without; where one was,
// it does not start. 192.0.2.1 is nobody's (RFC 5737).
func TestNoAPI(t *testing.T) {
	log := &testlog.Buffer{}
	api, err := newAgent(log).listen(File{HTTP: &HTTP{BindAddress: "192.0.2.1"}})
	if err != nil || api != nil || !strings.Contains(log.String(), "going without the HTTP API") {
		t.Errorf("%v, %v: %s", api, err, log)
	}
	if _, err := newAgent(log).listen(File{HTTP: &HTTP{BindAddress: "192.0.2.1", BindPort: new(1)}}); err == nil || !strings.Contains(err.Error(), "opening the HTTP API") {
		t.Error(err)
	}
}

// A cluster that takes long to read is read less often: what was read is shown for three times as
// long as that took.
func TestFreshForLongerIfSlow(t *testing.T) {
	for _, c := range []struct {
		age, took time.Duration
		want      bool
	}{
		{snapshotAge / 2, 0, true},
		{2 * snapshotAge, 0, false},
		{2 * snapshotAge, snapshotAge, true},
		{5 * snapshotAge / 2, snapshotAge, true},
		{4 * snapshotAge, snapshotAge, false},
	} {
		s := &snapshot{Snapshot: &query.Snapshot{}, made: time.Now().Add(-c.age), took: c.took}
		if got := s.fresh(); got != c.want {
			t.Errorf("%s old, took %s: %t", c.age, c.took, got)
		}
	}
	if (*snapshot)(nil).fresh() {
		t.Error("none is fresh")
	}
}

// A standby answers by the configuration that is published.
func TestAnswersByPublishedConfiguration(t *testing.T) {
	t.Parallel()
	f := newFake(t, nil)
	client, err := nomad.NewClient(&api.Config{Address: f.URL, SecretID: agentsToken}, "")
	if err != nil {
		t.Fatal(err)
	}
	published := store.EffectiveConfig{Keys: map[string]string{"retries": "77"}, Locality: model.DefaultConfig().Locality}
	if err := store.In(client).EffectiveConfig().Write(t.Context(), published); err != nil {
		t.Fatal(err)
	}
	s := newSnapshots(func() (*nomad.Client, error) {
		return nomad.NewClient(&api.Config{Address: f.URL, SecretID: agentsToken}, "")
	}, func() *placer.Placer { return nil }, nil)
	if got, err := s.get(t.Context()); err != nil || got.Model().Cfg.Retries != 77 {
		t.Errorf("%v, want 77 retries", err)
	}
}
