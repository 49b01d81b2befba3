// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// How long a request may take from beginning to end: a server that accepts
// requests and never answers them must not stop everything else. Lists of a large
// cluster are tens of MB.
const (
	requestTimeout = 15 * time.Second
	listTimeout    = 90 * time.Second
	// streamTimeout bounds the time until a stream begins; it may last for ever.
	streamTimeout = 30 * time.Second
)

// ErrNoAnswer is a request that Nomad did not answer in time, or not to the end.
var ErrNoAnswer = errors.New("no answer from Nomad in time")

// deadlines ends requests that are not answered in time.
type deadlines struct{ next http.RoundTripper }

// WithDeadlines bounds the time that requests to Nomad take.
func WithDeadlines(next http.RoundTripper) http.RoundTripper { return deadlines{next} }

// timeoutOf is how long a request may take, and whether only until its answer
// begins.
func timeoutOf(r *http.Request) (limit time.Duration, stream bool) {
	switch path := strings.TrimSuffix(r.URL.Path, "/"); {
	case strings.HasSuffix(path, "/v1/event/stream"):
		return streamTimeout, true
	case r.Method == http.MethodGet && (strings.HasSuffix(path, "/v1/nodes") || strings.HasSuffix(path, "/v1/jobs") || strings.HasSuffix(path, "/v1/allocations")):
		return listTimeout, false
	}
	return requestTimeout, false
}

// RoundTrip implements http.RoundTripper.
func (d deadlines) RoundTrip(r *http.Request) (*http.Response, error) {
	limit, stream := timeoutOf(r)
	ctx, cancel := context.WithCancelCause(r.Context())
	late := fmt.Errorf("%s %s: %w (%v)", r.Method, r.URL.Path, ErrNoAnswer, limit)
	timer := time.AfterFunc(limit, func() { cancel(late) })
	end := func() { timer.Stop(); cancel(nil) }
	resp, err := d.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		end()
		return nil, timely(ctx, err)
	}
	if stream {
		timer.Stop()
	}
	resp.Body = &body{ReadCloser: resp.Body, ctx: ctx, end: end}
	return resp, nil
}

// CloseIdleConnections is what http.Client looks for.
func (d deadlines) CloseIdleConnections() {
	if c, ok := d.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// timely is err, or the deadline where that is what caused it.
func timely(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, ErrNoAnswer) {
		return cause
	}
	return err
}

// body is an answer that has to be read before its deadline.
type body struct {
	io.ReadCloser
	ctx context.Context
	end func()
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = timely(b.ctx, err)
	}
	return n, err
}

func (b *body) Close() error {
	b.end()
	return b.ReadCloser.Close()
}

// ErrUnknownOutcome is a write of which nobody knows whether it came about: it was
// sent, and its answer was lost, late, or that something went wrong on the way to
// the servers' log.
var ErrUnknownOutcome = errors.New("no answer from Nomad: the outcome is unknown")

// Outcome adds [ErrUnknownOutcome] to the error of a write where that is so.
func Outcome(err error) error {
	if code := status(err); err == nil || code > 0 && code < http.StatusInternalServerError {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
}
