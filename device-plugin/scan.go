// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"sync"
	"time"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
)

// scanResult is the outcome of one scan.
type scanResult struct {
	inv gpu.Inventory
	err error
}

// scanner runs one scan at a time, apart from its caller: a driver call may
// never return, and nothing can make it. A scan that hangs keeps its goroutine
// until the process ends, which the watchdog sees to.
type scanner struct {
	backend Backend

	mu      sync.Mutex
	started time.Time // of the scan that runs; zero when none does
	waiting []chan scanResult
}

func newScanner(b Backend) *scanner { return &scanner{backend: b} }

// start begins a scan, or joins the one that runs; the result comes on the
// channel, which is never closed.
func (s *scanner) start() <-chan scanResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := make(chan scanResult, 1)
	s.waiting = append(s.waiting, c)
	if s.started.IsZero() {
		s.started = time.Now()
		go s.scan()
	}
	return c
}

func (s *scanner) scan() {
	inv, err := s.backend.Scan()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.waiting {
		c <- scanResult{inv, err}
	}
	s.waiting, s.started = nil, time.Time{}
}

// running is how long the present scan has been running, 0 for none.
func (s *scanner) running() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started.IsZero() {
		return 0
	}
	return time.Since(s.started)
}

// sampler reads statistics, at most once an interval, and apart from its caller
// for the same reason as scanner.
type sampler struct {
	backend Backend

	mu      sync.Mutex
	running bool
	taken   time.Time
	last    map[string]gpu.Sample
}

func newSampler(b Backend) *sampler { return &sampler{backend: b} }

// sample returns a reading not older than minAge, or the last one when the
// driver does not answer within wait.
func (s *sampler) sample(ids []string, minAge, wait time.Duration) (map[string]gpu.Sample, time.Time) {
	s.mu.Lock()
	if s.running || (!s.taken.IsZero() && time.Since(s.taken) < minAge) {
		defer s.mu.Unlock()
		return s.last, s.taken
	}
	s.running = true
	s.mu.Unlock()

	done := make(chan struct{})
	go func() {
		defer close(done)
		reading := s.backend.Sample(ids)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.last, s.taken, s.running = reading, time.Now(), false
	}()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last, s.taken
}
