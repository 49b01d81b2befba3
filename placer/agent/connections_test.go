// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nomad-pal/nomad-pal/internal/patience"
)

// listening counts the connections of a test server: those open now, and the most at any time.
type listening struct {
	mu         sync.Mutex
	open, most int
}

func (l *listening) note(_ net.Conn, state http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch state {
	case http.StateNew:
		l.open++
		l.most = max(l.most, l.open)
	case http.StateClosed, http.StateHijacked:
		l.open--
	}
}

// Many callers at once share a few connections to Nomad, and the placer still reaches Nomad.
func TestCallersShareConnections(t *testing.T) {
	hold := make(chan struct{})
	var waiting atomic.Int64
	conns := &listening{}
	nomads := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Nomad-Token") != "the-agents-own" {
			waiting.Add(1)
			<-hold
		}
		_, _ = w.Write([]byte(`[]`))
	}))
	nomads.Config.ConnState = conns.note
	nomads.Start()
	defer nomads.Close()
	t.Setenv("NOMAD_TOKEN", "the-agents-own")
	s := siteOn(t, nomads.URL)
	answers := make(chan *httptest.ResponseRecorder, 200)
	for range 200 {
		go func() {
			w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/v1/failures", nil)
			r.Header.Set("X-Nomad-Token", "greedy")
			s.serveFailures(w, r)
			answers <- w
		}()
	}
	patience.Eventually(t, "callers wait for Nomad", func() bool { return waiting.Load() == callerConns })
	own, err := s.file.Nomad.Connect()
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := own.API().Nodes().List(one(t.Context(), "")); err != nil {
		t.Errorf("the placer does not reach Nomad: %v", err)
	}
	close(hold)
	for range 200 {
		<-answers
	}
	conns.mu.Lock()
	defer conns.mu.Unlock()
	if conns.most > callerConns+1 {
		t.Errorf("%d connections for 200 callers and the placer", conns.most)
	}
}
