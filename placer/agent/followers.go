// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"cmp"
	"context"
	"crypto/sha256"
	"net/http"
	"slices"
	"strings"
	"sync"
)

const (
	// followersAtOnce is the maximum number of requests that follow events or the stream.
	followersAtOnce = 100
	// forwardsAtOnce is the maximum number of requests that a standby agent forwards at a time.
	// Forwarded requests wait while the active agent hangs.
	forwardsAtOnce = 2 * followersAtOnce
)

// followers are requests that can take long, the oldest first: requests that follow events or the
// stream, or that a standby agent forwards. If all places are taken, a new request ends the oldest
// request of the token that has the most requests, so that no token can keep others out. All
// workload identities of a namespace count as one token, because an author can have as many
// identities as allocations.
type followers struct {
	most int
	full string // what a request is told for which there is no place

	mu  sync.Mutex
	all []*follower
}

type follower struct {
	token [sha256.Size]byte // see [tokenHash]
	end   context.CancelFunc
}

// tokenHash returns a hash of the token or, for a workload identity, of its namespace.
func tokenHash(token string) [sha256.Size]byte {
	namespace, _, _ := strings.Cut(identityOf(token), "/")
	return sha256.Sum256([]byte(cmp.Or(namespace, token)))
}

// add reserves a place for a request with this token; ok is false if there is no place. If another
// request loses its place to the new one, add ends the other request.
func (f *followers) add(token string, end context.CancelFunc) (me *follower, ok bool) {
	me = &follower{tokenHash(token), end}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.all) >= f.most {
		held := map[[sha256.Size]byte]int{}
		for _, x := range f.all {
			held[x.token]++
		}
		oldest := f.all[0]
		for _, x := range f.all {
			if held[x.token] > held[oldest.token] {
				oldest = x
			}
		}
		if held[oldest.token] < held[me.token]+2 { // afterwards, that token would have fewer places than this one
			return nil, false
		}
		oldest.end()
		f.removeLocked(oldest)
	}
	f.all = append(f.all, me)
	return me, true
}

func (f *followers) remove(x *follower) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.removeLocked(x)
}

func (f *followers) removeLocked(x *follower) {
	f.all = slices.DeleteFunc(f.all, func(o *follower) bool { return o == x })
}

// place reserves a place for a request, or refuses the request. The returned request ends when it
// loses its place. The caller must call done when it has answered the request.
func (f *followers) place(w http.ResponseWriter, r *http.Request) (placed *http.Request, done func(), ok bool) {
	ctx, cancel := context.WithCancel(r.Context())
	me, ok := f.add(tokenOf(r), cancel)
	if !ok {
		cancel()
		w.Header().Set("Retry-After", "10")
		http.Error(w, f.full, http.StatusServiceUnavailable)
		return nil, nil, false
	}
	return r.WithContext(ctx), func() { f.remove(me); cancel() }, true
}
