// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"cmp"
	"crypto/sha256"
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	// answersBytes is the maximum memory of all answers that clients are reading.
	answersBytes = 256 << 20
	// smallAnswer is the maximum length, in bytes, of a piece that does not count.
	smallAnswer = 16 << 10
)

// answers are the large answers that clients are reading, the oldest first. A client that reads
// slowly keeps its answer in the agent's memory, and the list of jobs can have many megabytes. If
// all answers together need too much memory, the oldest answer of the token whose answers need the
// most memory is cut off. So no token can use up the memory, or keep others from their answers.
type answers struct {
	most int

	mu  sync.Mutex
	all []*answer
}

type answer struct {
	token [sha256.Size]byte
	bytes int
	end   func()
}

// add records an answer that is about to be sent, and cuts off other answers if all answers together
// need too much memory. end cuts off the new answer.
func (a *answers) add(token string, bytes int, end func()) *answer {
	me := &answer{tokenHash(token), bytes, end}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, me)
	for {
		total, held := 0, map[[sha256.Size]byte]int{}
		for _, x := range a.all {
			total, held[x.token] = total+x.bytes, held[x.token]+x.bytes
		}
		if total <= a.most || len(a.all) == 1 {
			return me
		}
		largest := slices.MaxFunc(a.all, func(x, y *answer) int { return cmp.Compare(held[x.token], held[y.token]) })
		largest.end()
		a.removeLocked(largest)
	}
}

func (a *answers) remove(x *answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.removeLocked(x)
}

func (a *answers) removeLocked(x *answer) {
	a.all = slices.DeleteFunc(a.all, func(o *answer) bool { return o == x })
}

// counted returns a handler that counts the answers of next.
func (a *answers) counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(&countedAnswer{w, a, tokenOf(r)}, r)
	})
}

// countedAnswer is an answer whose memory counts while it is written. JSON is written in one piece.
type countedAnswer struct {
	http.ResponseWriter
	of    *answers
	token string
}

// Unwrap is for [http.ResponseController].
func (w *countedAnswer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write implements [http.ResponseWriter].
func (w *countedAnswer) Write(p []byte) (int, error) {
	if len(p) <= smallAnswer {
		return w.ResponseWriter.Write(p)
	}
	me := w.of.add(w.token, len(p), func() {
		// In tests, a recorder has no deadline, and returns an error.
		_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now())
	})
	defer w.of.remove(me)
	return w.ResponseWriter.Write(p)
}
