// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/heartbeat"
)

// forwardedBy is a header of forwarded requests. It contains the name of the standby agent that
// forwards the request. To prevent loops, no agent forwards a request with this header.
const forwardedBy = "X-Nomad-Pal-Forwarded-By"

// tooMany is the answer to a request if a standby agent already forwards too many.
const tooMany = "this standby agent is already forwarding too many requests: ask the active agent directly, or try again later"

// answersItself reports whether a standby agent answers the request itself, because the request is
// about this agent, or needs no data of the placer.
func answersItself(r *http.Request) bool {
	switch path := r.URL.Path; path {
	case "/", "/v1/agent", "/v1/metrics", "/v1/admission":
		return true
	case "/v1/health":
		return r.URL.Query().Get("active") != "true"
	default:
		return strings.HasPrefix(path, "/ui/")
	}
}

// forwardIfStandby forwards requests that only the active agent can answer, while this agent stands
// by.
func (s *server) forwardIfStandby(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, served := mux.Handler(r)
		alone := !s.file.HA.on()
		if alone || s.agent.current.Load() != nil || served == "" || answersItself(r) {
			mux.ServeHTTP(w, r)
			return
		}
		done, ok := s.agent.forwards.take(w, r)
		if !ok {
			return
		}
		defer done()
		if err := s.forward(w, r); err != nil {
			http.Error(w, "this agent is on standby, and "+err.Error(), http.StatusServiceUnavailable)
		}
	})
}

// forwardIdle is how long a standby agent keeps an unused connection to the active agent. The active
// agent closes unused connections later ([bounded]), so no request meets a closing connection.
// Tests use a longer time.
var forwardIdle = 30 * time.Second

// toActive returns the transport for requests to the active agent. It uses HTTP/1.1, because a
// connection that hangs then delays one request only.
func (n *Nomad) toActive() (*http.Transport, error) {
	cfg, err := n.config()
	if err != nil {
		return nil, err
	}
	cfg.TLSConfig.TLSServerName = "" // the configured name is the name of Nomad's servers
	t := &http.Transport{
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}, TLSHandshakeTimeout: 10 * time.Second,
		IdleConnTimeout: forwardIdle, MaxIdleConnsPerHost: forwardsAtOnce,
	}
	return t, api.ConfigureTLS(&http.Client{Transport: t}, cfg.TLSConfig)
}

// forward forwards a request to the active agent, with the caller's token.
func (s *server) forward(w http.ResponseWriter, r *http.Request) error {
	if by := r.Header.Get(forwardedBy); by != "" {
		return fmt.Errorf("agent %s forwarded the request to this agent as if it were active: try again in a moment; if the error persists, correct http { advertise } of the active agent", by)
	}
	to, at, err := s.activeAddress(r.Context(), r.Header)
	if err != nil {
		return err
	}
	if was := s.forwardedTo.Swap(&to.Agent); was != nil && *was != to.Agent {
		s.toActive.CloseIdleConnections()
	}
	ctx, cancel := context.WithCancel(r.Context())
	var looking sync.WaitGroup
	defer looking.Wait()
	defer cancel()
	looking.Go(func() { s.untilSucceeded(ctx, to.Agent, cancel) })
	proxy := httputil.ReverseProxy{
		Transport: s.toActive, FlushInterval: -1, ErrorLog: s.agent.log.StandardLogger(nil),
		ModifyResponse: func(resp *http.Response) error {
			for of := range resp.Header { // both agents set headers, and the active agent's replace this agent's
				w.Header().Del(of)
			}
			return nil
		},
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(at)
			for _, of := range []string{"Origin", "Referer", "Cookie", "Sec-Fetch-Site", "Sec-Fetch-Mode", "Sec-Fetch-Dest"} {
				p.Out.Header.Del(of) // these headers are about this agent's origin, and this agent has checked them
			}
			p.Out.Header.Set(forwardedBy, name())
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			s.agent.log.Debug("the active agent does not answer", "agent", to.Agent, "address", at, "error", err)
			if r.Context().Err() == nil { // otherwise nobody waits for the answer
				http.Error(w, s.unanswered(r, to.Agent, at, err, ctx.Err() != nil), http.StatusServiceUnavailable)
			}
		},
	}
	proxy.ServeHTTP(w, r.WithContext(ctx))
	return nil
}

// unanswered explains why the active agent at this address did not answer. succeeded reports
// whether another agent has become active.
func (s *server) unanswered(r *http.Request, agent string, at *url.URL, err error, succeeded bool) string {
	text := fmt.Sprintf("this agent is on standby, and the active agent, %s, does not answer at %s", agent, at)
	if bad, is := errors.AsType[*tls.CertificateVerificationError](err); is {
		return text + fmt.Sprintf(": this agent does not accept the active agent's certificate (%v); this agent trusts the CAs in nomad { ca_cert } of its configuration or, without ca_cert, the system's CAs", bad.Err)
	}
	op, is := errors.AsType[*net.OpError](err)
	if is && op.Op == "remote error" {
		return text + fmt.Sprintf(": the active agent does not accept this agent's certificate (%v); set nomad { client_cert, client_key } in this agent's configuration", op.Err)
	}
	if r.Method != http.MethodGet && !(is && op.Op == "dial") {
		text += ", but may have carried out the request"
	}
	if succeeded {
		return text + "; another agent is active now: send the request again"
	}
	return text + fmt.Sprintf("; if the active agent has ended, a standby usually takes over within %s", s.file.HA.failover())
}

// untilSucceeded calls ended once an agent with another name is active, because an agent that
// hangs, or whose machine is gone, does not close its connections. untilSucceeded returns when ctx
// ends.
func (s *server) untilSucceeded(ctx context.Context, agent string, ended func()) {
	for ctx.Err() == nil {
		if now, err := s.activities.get(ctx); err == nil && now.Agent != "" && now.Agent != agent {
			ended()
			return
		}
		pause(ctx, snapshotAge)
	}
}

// activeAddress returns the address of the active agent, or an error that explains why this agent
// cannot forward the request.
func (s *server) activeAddress(ctx context.Context, asked http.Header) (to heartbeat.Activity, at *url.URL, err error) {
	if to, err = s.activities.get(ctx); err != nil {
		return to, nil, errors.New(publicError(err))
	}
	host, _ := os.Hostname() // "" matches no other agent
	switch {
	case to.Agent == "" || to.Idle() && to.Trouble == "":
		return to, nil, fmt.Errorf("no agent is active; a standby usually takes over within %s", s.file.HA.failover())
	case to.Address == "":
		return to, nil, fmt.Errorf("the active agent, %s, publishes no address: set http { advertise } in the configuration of the active agent", to.Agent)
	case Loopback(to.Address) && to.Host() != host:
		return to, nil, fmt.Errorf("the active agent, %s, listens only on its own machine: set http { bind_address } in the configuration of the active agent", to.Agent)
	}
	cfg, err := s.file.Nomad.config()
	if err != nil {
		return to, nil, err
	}
	secret := asked.Get("X-Nomad-Token") + asked.Get("Authorization")
	if err := Unprotected(to.Address, true, cfg.TLSConfig); err != nil && secret != "" && !s.file.HTTP.TokenPlain {
		key := "http { token_plain = true }"
		if strings.HasPrefix(to.Address, "https:") {
			key = "nomad { ca_cert }"
		}
		return to, nil, fmt.Errorf("does not forward your request to the active agent, %s at %s: %w; send the request to the active agent directly, or set %s in this agent's configuration", to.Agent, to.Address, err, key)
	}
	at, err = url.Parse(to.Address)
	return to, at, err
}
