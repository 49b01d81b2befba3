// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

// roundTrip is a transport that stands in for a server.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func clientOf(t *testing.T, f roundTrip) *Client {
	t.Helper()
	c, err := NewClient(&api.Config{Address: "http://nomad.test", HttpClient: &http.Client{Transport: f}}, "")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// mute never answers.
func mute(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// half answers with an incomplete body that never continues.
func half(r *http.Request) (*http.Response, error) {
	body, w := io.Pipe()
	go func() {
		_, _ = w.Write([]byte(`{"ID": "`))
		<-r.Context().Done()
		w.CloseWithError(r.Context().Err())
	}()
	return &http.Response{StatusCode: http.StatusOK, ContentLength: -1, Header: http.Header{}, Body: body, Request: r}, nil
}

// A request whose answer is missing or incomplete fails in time, with a clear error.
func TestNoAnswer(t *testing.T) {
	job := func(c *Client) error {
		_, err := c.Job(context.Background(), cluster.JobKey{Namespace: "default", ID: "j"})
		return err
	}
	list := func(c *Client) error { _, err := c.ReadNodes(context.Background()); return err }
	subscribe := func(c *Client) error { _, err := c.Subscribe(context.Background()); return err }
	register := func(c *Client) error {
		id, ns := "j", "default"
		_, err := c.Register(context.Background(), &api.Job{ID: &id, Namespace: &ns}, 1)
		return err
	}
	for _, c := range []struct {
		name    string
		server  roundTrip
		ask     func(*Client) error
		after   time.Duration
		unknown bool
	}{
		{"job", mute, job, requestTimeout, false},
		{"half a job", half, job, requestTimeout, false},
		{"list", mute, list, listTimeout, false},
		{"stream", mute, subscribe, streamTimeout, false},
		{"registering", mute, register, requestTimeout, true},
		{"registering, half an answer", half, register, requestTimeout, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				err := c.ask(clientOf(t, c.server))
				if took := time.Since(began); !errors.Is(err, ErrNoAnswer) || took != c.after {
					t.Errorf("after %v (want %v): %v", took, c.after, err)
				}
				if errors.Is(err, ErrUnknownOutcome) != c.unknown {
					t.Errorf("unknown outcome: %v, want %v: %v", !c.unknown, c.unknown, err)
				}
			})
		})
	}
}

// The time limit of an event stream covers only its header. After that, the stream may last.
func TestStreamHasNoDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body, w := io.Pipe()
		c := clientOf(t, func(r *http.Request) (*http.Response, error) {
			context.AfterFunc(r.Context(), func() { w.CloseWithError(r.Context().Err()) })
			return &http.Response{StatusCode: http.StatusOK, ContentLength: -1, Header: http.Header{}, Body: body, Request: r}, nil
		})
		s, err := c.Subscribe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- s.Run(func([]cluster.Event) error { return nil }) }()
		for range 60 {
			time.Sleep(10 * time.Second)
			if _, err := io.WriteString(w, "{}\n"); err != nil {
				t.Fatalf("it ended: %v", err)
			}
		}
		s.Close()
		<-ended
	})
}

// If Nomad refuses a request, it has not carried it out. After a server's error, a lost connection
// or a truncated answer, that is unknown.
func TestOutcome(t *testing.T) {
	for _, c := range []struct {
		name    string
		status  int
		body    string
		unknown bool
	}{
		{"refused", 400, "bad request", false},
		{"denied", 403, "Permission denied", false},
		{"too many", 429, "too many requests", false},
		{"no leader", 500, "rpc error: No cluster leader", true},
		{"a proxy's error", 502, "bad gateway", true},
		{"half JSON", 200, `{"JobModifyIndex": 2`, true},
		{"a race", 500, api.RegisterEnforceIndexErrPrefix + ": index 3", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := clientOf(t, func(r *http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: c.status, ContentLength: -1, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(c.body)), Request: r}, nil
			})
			id, ns := "j", "default"
			_, err := client.Register(t.Context(), &api.Job{ID: &id, Namespace: &ns}, 1)
			if err == nil || errors.Is(err, ErrUnknownOutcome) != c.unknown {
				t.Errorf("unknown: want %v: %v", c.unknown, err)
			}
		})
	}
}
