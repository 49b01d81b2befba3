// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/internal/testlog"
	"github.com/nomad-pal/nomad-pal/placer"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// While a machine is suspended, its monotonic clock stops, but the lock expires. If somebody sets
// the wall clock back, only the monotonic clock shows that the lock has expired.
func TestHoldsLockByBothClocks(t *testing.T) {
	t.Parallel()
	const ttl = 15 * time.Second
	for _, c := range []struct {
		name            string
		monotonic, wall time.Duration
		holds           bool
	}{
		{"time passes", ttl - 1, ttl - 1, true},
		{"too much time passes", ttl, ttl, false},
		{"the machine is suspended", 0, ttl, false},
		{"the clock is set back", ttl, -time.Hour, false},
		{"the clock is set back a little", ttl - 1, 0, true},
	} {
		a, now := &Agent{}, time.Now()
		a.holdLock(now.Add(ttl))
		if got := a.holdsLock(withMonotonic(now.Add(c.wall), c.monotonic-c.wall)); got != c.holds {
			t.Errorf("%s: holds the lock: %v, want %v", c.name, got, c.holds)
		}
	}
}

// withMonotonic returns t with its monotonic clock moved by d. Go's package has no function for
// this, because Add moves both clocks.
func withMonotonic(t time.Time, d time.Duration) time.Time {
	wall := t.Round(0)
	(*struct {
		wall uint64
		ext  int64 // the monotonic clock in ns, if a flag in wall says so
	})(unsafe.Pointer(&t)).ext += int64(d)
	if !t.Round(0).Equal(wall) {
		panic("package time has changed")
	}
	return t
}

// slowLock is a Nomad with only a lock, which answers after a delay.
type slowLock struct {
	delay, ttl time.Duration
	id         int
	expires    time.Time
}

func (l *slowLock) RoundTrip(r *http.Request) (*http.Response, error) {
	if pause(r.Context(), l.delay/2); r.Context().Err() != nil {
		return nil, r.Context().Err()
	}
	var v locked
	_ = json.NewDecoder(r.Body).Decode(&v)
	status, now := http.StatusOK, time.Now()
	switch q := r.URL.Query(); {
	case q.Has("lock-acquire") && now.Before(l.expires), !q.Has("lock-acquire") && v.Lock.ID != fmt.Sprint(l.id):
		status = http.StatusConflict
	case q.Has("lock-release"):
		l.expires = time.Time{}
	case q.Has("lock-acquire"):
		l.id++
		l.expires = now.Add(l.ttl)
	default:
		l.expires = now.Add(l.ttl)
	}
	if pause(r.Context(), l.delay/2); r.Context().Err() != nil {
		return nil, r.Context().Err()
	}
	body := fmt.Sprintf(`{"Lock": {"ID": "%d", "TTL": %q}}`, l.id, l.ttl)
	return &http.Response{StatusCode: status, ContentLength: int64(len(body)), Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

// An agent keeps the lock if Nomad answers within a third of lock_ttl. Otherwise, the agent reports
// which lock_ttl it needs, and with this lock_ttl it keeps the lock.
func TestElectionWithSlowAnswers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		delay, ttl time.Duration
		terms      int    // how often the agent leads in ten minutes; -1: again and again
		says       string // by its health at the end
	}{
		{0, 15 * time.Second, 1, ""},
		{4900 * time.Millisecond, 15 * time.Second, 1, ""},
		{8 * time.Second, 15 * time.Second, -1, "Nomad took 8s to answer, but an agent with lock_ttl = 15s keeps the lock only if Nomad answers within 5s: find out why Nomad is slow, or set high_availability { lock_ttl = \"32s\" } for all agents"},
		{8 * time.Second, 32 * time.Second, 1, ""},
	} {
		t.Run(fmt.Sprint(c.delay, " of ", c.ttl), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := &testlog.Buffer{}
				a := New(hclog.New(&hclog.LoggerOptions{Output: log}), placer.Hooks{})
				lock := &slowLock{delay: c.delay, ttl: c.ttl}
				client, err := nomad.NewClient(&api.Config{Address: "http://nomad", HttpClient: &http.Client{Transport: lock}}, "")
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				terms := 0
				_ = a.elect(ctx, client, HA{LockTTL: c.ttl.String()}, func(context.Context) error { return nil }, func(ctx context.Context) error {
					terms++
					<-ctx.Done()
					return ctx.Err()
				})
				if terms != c.terms && (c.terms >= 0 || terms < 10) {
					t.Errorf("the agent led %d times\n%s", terms, log)
				}
				if h := a.health(time.Now()); h.LastError != c.says || (h.Trouble == "") != (c.says == "") {
					t.Errorf("health: %q: %q", h.Trouble, h.LastError)
				}
				if n := strings.Count(log.String(), "Nomad took 8s"); n > 1 || (n == 0) != (c.says == "") {
					t.Errorf("%d lines:\n%s", n, log)
				}
			})
		})
	}
}

// An agent whose history is a file does not stand by for an agent on another machine, because each
// would record only a part. On the same machine they share the file.
func TestStandbyNeedsSharedHistory(t *testing.T) {
	const file, database = "history {\n  database = \"%s/history.db\"\n}\n", "history {\n  database = \"postgres://none.invalid/history\"\n}\n"
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	here := store.Heartbeat{Agent: host + "/1", Since: time.Now()}
	there := here
	there.Agent = "another-machine/1"
	for _, c := range []struct {
		name, config string
		active       store.Heartbeat
		refused      bool
	}{
		{"file", fmt.Sprintf(file, t.TempDir()), there, true},
		{"file on the same machine", fmt.Sprintf(file, t.TempDir()), here, false},
		{"database", database, there, false},
		{"no history", "", there, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(t, nil)
			f.set(func() { f.locks["nomad-pal/lock"] = lock{id: "somebody's"} })
			f.beats(c.active)
			path := filepath.Join(t.TempDir(), "agent.hcl")
			config := fmt.Sprintf("%s%snomad {\n  address = %q\n  token = %q\n}\n", standbyConfig, c.config, f.URL, agentsToken)
			if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- newAgent(&testlog.Buffer{}).Run(ctx, []string{path}, nil) }()
			if !c.refused {
				until(t, "the agent asks for the lock", func() bool { return len(f.askedFor("lock")) > 1 })
				cancel()
			}
			err := <-ended
			cancel()
			if refused := err != nil && strings.Contains(err.Error(), "let all agents share a database postgres://"); refused != c.refused {
				t.Errorf("the agent ended with: %v", err)
			}
		})
	}
}
