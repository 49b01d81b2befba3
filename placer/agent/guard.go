// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
)

// answerWithin is the time limit for an answer. The limit is long, because the first snapshot of a
// large cluster takes seconds.
const answerWithin = 2 * time.Minute

// bounded returns a server that bounds the time and memory that one connection may take.
func bounded(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           ended(h, answerWithin),
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: answerWithin, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10,
	}
}

// ended cancels a request's context when its answer can no longer be sent. Otherwise, Go's server
// would only close the connection, and the handler would keep running.
func ended(next http.Handler, within time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), within)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// guarded returns the API behind its guards. The guards refuse unknown host names, cross-origin
// requests of browsers, and bodies that are not JSON. The guards also set security headers, limit
// the number of requests at a time, and answer 500 if a handler panics.
func (s *server) guarded() (http.Handler, error) {
	hosts, err := s.file.HTTP.hosts()
	if err != nil {
		return nil, err
	}
	h := onlyJSON(s.handler())
	h = http.NewCrossOriginProtection().Handler(h)
	return gzipped(s.agent.requests.bounded(s.recovered(headers(hosts.only(h))))), nil
}

// recovered answers 500 if the handler of a request panics, and keeps serving. recovered drops the
// snapshot, which the handler may have corrupted.
func (s *server) recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			v := recover()
			switch {
			case v == nil:
				return
			case v == http.ErrAbortHandler:
				panic(v)
			}
			s.agent.panicked(r.Method+" "+r.URL.Path, v, debug.Stack())
			s.snapshots.forget()
			http.Error(w, fmt.Sprintf("%s %q: the agent failed to answer this request; see its log", r.Method, r.URL.Path), http.StatusInternalServerError)
		}()
		next.ServeHTTP(w, r)
	})
}

// panicked counts and logs a recovered panic.
func (a *Agent) panicked(what string, v any, stack []byte) {
	a.panics.Add(1)
	a.log.Error("a bug while answering a request", "in", what, "panic", v, "stack", string(stack))
}

// headers adds headers to every answer. They forbid browsers to show the answer in a frame, to
// guess its type, and to load anything for it from other hosts.
func headers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY") // for browsers that do not know frame-ancestors
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store") // answers differ by token
		next.ServeHTTP(w, r)
	})
}

