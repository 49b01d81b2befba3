// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomadtest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"syscall"
	"time"

	"github.com/hashicorp/nomad/api"
	"github.com/tidwall/gjson"
)

// Config returns a configuration with which nomad/api sends requests to the server without sockets.
// client is the name of this client in faults and recorded writes.
func (s *Server) Config(client, token string) *api.Config {
	return &api.Config{Address: "http://nomad.test", SecretID: token, HttpClient: &http.Client{Transport: s.Transport(client)}}
}

// Transport returns a transport that sends requests to the server without sockets. Faults can
// affect the requests that this transport sends.
func (s *Server) Transport(client string) http.RoundTripper { return transport{s, client} }

type transport struct {
	s      *Server
	client string
}

// clientHeader carries the client's name to the handler.
const clientHeader = "Nomadtest-Client"

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := bodyOf(r)
	if err != nil {
		return nil, err
	}
	s := t.s
	s.mu.Lock()
	req := Request{Client: t.client, Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery}
	if r.Method == http.MethodPut && r.URL.Path == "/v1/jobs" {
		req.Job = gjson.GetBytes(body, "Job.ID").Str
	}
	req.Number = s.count("request " + t.client + r.Method + r.URL.Path + "?" + r.URL.RawQuery + req.Job)
	wait := s.jitter(s.opts.Latency, "latency "+req.String())
	s.mu.Unlock()
	if err := pause(r.Context(), wait); err != nil {
		return nil, err
	}
	s.mu.Lock()
	fault, closed := s.faultOf(req), s.closed || s.disconnected[t.client]
	s.mu.Unlock()
	if closed {
		fault = Refused
	}
	return t.send(r, body, fault)
}

func bodyOf(r *http.Request) ([]byte, error) {
	if r.Body == nil {
		return nil, nil
	}
	defer r.Body.Close()
	return io.ReadAll(r.Body)
}

// send passes a request to the server, and applies the given fault.
func (t transport) send(r *http.Request, body []byte, fault Fault) (*http.Response, error) {
	switch fault {
	case Refused:
		return nil, fmt.Errorf("dial tcp: %w", syscall.ECONNREFUSED)
	case Lost:
		<-r.Context().Done()
		return nil, r.Context().Err()
	case TooMany:
		return respond(r, http.StatusTooManyRequests, "API: too many requests"), nil
	case Failed:
		return respond(r, http.StatusInternalServerError, "rpc error: No cluster leader"), nil
	}
	if r.URL.Path == "/v1/event/stream" {
		return t.open(r, fault)
	}
	a := httptest.NewRecorder()
	done := make(chan struct{})
	go func() { // a server continues a request even if the client has given it up
		defer close(done)
		own := r.Clone(context.WithoutCancel(r.Context()))
		own.Body = io.NopCloser(bytes.NewReader(body))
		own.Header.Set(clientHeader, t.client)
		if d := map[Fault]time.Duration{SlowWrite: slowAnswerDelay, LateWrite: lateWriteDelay}[fault]; d > 0 {
			own = own.WithContext(context.WithValue(own.Context(), slowWrite{}, d))
		}
		t.s.ServeHTTP(a, own)
	}()
	select {
	case <-done:
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	return t.finish(r, a, fault)
}

type slowWrite struct{}

// finish returns the part of an answer that reaches the client.
func (t transport) finish(r *http.Request, a *httptest.ResponseRecorder, fault Fault) (*http.Response, error) {
	switch fault {
	case Broken:
		return nil, io.ErrUnexpectedEOF
	case DoneButFailed:
		return respond(r, http.StatusInternalServerError, "rpc error: EOF"), nil
	case Half:
		a.Body.Truncate(a.Body.Len() / 2)
	case Unanswered:
		<-r.Context().Done()
		return nil, r.Context().Err()
	case Slow:
		if err := pause(r.Context(), slowAnswerDelay); err != nil {
			return nil, err
		}
	}
	return answer(r, a), nil
}

func answer(r *http.Request, a *httptest.ResponseRecorder) *http.Response {
	resp := a.Result()
	resp.Request = r
	return resp
}

func respond(r *http.Request, code int, text string) *http.Response {
	a := httptest.NewRecorder()
	a.WriteHeader(code)
	_, _ = a.WriteString(text) // cannot fail, because it writes to memory
	return answer(r, a)
}

// open opens an event stream.
func (t transport) open(r *http.Request, fault Fault) (*http.Response, error) {
	switch fault {
	case Broken:
		return nil, io.ErrUnexpectedEOF
	case DoneButFailed:
		return respond(r, http.StatusInternalServerError, "rpc error: EOF"), nil
	case Unanswered:
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if err := t.s.authorize(r, "*", readJobs); err != nil {
		return respond(r, http.StatusForbidden, err.Error()), nil
	}
	st := t.s.subscribe(r.Context(), t.client, topicsOf(r))
	if fault == Half {
		st.buffer = []byte(`{"Index": 1, "Eve`)
		st.end(io.ErrUnexpectedEOF)
	}
	return &http.Response{
		StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: st, ContentLength: -1, Request: r,
	}, nil
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Disconnect ends the event streams of a client and refuses all its later requests, as if the
// client's process had been killed. Requests that have already arrived are still carried out.
func (s *Server) Disconnect(client string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.disconnected[client] = true
	for _, st := range s.streams {
		if st.client == client {
			st.end(io.ErrUnexpectedEOF)
		}
	}
}
