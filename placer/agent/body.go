// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"
)

// Reading a job takes a thousand times the memory of its text: "{}" in a list is a
// task group with all of Nomad's defaults. Anybody may send one, with a token that
// Nomad does not know, so what is read at a time is bounded.
const (
	// bodyBytes bounds a request; Nomad itself takes jobs of 1 MB.
	bodyBytes = 8 << 20
	// bodyParts bounds its objects and lists: a job of a thousand task groups has some
	// ten of each.
	bodyParts = 20_000
	// partBytes is what each takes of the memory, about.
	partBytes = 5 << 10
	// bodiesBytes bounds what all requests take that are being answered.
	bodiesBytes = 512 << 20
	// bodyWait is how long a request waits for others.
	bodyWait = 5 * time.Second
)

var (
	errBusy  = errors.New("too many requests with jobs are being answered: try again")
	errParts = fmt.Errorf("more than %d objects and lists", bodyParts)
)

// bodies bound the memory of requests with a body.
type bodies struct{ room *semaphore.Weighted }

func newBodies() bodies { return bodies{semaphore.NewWeighted(bodiesBytes)} }

// decode reads the body of a request as JSON. done lets go of its memory when the
// request is answered. Where ok is false, the request has been.
func (b bodies) decode(w http.ResponseWriter, r *http.Request, into any) (done func(), ok bool) {
	body := &body{Reader: http.MaxBytesReader(w, r.Body, bodyBytes), room: b.room}
	done = func() { b.room.Release(body.taken) }
	err := body.read(r.Context(), into)
	if err == nil {
		return done, true
	}
	done()
	var large *http.MaxBytesError
	status := http.StatusBadRequest
	switch {
	case errors.Is(err, errBusy):
		w.Header().Set("Retry-After", "1")
		status = http.StatusServiceUnavailable
	case errors.As(err, &large), errors.Is(err, errParts):
		status = http.StatusRequestEntityTooLarge
	}
	http.Error(w, fmt.Sprintf("reading the job: %v", err), status)
	return nil, false
}

// body is a request's, and what it has taken of the room.
type body struct {
	io.Reader
	room  *semaphore.Weighted
	taken int64
}

// Read takes room for what has come, not for what was announced: who sends slowly
// keeps nobody out.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if n > 0 {
		if !b.room.TryAcquire(int64(n)) {
			return 0, errBusy
		}
		b.taken += int64(n)
	}
	return n, err
}

func (b *body) read(ctx context.Context, into any) error {
	text, err := io.ReadAll(b)
	if err != nil {
		return err
	}
	n := parts(text)
	if n > bodyParts {
		return errParts
	}
	ctx, cancel := context.WithTimeout(ctx, bodyWait)
	defer cancel()
	if b.room.Acquire(ctx, int64(n)*partBytes) != nil {
		return errBusy
	}
	b.taken += int64(n) * partBytes
	return json.Unmarshal(text, into)
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
