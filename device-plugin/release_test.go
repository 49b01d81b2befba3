// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
)

// A driver that an operator has released is left alone until the time is over or the
// operator resumes. A running scan ends first.
func TestRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := DefaultConfig()
		cfg.StateDir = t.TempDir()
		p, s, _, _ := onStage(2, cfg)
		c, end := fingerprints(t, p)
		defer end()
		reason := func() string { return next(t, c)[0].Devices[1].HealthDesc }
		if got := reason(); got != "" {
			t.Fatalf("at first %q", got)
		}
		for name, over := range map[string]func(){
			"the time is over": func() {},
			"resume":           func() { time.Sleep(time.Minute); order(t, cfg.StateDir, time.Now()) },
		} {
			s.set(func(s *stage) { s.left = 0; s.hang = make(chan struct{}) })
			s.events <- gpu.Event{} // triggers a scan
			time.Sleep(2 * time.Second)
			until := time.Now().Add(5 * time.Minute)
			order(t, cfg.StateDir, until)
			if got := reason(); got != "released" {
				t.Errorf("%s: %q", name, got)
			}
			time.Sleep(2 * time.Second)
			s.set(func(s *stage) {
				if s.left > 0 {
					t.Errorf("%s: the driver was closed while a scan was running", name)
				}
				close(s.hang)
				s.hang, s.scans = nil, 0
			})
			time.Sleep(3 * time.Second)
			if _, gone, err := ReleasedUntil(cfg.StateDir, time.Now()); !gone || err != nil {
				t.Errorf("%s: the driver is not reported as released: %v", name, err)
			}
			if _, err := p.Reserve([]string{"GPU-1"}); err == nil || !strings.Contains(err.Error(), "GPU-1 (released)") {
				t.Errorf("%s: Reserve: %v", name, err)
			}
			s.events <- gpu.Event{}
			over()
			if got := p.stats(time.Second); got != nil && time.Now().Before(until.Add(-4*time.Minute)) {
				t.Errorf("%s: statistics of a released driver", name)
			}
			if got := reason(); got != "" || name == "resume" && time.Until(until) < 3*time.Minute {
				t.Errorf("%s: %q, %s before the end", name, got, time.Until(until))
			}
			s.set(func(s *stage) {
				if s.left != 1 || s.scans != 2 { // the one that was running, and the first after the release
					t.Errorf("%s: closed %d times, %d scans", name, s.left, s.scans)
				}
			})
		}
	})
}

func order(t *testing.T, dir string, until time.Time) {
	t.Helper()
	if err := Release(dir, until); err != nil {
		t.Fatal(err)
	}
}

// An order too far in the future was written before the clock was set back. A broken order
// counts as none.
func TestReleasesThatAreNone(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	order(t, dir, now.Add(LongestRelease+time.Minute))
	if until, _, err := ReleasedUntil(dir, now); !until.IsZero() || err != nil {
		t.Errorf("released until %s: %v", until, err)
	}
	if err := os.WriteFile(filepath.Join(dir, releaseFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if until, _, err := ReleasedUntil(dir, now); !until.IsZero() || err == nil {
		t.Errorf("released until %s: %v", until, err)
	}
}