// onlyJSON refuses bodies that are not declared as JSON. A web page can make a browser POST other
// content types, or none, to any address without a preflight request. Clients that are not browsers
// may omit the type, as Nomad's own client and the admission proxy do.
func onlyJSON(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		said := r.Header.Get("Content-Type")
		kind, _, err := mime.ParseMediaType(said)
		writes := r.Method == http.MethodPost || r.Method == http.MethodPut
		if writes && (err != nil || kind != "application/json") && (said != "" || browsed(r)) {
			if said != "" {
				said = ", not " + strconv.Quote(said)
			}
			http.Error(w, fmt.Sprintf("the body of %s must be JSON, with Content-Type: application/json%s", r.Method, said), http.StatusUnsupportedMediaType)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// browsed reports whether a browser sent the request. Browsers always send Origin or
// Sec-Fetch-Site.
func browsed(r *http.Request) bool {
	return r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != ""
}

// hosts are the host names that the agent accepts, in lower case, and the certificate whose names
// it also accepts.
type hosts struct {
	names       []string
	certificate *x509.Certificate
}

// hosts returns localhost, the machine's name, and the names in the configuration and the
// certificate.
func (h *HTTP) hosts() (*hosts, error) {
	out := &hosts{names: []string{"localhost"}}
	if name, err := os.Hostname(); err == nil {
		out.names = append(out.names, strings.ToLower(name))
	}
	advertised, _ := url.Parse(h.Advertise) // checked by [File.PlacerConfig]
	for _, name := range append(slices.Clone(h.AllowedHosts), h.BindAddress, advertised.Hostname()) {
		out.names = append(out.names, strings.ToLower(name))
	}
	config, err := h.tls()
	if err == nil && config != nil {
		out.certificate = config.Certificates[0].Leaf
	}
	return out, err
}

// allow reports whether the agent accepts the Host of a request. An unknown name may belong to a
// web page whose owner points it at this agent, so that browsers treat page and agent as one origin
// (DNS rebinding). DNS rebinding cannot use an IP address.
func (h *hosts) allow(host string) bool {
	name := host
	if n, _, err := net.SplitHostPort(host); err == nil {
		name = n
	}
	name = strings.ToLower(strings.TrimSuffix(strings.Trim(name, "[]"), "."))
	if name == "" {
		return false
	}
	return net.ParseIP(name) != nil || slices.Contains(h.names, name) || h.certificate != nil && h.certificate.VerifyHostname(name) == nil
}

func (h *hosts) only(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !h.allow(r.Host) {
			http.Error(w, fmt.Sprintf("this agent rejects requests to the host name %q: http { allowed_hosts } in its configuration lists the accepted names", r.Host), http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Decoding a job needs up to a thousand times the memory of its text. For example, "{}" in a list
// becomes a task group with all of Nomad's defaults. Anybody can send a job, even with an invalid
// token, so the memory of all requests together is limited.
const (
	// bodyBytes is the maximum size of a request; Nomad itself accepts jobs of 1 MB. The number of
	// requests is limited, too: see [requestsAtOnce].
	bodyBytes = 8 << 20
	// bodyParts is the maximum number of objects and lists in a request. A job with a thousand task
	// groups has about ten thousand objects and as many lists.
	bodyParts = 20_000
	// partBytes is roughly the memory that each object or list needs.
	partBytes = 5 << 10
	// bodiesBytes limits the memory of all requests in progress.
	bodiesBytes = 512 << 20
	// bodyWait is how long a request waits for memory that other requests hold.
	bodyWait = 5 * time.Second
)

var (
	errBusy  = errors.New("the agent is processing too many requests that contain jobs: try again")
	errParts = fmt.Errorf("more than %d objects and lists", bodyParts)
)

// bodies limits the memory of requests with a body.
type bodies struct{ room *semaphore.Weighted }

func newBodies() bodies { return bodies{semaphore.NewWeighted(bodiesBytes)} }

// decode reads the body of a request as JSON. The caller calls done, which releases the body's
// memory, after it has answered. If ok is false, decode has already answered.
func (b bodies) decode(w http.ResponseWriter, r *http.Request, into any) (done func(), ok bool) {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyBytes))
	if err != nil {
		refuseBody(w, err)
		return nil, false
	}
	taken, err := b.take(r.Context(), text)
	if err != nil {
		refuseBody(w, err)
		return nil, false
	}
	done = func() { b.room.Release(taken) }
	if err := unmarshal(text, into); err != nil {
		done()
		refuseBody(w, err)
		return nil, false
	}
	return done, true
}

// take acquires the memory that a request's text and its decoded value need, and returns its size.
func (b bodies) take(ctx context.Context, text []byte) (int64, error) {
	n := parts(text)
	if n > bodyParts {
		return 0, errParts
	}
	ctx, cancel := context.WithTimeout(ctx, bodyWait)
	defer cancel()
	size := int64(len(text)) + int64(n)*partBytes
	if b.room.Acquire(ctx, size) != nil {
		return 0, errBusy
	}
	return size, nil
}

func refuseBody(w http.ResponseWriter, err error) {
	var large *http.MaxBytesError
	status := http.StatusBadRequest
	switch {
	case errors.Is(err, errBusy):
		w.Header().Set("Retry-After", "1")
		status = http.StatusServiceUnavailable
	case errors.As(err, &large), errors.Is(err, errParts):
		status = http.StatusRequestEntityTooLarge
	}
	http.Error(w, fmt.Sprintf("reading the request: %v", err), status)
}

// unmarshal reads a command, or a job. A job of a later Nomad can have fields that this version
// does not know, but a command cannot.
func unmarshal(text []byte, into any) error {
	_, command := into.(*palapi.ControlRequest)
	if !command {
		return json.Unmarshal(text, into)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

// parts counts the objects and lists of a JSON text.
func parts(text []byte) (n int) {
	inString, escaped := false, false
	for _, c := range text {
		switch {
		case escaped:
			escaped = false
		case c == '\\':
			escaped = inString
		case c == '"':
			inString = !inString
		case !inString && (c == '{' || c == '['):
			n++
		}
	}
	return n
}
