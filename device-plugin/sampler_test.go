// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"context"
	"maps"
	"os"
	"regexp"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/device-plugin/measure"
	"github.com/nomad-pal/nomad-pal/device-plugin/statedir"
)

// slowDriver takes a second for a reading.
type slowDriver struct{ stage }

func (d *slowDriver) Sample(ids []string) map[string]gpu.Sample {
	time.Sleep(time.Second) // of synctest's clock
	return d.stage.Sample(ids)
}

// Whoever asks while a reading runs gets it, and one of the devices that it was
// not about; a driver that is slower than the caller waits gives what there is.
func TestReadingsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSampler(&slowDriver{})
		got := make(chan []string, 3)
		ask := func(wait time.Duration, ids ...string) {
			readings, _ := s.sample(ids, time.Minute, wait)
			got <- slices.Sorted(maps.Keys(readings))
		}
		go ask(time.Hour, "a")
		synctest.Wait()
		go ask(time.Hour, "a", "b")
		synctest.Wait()
		ask(500*time.Millisecond, "c")
		for _, want := range [][]string{nil, {"a"}, {"a", "b"}} {
			if ids := <-got; !slices.Equal(ids, want) {
				t.Errorf("got readings of %v, want %v", ids, want)
			}
		}
	})
}

// What the plugin does every second it does on the whole second, so that a node at
// rest is woken once for all of it.
func TestTimersFireTogether(t *testing.T) {
	cfg := DefaultConfig()
	cfg.StateDir = t.TempDir()
	if err := os.Chmod(cfg.StateDir, 0o700); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(300 * time.Millisecond)
		p, _, log, _ := onStage(1, cfg)
		ctx, cancel := context.WithCancel(t.Context())
		c, err := p.Fingerprint(ctx)
		if err != nil {
			t.Fatal(err)
		}
		next(t, c)
		if err := statedir.Clear.Give(statedir.Dir(cfg.StateDir), "GPU-0"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(111 * time.Millisecond)
		stats, err := p.Stats(ctx, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		<-stats // the first comes at once
		for range 3 {
			<-stats
			if late := time.Since(time.Now().Truncate(time.Second)); late != 0 {
				t.Errorf("statistics come %s after a whole second", late)
			}
		}
		cancel()
		for range c {
		}
		synctest.Wait()
		if !regexp.MustCompile(`\.000\S* \[INFO\]\s+latched faults are cleared`).MatchString(log.String()) {
			t.Errorf("orders are not looked at on the whole second:\n%s", log)
		}
	})
}

// A driver whose wait for events does not end keeps the next stream from nothing:
// that stream measures GPUs, as the one before it did.
func TestEventSourceThatDoesNotEnd(t *testing.T) {
	cfg := DefaultConfig()
	cfg.StateDir = ""
	cfg.Measure.Mode = measure.Off
	synctest.Test(t, func(t *testing.T) {
		waits := make(chan struct{})
		defer close(waits)
		p := New(Options{Log: hclog.NewNullLogger(), Self: []string{"none"},
			Open: func(Config, hclog.Logger) (Backend, error) { return &deaf{waits: waits}, nil }})
		p.Configure(cfg)
		for range 2 {
			ctx, cancel := context.WithCancel(t.Context())
			c, err := p.Fingerprint(ctx)
			if err != nil {
				t.Fatal(err)
			}
			next(t, c)
			p.mu.Lock()
			if p.running == nil || p.running != p.measures {
				t.Error("the stream does not measure")
			}
			p.mu.Unlock()
			cancel()
			for range c {
			}
			synctest.Wait()
			p.mu.Lock()
			if p.running != nil {
				t.Error("a stream that has ended measures")
			}
			p.mu.Unlock()
		}
	})
}

// deaf is a backend whose event source ends when the test says so.
type deaf struct {
	stage
	waits chan struct{}
}

func (d *deaf) Events(context.Context, chan<- gpu.Event) { <-d.waits }
