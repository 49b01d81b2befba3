// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"
)

// Defaults of the http block.
const (
	defaultAddress = "127.0.0.1"
	defaultPort    = 8090
)

type server struct {
	http     *http.Server
	listener net.Listener
	log      func(msg string, args ...any)
}

// listen opens the API. Where no port was asked for and the default one is
// taken, as by a second agent on the machine, the agent goes without.
func (a *Agent) listen(file File) (*server, error) {
	site, err := a.newSite(file)
	if err != nil {
		return nil, err
	}
	h := file.HTTP
	if h == nil {
		h = &HTTP{}
	}
	address, port := h.BindAddress, defaultPort
	if address == "" {
		address = defaultAddress
	}
	if h.BindPort != nil {
		port = *h.BindPort
	}
	l, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(port)))
	if err != nil && h.BindPort == nil {
		a.log.Warn("the default port is taken: going without the HTTP API; set http { bind_port }", "error", err)
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("opening the HTTP API: %w", err)
	}
	plain := l
	if l, err = h.secure(plain); err != nil {
		plain.Close()
		return nil, err
	}
	a.log.Info("HTTP API", "address", l.Addr(), "tls", h.CertFile != "")
	return &server{
		http:     &http.Server{Handler: site.handler(), ReadHeaderTimeout: 10 * time.Second},
		listener: l, log: a.log.Error,
	}, nil
}

// serve answers until ctx ends.
func (s *server) serve(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := s.http.Shutdown(grace); err != nil {
			s.http.Close()
		}
	})
	defer stop()
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		s.log("the HTTP API ended", "error", err)
	}
}

// Health is what /v1/health answers.
type Health struct {
	// Leader: this agent places; Ready: it knows the cluster.
	Leader bool      `json:"leader"`
	Ready  bool      `json:"ready"`
	At     time.Time `json:"last_cycle,omitzero"`
	// Warnings are about Nomad itself and its nodes: what keeps jobs from being
	// served, and which GPUs are left out.
	Warnings []string `json:"warnings,omitempty"`
}

func (a *Agent) health(w http.ResponseWriter, _ *http.Request) {
	h := Health{Leader: a.leads.Load()}
	if p := a.current.Load(); p != nil {
		s := p.Status()
		h.At, h.Warnings = s.At, s.Warnings
		h.Ready = !h.At.IsZero()
	}
	status := http.StatusOK
	if h.Leader && !h.Ready {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, h)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return // the client is gone
	}
}
