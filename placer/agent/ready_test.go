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
