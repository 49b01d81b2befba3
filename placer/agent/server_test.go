// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/nomad-pal/nomad-pal/internal/patience"
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
