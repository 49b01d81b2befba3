// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"crypto/sha256"
	"maps"
	"sync"
	"time"
)

// rightsAge is how long it is taken for known that a token may register jobs in
// a namespace. Whether it still may is for Nomad to say, which each job is
// registered at with that token; this only keeps those from the queue who never
// could. Nomad logs each question as a failed request.
const rightsAge = 30 * time.Second

// rights are the tokens that may register jobs, by namespace. Tokens that may not
// are not remembered: they take no memory, and a right that is granted counts at
// once.
type rights struct {
	mu    sync.Mutex
	known map[[sha256.Size]byte]time.Time
}

// check has ask find out whether the token may, unless that is known.
func (r *rights) check(token, namespace string, now time.Time, ask func() error) error {
	key := sha256.Sum256([]byte(token + "\x00" + namespace))
	if r.knows(key, now) {
		return nil
	}
	if err := ask(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil {
		r.known = map[[sha256.Size]byte]time.Time{}
	}
	maps.DeleteFunc(r.known, func(_ [sha256.Size]byte, at time.Time) bool { return now.Sub(at) >= rightsAge })
	r.known[key] = now
	return nil
}

func (r *rights) knows(key [sha256.Size]byte, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok := r.known[key]
	return ok && now.Sub(at) < rightsAge
}
