// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// An active agent that has not read the cluster yet is not healthy; a standby agent is healthy.
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

// An agent that is not active, and knows no active one, answers no question about the cluster, and
// reports why.
func TestNotAtWork(t *testing.T) {
	t.Parallel()
	f := newFake(t, nil)
	f.has(gpuJob("default", "train", 1))
	s := siteOn(t, f.URL)
	for path, method := range map[string]string{"/v1/queue": http.MethodGet, "/v1/gpus": http.MethodGet, "/v1/job/train/explain": http.MethodGet, "/v1/plan": http.MethodPost} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(method, path, strings.NewReader(`{"Job": `+gpuJob("default", "x", 1)+`}`))
		r.Header.Set("X-Nomad-Token", agentsToken)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // so that the test does not wait long
		defer cancel()
		if s.handler().ServeHTTP(w, r.WithContext(ctx)); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "this agent is not active") {
			t.Errorf("%s: status %d: %s", path, w.Code, w.Body)
		}
	}
}
