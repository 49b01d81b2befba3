// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package replay

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/bench/rank"
)

// plainNomad lists these failed allocations (id → job), and records for which jobs the caller
// requests an evaluation.
type plainNomad struct {
	t      *testing.T
	failed map[string]string
	listed int
	asked  []string
}

func (n *plainNomad) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/v1/allocations" {
		n.listed++
		if f := r.URL.Query().Get("filter"); !strings.Contains(f, "failed") || !strings.Contains(f, "NextAllocation") {
			n.t.Errorf("lists %q", f)
		}
		var stubs []api.AllocationListStub
		for id, job := range n.failed {
			stubs = append(stubs, api.AllocationListStub{ID: id, JobID: job})
		}
		_ = json.NewEncoder(w).Encode(stubs)
		return
	}
	body, _ := io.ReadAll(r.Body)
	if !strings.Contains(string(body), `"ForceReschedule":true`) {
		n.t.Errorf("asked for %s", body)
	}
	n.asked = append(n.asked, strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, "/v1/job/"), "/evaluate"))
	if strings.Contains(r.URL.Path, "gone") {
		http.Error(w, "job not found", http.StatusNotFound)
		return
	}
	io.WriteString(w, "{}")
}

// The watcher requests one evaluation per ended rank, however often it looks, and none for ranks
// that ended long ago. A job that Nomad no longer has is not an error.
func TestRetries(t *testing.T) {
	t.Parallel()
	n := &plainNomad{t: t}
	server := httptest.NewServer(n)
	defer server.Close()
	nomad, err := api.NewClient(&api.Config{Address: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	at := time.Unix(1_000_000, 0)
	var rs retries
	for _, c := range []struct {
		what   string
		after  time.Duration
		ended  int
		failed map[string]string
		looks  int
		want   []string
	}{
		{"nothing has ended", 0, 0, map[string]string{"a1": "a"}, 0, nil},
		{"the client has not reported it yet", time.Second, 1, nil, 1, nil},
		{"it has", 2 * time.Second, 1, map[string]string{"a1": "a"}, 1, []string{"a"}},
		{"the evaluation was requested", 3 * time.Second, 1, map[string]string{"a1": "a"}, 1, nil},
		{"long ago", 4 * time.Second, 1, map[string]string{"a1": "a", "a2": "a"}, 0, nil},
		{"several", 5 * time.Second, 4, map[string]string{"a1": "a", "a2": "a", "a3": "a", "b1": "b", "c1": "done"}, 1, []string{"a", "b"}},
		{"gone", 6 * time.Second, 5, map[string]string{"g1": "gone"}, 1, []string{"gone"}},
	} {
		n.failed, n.listed, n.asked = c.failed, 0, nil
		states := []rank.State{{Job: "a", Ended: c.ended}, {Job: "b"}, {Job: "gone"}, {Job: "done", Finished: true}}
		if err := rs.push(t.Context(), nomad, at.Add(c.after), states); err != nil {
			t.Fatal(err)
		}
		if n.listed != c.looks || !cmp.Equal(n.asked, c.want) {
			t.Errorf("%s: looked %d times and evaluated %v, want %d and %v", c.what, n.listed, n.asked, c.looks, c.want)
		}
	}
}
