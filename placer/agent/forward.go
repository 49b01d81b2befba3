// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/heartbeat"
)

// forwardedBy is the header of a request that an agent which stands by has passed on, and names that
// agent. Such a request is not passed on again, so that none goes round in circles.
const forwardedBy = "X-Nomad-Pal-Forwarded-By"

// ofItself reports whether a request asks about the agent that gets it. All others ask about the
// cluster, which only the active agent knows.
func ofItself(r *http.Request) bool {
	switch path := r.URL.Path; path {
	case "/", "/v1/agent", "/v1/metrics", "/v1/admission":
		return true
	case "/v1/health":
		return r.URL.Query().Get("active") != "true"
	default:
		return strings.HasPrefix(path, "/ui/")
	}
}

// byActive has the active agent answer what this one does not know while it stands by.
func (s *server) byActive(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, served := mux.Handler(r)
		alone := s.file.HA == nil || !s.file.HA.Enabled
		if alone || s.agent.current.Load() != nil || served == "" || ofItself(r) {
			mux.ServeHTTP(w, r)
			return
		}
		if err := s.forward(w, r); err != nil {
			http.Error(w, "this agent stands by, and "+err.Error(), http.StatusServiceUnavailable)
		}
	})
}

// forward passes a request on to the active agent, with its caller's token.
func (s *server) forward(w http.ResponseWriter, r *http.Request) error {
	if by := r.Header.Get(forwardedBy); by != "" {
		return fmt.Errorf("agent %s, which asks it, takes it for the active one: try again in a moment", by)
	}
	to, at, err := s.activeAddress(r.Context(), r.Header)
	if err != nil {
		return err
	}
	cfg, err := s.file.Nomad.config()
	if err != nil {
		return err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil
	defer transport.CloseIdleConnections()
	cfg.TLSConfig.TLSServerName = "" // that of Nomad's servers
	if err := api.ConfigureTLS(&http.Client{Transport: transport}, cfg.TLSConfig); err != nil {
		return err
	}
	proxy := httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1, ErrorLog: s.agent.log.StandardLogger(nil),
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(at)
			for _, of := range []string{"Origin", "Referer", "Cookie", "Sec-Fetch-Site", "Sec-Fetch-Mode", "Sec-Fetch-Dest"} {
				p.Out.Header.Del(of) // of a page that this agent has served, and judged
			}
			p.Out.Header.Set(forwardedBy, name())
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			s.agent.log.Debug("the active agent does not answer", "agent", to.Agent, "address", at, "error", err)
			text := fmt.Sprintf("this agent stands by, and the active agent, %s, does not answer at %s", to.Agent, at)
			if bad, is := errors.AsType[*tls.CertificateVerificationError](err); is {
				text += fmt.Sprintf(": its certificate is not accepted (%v); this agent trusts nomad { ca_cert } of its configuration, else the system's authorities", bad.Err)
			}
			http.Error(w, text, http.StatusServiceUnavailable)
		},
	}
	proxy.ServeHTTP(w, r)
	return nil
}

// activeAddress is the address of the active agent, or why there is none.
func (s *server) activeAddress(ctx context.Context, asked http.Header) (to heartbeat.Activity, at *url.URL, err error) {
	if to, err = s.activities.get(ctx); err != nil {
		return to, nil, errors.New(publicError(err))
	}
	host, _ := os.Hostname() // that of no other agent, if it is not known
	switch {
	case to.Agent == "" || to.Idle() && to.Trouble == "":
		return to, nil, errors.New("no agent is active")
	case to.Address == "":
		return to, nil, fmt.Errorf("the active agent, %s, publishes no address: set http { advertise } in its configuration", to.Agent)
	case Loopback(to.Address) && to.Host() != host:
		return to, nil, fmt.Errorf("the active agent, %s, listens on its own machine only: set http { bind_address } in its configuration", to.Agent)
	}
	cfg, err := s.file.Nomad.config()
	if err != nil {
		return to, nil, err
	}
	secret := asked.Get("X-Nomad-Token") + asked.Get("Authorization")
	if err := Unprotected(to.Address, true, cfg.TLSConfig); err != nil && secret != "" && !cmp.Or(s.file.HTTP, &HTTP{}).TokenPlain {
		return to, nil, fmt.Errorf("does not ask the active agent, %s at %s, for you: %w; ask there yourself, or set http { token_plain = true }", to.Agent, to.Address, err)
	}
	at, err = url.Parse(to.Address)
	return to, at, err
}
