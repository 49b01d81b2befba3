// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
)

// HTTPClient returns an HTTP client for [NewClient], with at most the given number of connections (0
// for no limit). Several clients can share it. It differs from the client in Nomad's API module in
// three ways. It does not request compression. For compression, Nomad would create a compressor for
// each answer, which takes longer than most requests. It keeps enough connections open for the
// parallel requests. It accepts NaN and infinities in answers (see [numbers]).
func HTTPClient(cfg *api.Config, connections int) (*http.Client, error) {
	t := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout:   10 * time.Second,
		TLSClientConfig:       &tls.Config{MinVersion: tls.VersionTLS12},
		IdleConnTimeout:       90 * time.Second,
		ExpectContinueTimeout: time.Second,
		MaxConnsPerHost:       connections,
		MaxIdleConns:          2 * parallelReads,
		MaxIdleConnsPerHost:   2 * parallelReads,
		DisableCompression:    true,
	}
	if u, err := url.Parse(cfg.Address); err == nil && u.Scheme == "unix" {
		t.Proxy = nil
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", u.EscapedPath())
		}
	}
	c := &http.Client{Transport: t}
	if err := api.ConfigureTLS(c, cfg.TLSConfig); err != nil {
		return nil, fmt.Errorf("connecting to Nomad at %q: %w", cfg.Address, err)
	}
	c.Transport = uncompressed{t}
	return c, nil
}

// uncompressed removes the header by which Nomad's client requests compression.
type uncompressed struct{ *http.Transport }

func (u uncompressed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Del("Accept-Encoding")
	resp, err := u.Transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	return withoutNaN(resp), nil
}

// The following time limits apply to whole requests. Without limits, a server that accepts requests
// and never answers could block everything else. The limit for lists is long, because the lists of
// a large cluster take tens of MB.
const (
	requestTimeout = 15 * time.Second
	listTimeout    = 90 * time.Second
	// streamTimeout is the longest time until a stream begins. The stream itself has no time limit.
	streamTimeout = 30 * time.Second
)

// ErrNoAnswer means that Nomad did not send the complete answer within the time limit.
var ErrNoAnswer = errors.New("no answer from Nomad in time")

// deadlines is a transport that applies time limits to requests. inner is the transport that all
// other transports wrap.
type deadlines struct{ next, inner http.RoundTripper }

type endedKey struct{}

// WhenEnded returns a context for requests. After each request with this context, successful or
// not, the client calls the function ended.
func WhenEnded(ctx context.Context, ended func()) context.Context {
	return context.WithValue(ctx, endedKey{}, ended)
}

type dateKey struct{}

// WithDate returns a context for requests. When Nomad answers such a request, the client writes the
// time of Nomad's clock to date.
func WithDate(ctx context.Context, date *time.Time) context.Context {
	return context.WithValue(ctx, dateKey{}, date)
}

// timeoutOf returns the time limit of a request. If stream is true, the limit applies only until
// the answer begins.
func timeoutOf(r *http.Request) (limit time.Duration, stream bool) {
	path := strings.TrimSuffix(r.URL.Path, "/")
	switch {
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
	end := func() {
		timer.Stop()
		cancel(nil)
		if ended, ok := r.Context().Value(endedKey{}).(func()); ok {
			ended()
		}
	}
	resp, err := d.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		end()
		return nil, timely(ctx, err)
	}
	if date, ok := r.Context().Value(dateKey{}).(*time.Time); ok {
		if at, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
			*date = at
		}
	}
	if stream {
		timer.Stop()
	}
	resp.Body = &body{ReadCloser: resp.Body, ctx: ctx, end: end}
	return resp, nil
}

// CloseIdleConnections closes idle connections, for http.Client. Wrappers of the transport need no
// such method, because this one calls the inner transport.
func (d deadlines) CloseIdleConnections() {
	if c, ok := d.inner.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// timely returns [ErrNoAnswer] if err was caused by the time limit, and err otherwise.
func timely(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, ErrNoAnswer) {
		return cause
	}
	return err
}

// body is the body of an answer. The body must be read within the time limit.
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

// ErrUnknownOutcome means that Nomad may have carried out a write. The request was sent, but the
// answer was lost, came too late, or was a server error.
var ErrUnknownOutcome = errors.New("the outcome is unknown, because Nomad did not confirm the request")

// MarkUnknown adds [ErrUnknownOutcome] to the error of a write that Nomad may have carried out.
func MarkUnknown(err error) error {
	code := StatusOf(err)
	if err == nil || code > 0 && code < http.StatusInternalServerError {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
}

// A device plugin can report NaN or an infinity in an attribute. Nomad's encoder (1.11.3) writes
// such a value as NaN, +Inf or -Inf, which is not JSON. One such value makes the list of all nodes,
// and all events about its node, unreadable. numbers replaces such values with 0 while it reads an
// answer.
type numbers struct {
	io.ReadCloser
	scan numberScan
}

func (n *numbers) Read(p []byte) (int, error) {
	got, err := n.ReadCloser.Read(p)
	n.scan.replaceNaN(p[:got])
	return got, err
}

// numberScan converts an answer to JSON in place, one piece after another. Outside strings, 'N',
// 'I', and a '+' that does not follow an 'e' occur only at the beginning of NaN or of an infinity.
// numberScan relies on this fact.
type numberScan struct {
	inString, escaped bool
	skip              int  // how many bytes of the replaced value remain
	last              byte // the last byte outside strings
}

func (s *numberScan) replaceNaN(p []byte) {
	for i := 0; i < len(p); i++ {
		b := p[i]
		switch {
		case s.escaped:
			s.escaped = false
			continue
		case s.inString:
			end := bytes.IndexAny(p[i:], "\"\\")
			if end < 0 {
				return
			}
			i += end
			s.escaped, s.inString = p[i] == '\\', p[i] != '"'
			continue
		case s.skip > 0:
			s.skip--
			p[i] = ' '
		case b == '"':
			s.inString = true
		case b == 'N' || b == 'I':
			p[i], s.skip = '0', 2
		case b == '+' && s.last != 'e' && s.last != 'E':
			p[i] = ' '
		}
		s.last = b
	}
}

// withoutNaN returns the answer with a body that contains 0 instead of NaN and infinities.
func withoutNaN(r *http.Response) *http.Response {
	if strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
		r.Body = &numbers{ReadCloser: r.Body}
	}
	return r
}
