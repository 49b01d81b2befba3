// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/semaphore"

	"github.com/nomad-pal/nomad-pal/placer"
)

// bodySite is a site with all endpoints that accept a job.
func bodySite(t *testing.T) *server {
	t.Helper()
	file := fileAt("http://127.0.0.1:1")
	file.Admission = &Admission{}
	s, err := New(hclog.NewNullLogger(), placer.Hooks{}).newServer(file)
	if err != nil {
		t.Fatal(err)
	}
	client, err := s.activities.connect()
	if err != nil {
		t.Fatal(err)
	}
	p, err := placer.New(client, s.cfg, hclog.NewNullLogger(), placer.Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	s.agent.current.Store(p) // so that it is active
	return s
}

var jobEndpoints = map[string]string{"/v1/plan": http.MethodPost, "/v1/admission": http.MethodPost}

// A short text that would need a thousand times its size in memory is rejected before it is parsed.
func TestHugeJobs(t *testing.T) {
	t.Parallel()
	s := bodySite(t)
	groups := func(n int) string { return strings.TrimSuffix(strings.Repeat(`{"Name":"g"},`, n), ",") }
	for name, c := range map[string]struct {
		list string
		want int
	}{
		"as many as may be": {groups(1000), 0},
		"groups":            {groups(bodyParts), http.StatusRequestEntityTooLarge},
		"lists":             {`{"Name":"g","Tasks":[{"Config":{"x":[` + strings.TrimSuffix(strings.Repeat("[],", bodyParts), ",") + `]}}]}`, http.StatusRequestEntityTooLarge},
		"braces in a text":  {`{"Name":"g","Tasks":[{"Name":"t","User":"` + strings.Repeat(`{[\"`, bodyParts) + `"}]}`, 0},
	} {
		for path, method := range jobEndpoints {
			w := httptest.NewRecorder()
			s.handler().ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(`{"Job": {"ID":"j","TaskGroups":[`+c.list+`]}}`)))
			if large := w.Code == http.StatusRequestEntityTooLarge; large != (c.want != 0) {
				t.Errorf("%s, %s: status %d: %.200s", name, path, w.Code, w.Body)
			}
		}
	}
	if !s.bodies.room.TryAcquire(bodiesBytes) {
		t.Error("an answered request still holds memory")
	}
}

// Requests share a limited amount of memory. A request for which none is left is rejected with the
// advice to try again, and holds no memory.
func TestBodiesShareRoom(t *testing.T) {
	t.Parallel()
	s := bodySite(t)
	s.bodies.room = semaphore.NewWeighted(10)
	job := `{"job": ` + gpuJob("default", "j", 1) + `}`
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			w := httptest.NewRecorder()
			s.handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/admission", strings.NewReader(job)))
			if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), "try again") {
				t.Errorf("status %d: %s", w.Code, w.Body)
			}
		})
	}
	wg.Wait()
	if !s.bodies.room.TryAcquire(10) {
		t.Error("the memory is not released")
	}
	s.bodies = newBodies()
	w := httptest.NewRecorder()
	s.handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/admission", strings.NewReader(job)))
	if w.Code != http.StatusOK {
		t.Errorf("tried again, with free memory: status %d: %s", w.Code, w.Body)
	}
}
