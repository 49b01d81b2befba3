// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package replay

import (
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

// Only jobs whose ranks ended a short time ago are asked for, and a job that
// Nomad does not know any more is no error.
func TestRetries(t *testing.T) {
	t.Parallel()
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if !strings.Contains(string(body), `"ForceReschedule":true`) {
			t.Errorf("asked for %s", body)
		}
		asked = append(asked, r.URL.Path)
		if strings.Contains(r.URL.Path, "gone") {
			http.Error(w, "job not found", http.StatusNotFound)
			return
		}
		io.WriteString(w, "{}")
	}))
	defer server.Close()
	nomad, err := api.NewClient(&api.Config{Address: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	rs, at := retries{}, time.Unix(1_000_000, 0)
	for _, c := range []struct {
		after time.Duration
		state rank.State
		want  []string
	}{
		{0, rank.State{Job: "a"}, nil},
		{time.Second, rank.State{Job: "a", Ended: 1}, []string{"/v1/job/a/evaluate"}},
		{2 * time.Second, rank.State{Job: "a", Ended: 1}, []string{"/v1/job/a/evaluate"}},
		{4 * time.Second, rank.State{Job: "a", Ended: 1}, nil},
		{5 * time.Second, rank.State{Job: "a", Ended: 3}, []string{"/v1/job/a/evaluate"}},
		{5 * time.Second, rank.State{Job: "a", Ended: 4, Finished: true}, nil},
		{6 * time.Second, rank.State{Job: "gone", Ended: 1}, []string{"/v1/job/gone/evaluate"}},
	} {
		asked = nil
		if err := rs.push(t.Context(), nomad, at.Add(c.after), []rank.State{c.state}); err != nil {
			t.Fatal(err)
		}
		if !cmp.Equal(asked, c.want) {
			t.Errorf("%v, %+v: asked for %v, want %v", c.after, c.state, asked, c.want)
		}
	}
}
