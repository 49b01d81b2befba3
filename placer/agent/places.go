// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"context"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// followersAtOnce is the maximum number of requests that follow events or the stream.
	followersAtOnce = 100
	// requestsAtOnce is the maximum number of other requests. An answer stays in memory until its
	// client has read it, and the list of jobs can have many megabytes.
	requestsAtOnce = 64
	// placeWait is how long a request waits for a place.
	placeWait = 5 * time.Second
)

// places limits the number of requests that are answered at the same time.
type places struct {
	room *semaphore.Weighted
	full string // the answer to a request that found no place
}

func newPlaces(n int64, full string) places { return places{semaphore.NewWeighted(n), full} }

// take reserves a place for a request, or refuses the request. The caller calls done after it has
// answered.
func (p places) take(w http.ResponseWriter, r *http.Request) (done func(), ok bool) {
	ctx, cancel := context.WithTimeout(r.Context(), placeWait)
	defer cancel()
	if p.room.Acquire(ctx, 1) != nil {
		w.Header().Set("Retry-After", "10")
		http.Error(w, p.full, http.StatusServiceUnavailable)
		return nil, false
	}
	return func() { p.room.Release(1) }, true
}

// bounded limits the number of requests in next, except for those that have other limits or small
// answers.
func (p places) bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.Path
		small := path == "/v1/health" || path == "/v1/metrics" || path == "/v1/agent" || path == "/" || strings.HasPrefix(path, "/ui/")
		if small || path == "/v1/stream" || r.URL.Query().Get("follow") == "true" {
			next.ServeHTTP(w, r)
			return
		}
		done, ok := p.take(w, r)
		if !ok {
			return
		}
		defer done()
		next.ServeHTTP(w, r)
	})
}
