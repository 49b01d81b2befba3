// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
)

// scanResult is the result of one scan.
type scanResult struct {
	inv     gpu.Inventory
	err     error
	daemons map[string]error // why MPS control daemons do not answer, by pipe directory
}

// scanner runs one scan at a time, in its own goroutine, because a driver call can hang forever and
// cannot be cancelled. A scan that hangs keeps its goroutine until the watchdog ends the process.
type scanner struct {
	backend Backend
	pipes   []string // of the MPS control daemons to ask
	scans   singleflight.Group
	started atomic.Pointer[time.Time] // start of the running scan; nil if none runs
}

// start begins a scan or joins the running one. The result arrives on the
// channel, which is never closed.
func (s *scanner) start() <-chan singleflight.Result {
	return s.scans.DoChan("", func() (any, error) {
		s.started.Store(new(time.Now()))
		defer s.started.Store(nil)
		daemons := make(chan map[string]error, 1)
		go func() { daemons <- askDaemons(s.pipes) }()
		inv, err := s.backend.Scan()
		return scanResult{inv, err, <-daemons}, nil
	})
}

// running returns how long the present scan has been running; 0 if none runs.
func (s *scanner) running() time.Duration {
	at := s.started.Load()
	if at != nil {
		return time.Since(*at)
	}
	return 0
}

// sampler reads the statistics in its own goroutine, because a driver call can hang. sampler makes
// one reading at a time, which all callers share.
type sampler struct {
	backend Backend

	mu      sync.Mutex
	running chan struct{} // closed at the end of the running reading; nil if none runs
	// last and taken are never changed, only replaced, because callers keep them.
	last  map[string]gpu.Sample
	taken map[string]time.Time
}

// sample returns readings of the devices, at most maxAge old. If the driver does not answer within
// wait, sample returns the previous readings. sample leaves out devices that could not be read. If
// a reading of other devices is running, sample waits and then starts its own.
func (s *sampler) sample(ids []string, maxAge, wait time.Duration) (map[string]gpu.Sample, map[string]time.Time) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for mine := false; ; {
		s.mu.Lock()
		last, taken := s.last, s.taken
		if mine || s.fresh(ids, maxAge) {
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
			mine = true // return what there is
		}
	}
}

// fresh reports whether all devices were read during the last maxAge. Callers hold mu.
func (s *sampler) fresh(ids []string, maxAge time.Duration) bool {
	return !slices.ContainsFunc(ids, func(id string) bool { return time.Since(s.taken[id]) >= maxAge })
}

// take replaces the readings of the devices.
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
	s.last = last
	s.taken = taken
	s.running = nil
}
