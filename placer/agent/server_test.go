// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"sync/atomic"
	"testing"

	"github.com/nomad-pal/nomad-pal/internal/patience"
)

// Requests leave no open connection to Nomad: by default, Nomad allows 100 connections per address,
// and the placer uses the same address.
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

// The page shows explain's first and last sentences, in its reader's time zone, without changing
// their words.
func TestExplainIsWorded(t *testing.T) {
	t.Parallel()
	f := newFake(t, map[string][]string{"bob": {"research"}})
	f.has(gpuJob("research", "mine", 1), "GPU-1")
	f.has(gpuJob("research", "wide", 16))
	r := f.run(openConfig).ready()
	for path, want := range map[string]string{
		"mine/explain?namespace=research":                   `"summary": "mine runs on 1 GPU of node one, placed [-0-9]+ [:0-9]+ UTC \(`,
		"mine/explain?namespace=research&zone=Asia/Kolkata": `"summary": "mine runs on 1 GPU of node one, placed [-0-9]+ [:0-9]+ IST \(`,
		"mine/explain?namespace=research&zone=Nowhere":      `"summary": "mine runs on 1 GPU of node one, placed [-0-9]+ [:0-9]+ UTC \(`,
		"wide/explain?namespace=research": `"summary": "wide can never start here as written: needs 16 GPUs; .*\s+"next": \[\s+` +
			`"The job could run with 3 instead of 16 GPUs for each member \(gpus=3\)\.",\s+"To try a change without making it: nomad-pal explain -what-if gpus=3 -namespace research wide"\s+\]`,
	} {
		if status, text := r.send(http.MethodGet, "/v1/job/"+path, "bob", ""); status != http.StatusOK || !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("%s: %d %s\nwant %s", path, status, text, want)
		}
	}
}
