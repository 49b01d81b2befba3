// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

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
	scans   singleflight.Group
	started atomic.Pointer[time.Time] // of the scan that runs; nil when none does
}

// start begins a scan or joins the running one. The result arrives on the
// channel, which is never closed.
func (s *scanner) start() <-chan singleflight.Result {
	return s.scans.DoChan("", func() (any, error) {
		s.started.Store(new(time.Now()))
		defer s.started.Store(nil)
		inv, err := s.backend.Scan()
		return scanResult{inv, err}, nil
	})
}

// running is how long the present scan has been running, 0 for none.
func (s *scanner) running() time.Duration {
	if at := s.started.Load(); at != nil {
		return time.Since(*at)
	}
	return 0
}

// sampler reads statistics, one reading at a time for all who ask, and apart
// from its caller for the same reason as scanner.
type sampler struct {
	backend Backend

	mu      sync.Mutex
	running chan struct{} // closed at the end of the reading in progress; nil if there is none
	// last and taken are never changed, but replaced: callers hold on to them.
	last  map[string]gpu.Sample
	taken map[string]time.Time
}

// sample returns readings of the devices not older than maxAge, or what was
// read last when the driver does not answer within wait. A device that could
// not be read is not in it. A reading that runs is waited for: it may be of other
// devices, so there may be one more after it.
func (s *sampler) sample(ids []string, maxAge, wait time.Duration) (map[string]gpu.Sample, map[string]time.Time) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for mine := false; ; {
		s.mu.Lock()
		if last, taken := s.last, s.taken; mine || s.fresh(ids, maxAge) {
			s.mu.Unlock()
			return last, taken
		}
		if s.running == nil {
			mine, s.running = true, make(chan struct{})
			go func() { s.take(ids, s.backend.Sample(ids)) }()
		}
		done := s.running
		s.mu.Unlock()
		select {
		case <-done:
		case <-timer.C:
			mine = true // what there is will do
		}
	}
}

// fresh reports whether all devices were asked within maxAge. Callers hold mu.
func (s *sampler) fresh(ids []string, maxAge time.Duration) bool {
	for _, id := range ids {
		if at, ok := s.taken[id]; !ok || time.Since(at) >= maxAge {
			return false
		}
	}
	return true
}

// take replaces what is known of the devices.
func (s *sampler) take(ids []string, reading map[string]gpu.Sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, taken := maps.Clone(s.last), maps.Clone(s.taken)
	if last == nil {
		last, taken = map[string]gpu.Sample{}, map[string]time.Time{}
	}
	for _, id := range ids {
		delete(last, id)
		taken[id] = time.Now()
		if r, ok := reading[id]; ok {
			last[id] = r
		}
	}
	close(s.running)
	s.last, s.taken, s.running = last, taken, nil
}
