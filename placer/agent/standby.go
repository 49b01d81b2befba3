// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
)

// answersItself reports whether a standby agent answers the request itself, because the request is
// about this agent, or needs no data of the placer.
func answersItself(r *http.Request) bool {
	path := r.URL.Path
	switch path {
	case "/", "/v1/agent", "/v1/metrics", "/v1/admission":
		return true
	case "/v1/health":
		return r.URL.Query().Get("active") != "true"
	default:
		return path != "/ui/" && strings.HasPrefix(path, "/ui/")
	}
}

// redirectIfStandby redirects requests that only the active agent can answer, while this agent
// stands by. The caller decides whether to send its token to the active agent's address.
func (s *server) redirectIfStandby(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, served := mux.Handler(r)
		alone := !s.file.HA.on()
		if alone || s.agent.current.Load() != nil || served == "" || answersItself(r) {
			mux.ServeHTTP(w, r)
			return
		}
		active, err := s.activeAddress(r.Context(), r.Host)
		switch {
		case err == nil:
			http.Redirect(w, r, active+r.URL.RequestURI(), http.StatusTemporaryRedirect)
		case r.URL.Path == "/ui/": // the page shows the error
			mux.ServeHTTP(w, r)
		default:
			http.Error(w, "this agent is on standby, and "+err.Error(), http.StatusServiceUnavailable)
		}
	})
}

// activeAddress returns the address of the active agent, or an error that explains why this agent
// does not redirect the request there. asked is the host at which the caller reached this agent.
func (s *server) activeAddress(ctx context.Context, asked string) (address string, err error) {
	active, err := s.activities.get(ctx)
	if err != nil {
		return "", errors.New(publicError(err))
	}
	host, _ := os.Hostname() // "" matches no other agent
	switch {
	case active.Agent == "" || active.Idle() && active.Trouble == "":
		return "", fmt.Errorf("no agent is active; a standby usually takes over within %s", s.file.HA.failover())
	case active.Address == "":
		return "", fmt.Errorf("the active agent, %s, publishes no address: set http { advertise } in the configuration of the active agent", active.Agent)
	case palapi.Loopback(active.Address) && active.Host() != host:
		return "", fmt.Errorf("the active agent, %s, listens only on its own machine: set http { bind_address } in the configuration of the active agent", active.Agent)
	}
	u, err := url.Parse(active.Address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == asked {
		return "", fmt.Errorf("the active agent, %s, publishes %s, which does not lead to it: set http { advertise } to its own address in the configuration of the active agent", active.Agent, active.Address)
	}
	return strings.TrimSuffix(active.Address, "/"), nil
}
