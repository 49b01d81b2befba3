// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nomad-pal/nomad-pal/internal/patience"
)

func contextOf(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithCancel(t.Context())
}

// The host names that the agent accepts in requests.
func TestHosts(t *testing.T) {
	t.Parallel()
	machine, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	h, err := (&HTTP{BindAddress: "gpu-head", AllowedHosts: []string{"Pal.Example"}}).hosts()
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]bool{
		"localhost": true, "localhost:8090": true, "LOCALHOST:8090": true, "127.0.0.1:8090": true, "[::1]:8090": true, "::1": true, "10.1.2.3": true,
		"gpu-head:8090": true, "pal.example": true, "pal.example.:1": true, machine + ":8090": true,
		"evil.example": false, "localhost.evil.example": false, "": false, ":8090": false, "127.0.0.1.evil.example": false, "xpal.example": false,
	} {
		if got := h.allow(host); got != want {
			t.Errorf("%q: %v, want %v", host, got, want)
		}
	}
}

// Requests that a browser must not be able to send to the API.
func TestGuarded(t *testing.T) {
	t.Parallel()
	f := newFake(t, nil)
	r := f.run(openConfig).ready()
	job := `{"job": ` + gpuJob("default", "x", 1) + `}`
	for _, c := range []struct {
		name, method, path, body string
		headers                  []string
		status                   int
		want                     string
	}{
		{"another host name", http.MethodGet, "/v1/health", "", []string{"Host: evil.example"}, http.StatusMisdirectedRequest, `"evil.example"`},
		{"its own", http.MethodGet, "/v1/health", "", []string{"Host: localhost:1"}, http.StatusOK, ""},
		{"no JSON", http.MethodPost, "/v1/admission", job, []string{"Content-Type: text/plain"}, http.StatusUnsupportedMediaType, "application/json"},
		{"a form", http.MethodPost, "/v1/admission", job, []string{"Content-Type: application/x-www-form-urlencoded"}, http.StatusUnsupportedMediaType, ""},
		{"no type, from a browser", http.MethodPost, "/v1/admission", job, []string{"Content-Type: ", "Sec-Fetch-Site: none"}, http.StatusUnsupportedMediaType, ""},
		{"no type, as the admission proxy does", http.MethodPost, "/v1/admission", job, []string{"Content-Type: "}, http.StatusOK, "patch"},
		{"JSON", http.MethodPost, "/v1/admission", job, []string{"Content-Type: application/json; charset=utf-8"}, http.StatusOK, "patch"},
		{"PUT as Nomad's client does", http.MethodPut, "/v1/admission", job, []string{"Content-Type: "}, http.StatusOK, "patch"},
		{"PUT of text", http.MethodPut, "/v1/admission", job, []string{"Content-Type: text/plain"}, http.StatusUnsupportedMediaType, ""},
		{"from another page", http.MethodPost, "/v1/admission", job, []string{"Sec-Fetch-Site: cross-site"}, http.StatusForbidden, ""},
		{"a job is cancelled from another page", http.MethodPut, "/v1/job/train/cancel", "{}", []string{"Sec-Fetch-Site: cross-site"}, http.StatusForbidden, "cross-origin request"},
		{"a GPU is quarantined from another origin", http.MethodPut, "/v1/gpu/GPU-1/quarantine", "{}", []string{"Origin: http://evil.example"}, http.StatusForbidden, "cross-origin request"},
		{"from another origin", http.MethodPut, "/v1/plan", job, []string{"Origin: http://evil.example"}, http.StatusForbidden, ""},
		{"a long header", http.MethodGet, "/v1/health", "", []string{"X-Long: " + strings.Repeat("x", 40<<10)}, http.StatusRequestHeaderFieldsTooLarge, ""},
	} {
		status, text := r.send(c.method, c.path, "", c.body, c.headers...)
		if status != c.status || !strings.Contains(text, c.want) {
			t.Errorf("%s: status %d, want %d with %q: %s", c.name, status, c.status, c.want, text)
		}
	}
	for _, path := range []string{"/v1/health", "/ui/", "/v1/queue", "/none"} {
		answer, err := http.Get(r.url() + path)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		policy := answer.Header.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "script-src 'self'", "form-action 'none'"} {
			if !strings.Contains(policy, want) {
				t.Errorf("%s: policy %q lacks %s", path, policy, want)
			}
		}
		if strings.Contains(policy, "unsafe") || answer.Header.Get("X-Content-Type-Options") != "nosniff" || answer.Header.Get("X-Frame-Options") != "DENY" {
			t.Errorf("%s: headers %v", path, answer.Header)
		}
	}
}

// A request ends when it can no longer be answered, whatever it waits for. Otherwise, requests
// would accumulate while Nomad does not answer.
func TestRequestsEnd(t *testing.T) {
	t.Parallel()
	over := make(chan error, 1)
	h := ended(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		over <- r.Context().Err()
	}), time.Millisecond)
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	if err := <-over; !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// The agent disconnects clients that send their header or body slowly, or not at all.
func TestDeadlines(t *testing.T) {
	t.Parallel()
	if s := bounded(nil); min(s.ReadHeaderTimeout, s.ReadTimeout, s.WriteTimeout, s.IdleTimeout) <= 0 || s.MaxHeaderBytes <= 0 || s.MaxHeaderBytes > http.DefaultMaxHeaderBytes {
		t.Errorf("limits %+v", s)
	}
	const short, long = 50 * time.Millisecond, time.Hour
	for _, c := range []struct {
		name, sent            string
		header, request, idle time.Duration
	}{
		{"half a header", "GET / HTTP/1.1\r\nHost:", short, long, long},
		{"half a body", "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{", long, short, long},
		{"nothing more", "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", long, long, short},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			server := bounded(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				fmt.Fprint(w, "ok")
			}))
			server.ReadHeaderTimeout, server.ReadTimeout, server.IdleTimeout = c.header, c.request, c.idle
			go func() { _ = server.Serve(l) }()
			t.Cleanup(func() { server.Close() })
			conn, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprint(conn, c.sent)
			closed := make(chan struct{})
			go func() { defer close(closed); _, _ = io.Copy(io.Discard, conn) }()
			select {
			case <-closed:
			case <-patience.Over(t):
				t.Error("the connection stays open")
			}
		})
	}
}

// While as many clients as the agent accepts read their answers, others get 503 with Retry-After, and
// checks of the agent's health are answered.
func TestTooManyRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, hold := newPlaces(2, "too many"), make(chan struct{})
		h := p.bounded(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/v1/queue" {
				<-hold
			}
		}))
		ask := func(path string) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
			return w
		}
		for range 2 {
			go ask("/v1/queue")
		}
		synctest.Wait()
		if w := ask("/v1/gpus"); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
			t.Errorf("status %d, headers %v", w.Code, w.Header())
		}
		for _, path := range []string{"/v1/health", "/v1/metrics", "/v1/stream", "/v1/events?follow=true", "/ui/"} {
			if w := ask(path); w.Code != http.StatusOK {
				t.Errorf("%s: status %d", path, w.Code)
			}
		}
		close(hold)
		synctest.Wait()
		if w := ask("/v1/gpus"); w.Code != http.StatusOK {
			t.Errorf("status %d after the others have ended", w.Code)
		}
	})
}
