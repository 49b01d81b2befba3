// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"
	"time"
)

// unread is an answer whose Write blocks until the answer is cut off, or until the client reads it.
type unread struct {
	*httptest.ResponseRecorder
	cut, read chan struct{}
}

func (u *unread) Write(p []byte) (int, error) {
	select {
	case <-u.cut:
		return 0, os.ErrDeadlineExceeded
	case <-u.read:
		return len(p), nil
	}
}

func (u *unread) SetWriteDeadline(t time.Time) error {
	if !t.After(time.Now()) {
		close(u.cut)
	}
	return nil
}

// A token whose clients do not read their answers cannot use up the agent's memory. Its oldest
// answers are cut off, and others get theirs.
func TestUnreadAnswers(t *testing.T) {
	t.Parallel()
	const most, many = 8, 20
	a := &answers{most: most << 20}
	var began, lost, got atomic.Int64
	h := a.counted(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		began.Add(1)
		if _, err := w.Write(make([]byte, 1<<20)); err != nil {
			lost.Add(1)
		} else {
			got.Add(1)
		}
	}))
	ask := func(token string, read chan struct{}) {
		t.Helper()
		r := httptest.NewRequest(http.MethodGet, "/v1/queue", nil)
		r.Header.Set("X-Nomad-Token", token)
		n := began.Load()
		go h.ServeHTTP(&unread{httptest.NewRecorder(), make(chan struct{}), read}, r)
		until(t, "the answer begins", func() bool { return began.Load() == n+1 })
	}
	honest, never := make(chan struct{}), make(chan struct{})
	ask("honest", honest)
	for range many {
		ask("hostile", never)
	}
	until(t, "the old answers are cut off", func() bool { return lost.Load() == many+1-most })
	close(honest)
	until(t, "the honest client gets its answer", func() bool { return got.Load() == 1 })
	close(never)
	until(t, "the other answers are read", func() bool { return got.Load() == most && lost.Load() == many+1-most })
	if len(a.all) > 0 {
		t.Errorf("%d answers still count", len(a.all))
	}
}
