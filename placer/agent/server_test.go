// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/internal/patience"
	"github.com/nomad-pal/nomad-pal/placer/query"
)

// Questions leave no connection to Nomad open: Nomad allows an address 100 of
// them by default, and the agent places over the same address.
func TestQuestionsLeaveNoConnections(t *testing.T) {
	t.Parallel()
	var open, ever atomic.Int64
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Write([]byte(`[]`))
	}))
	srv.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			open.Add(1)
			ever.Add(1)
		case http.StateClosed:
			open.Add(-1)
		}
	}
	srv.Start()
	t.Cleanup(srv.Close)
	s := siteOn(t, srv.URL)
	front := httptest.NewServer(s.handler())
	t.Cleanup(front.Close)
	for _, path := range []string{"/v1/queue", "/v1/gpus", "/v1/job/train/explain", "/v1/queue"} {
		answer, err := http.Get(front.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
	}
	if ever.Load() == 0 {
		t.Fatal("nobody asked Nomad")
	}
	patience.Eventually(t, "all connections to Nomad are closed", func() bool { return open.Load() == 0 })
}

// Nothing is read again of a cluster that has not changed, but for the clock's sake.
func TestUnchangedClusterIsNotReadAgain(t *testing.T) {
	t.Parallel()
	f := newFake(t, nil)
	s := siteOn(t, f.URL)
	s.file.Nomad.Token = agentsToken
	read := func() *query.Snapshot {
		t.Helper()
		got, err := s.snapshots.get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s.snapshots.last.Load().made = time.Time{} // long ago
		return got
	}
	first := read()
	if read() != first {
		t.Error("read again")
	}
	f.set(func() { f.listed++ })
	second := read()
	if second == first {
		t.Error("a change was not read")
	}
	s.snapshots.last.Load().from = time.Time{}
	if read() == second {
		t.Error("what moves with the clock stands still")
	}
}

// A snapshot after the first reads only the nodes that have changed: a page that
// asks every few seconds must not make Nomad serve every node each time.
func TestSnapshotsReadChangedNodesOnly(t *testing.T) {
	t.Parallel()
	var index, read atomic.Int64
	index.Store(7)
	device := `{"Vendor": "nvidia", "Type": "gpu", "Name": "X", "Instances": [{"ID": "GPU-1", "Healthy": true}]}`
	node := func() string {
		return fmt.Sprintf(`{"ID": "n1", "Name": "one", "Status": "ready", "SchedulingEligibility": "eligible", "ModifyIndex": %d,
			"NodeResources": {"Devices": [%s]}}`, index.Load(), device)
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/nodes":
			fmt.Fprintf(w, "[%s]", node())
		case "/v1/node/n1":
			read.Add(1)
			fmt.Fprint(w, node())
		case "/v1/jobs", "/v1/allocations", "/v1/vars":
			fmt.Fprint(w, "[]")
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(srv.Close)
	s := siteOn(t, srv.URL)
	for _, look := range []struct{ index, read int64 }{{7, 1}, {7, 1}, {8, 2}} {
		index.Store(look.index)
		if _, err := s.snapshots.get(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.snapshots.last.Load().made = time.Time{} // long ago
		if got := read.Load(); got != look.read {
			t.Errorf("node at index %d: read %d times so far, want %d", look.index, got, look.read)
		}
	}
}
