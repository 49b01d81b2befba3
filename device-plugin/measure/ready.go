// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measure

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nomad-pal/nomad-pal/device-plugin/cuda"
)

// readiness is whether CUDA starts on this node. Where NVSwitches join the GPUs it does not
// without the fabric manager (error 802), which NVML tells from Hopper on only: such a node
// takes job after job, and all fail.
//
// One process that CUDA refuses says nothing, as the fabric may be coming up: after a session
// that was refused, processes that do no more than start CUDA are asked one after the other,
// for as long as they are refused. Only a process that CUDA starts for ends what they say;
// any other failure says nothing. Sessions are a week apart, or never come (measure mode manual), so where
// NVSwitches may be, one process is asked each hour, too. Error 803, of libraries that do not fit the driver, may be
// this process's alone, and NVML tells where it is the system's.
type readiness struct {
	refusals int       // in a row
	asked    time.Time // the last process
}

// refusedOften is how many processes in a row CUDA must refuse, the session's included.
const refusedOften = 3

// not says that CUDA does not start.
func (r readiness) not() bool { return r.refusals >= refusedOften }

// suspected takes a session that was refused; several at a time are one.
func (r readiness) suspected(now time.Time) readiness {
	if r.refusals == 0 {
		r.refusals, r.asked = 1, now
	}
	return r
}

// due says whether it is time for the next process: the least times between them, once CUDA has refused
// one, and before that; 0 for never.
func (r readiness) due(now time.Time, suspected, unsuspected time.Duration) bool {
	if r.refusals == 0 {
		return unsuspected > 0 && now.Sub(r.asked) >= unsuspected
	}
	return now.Sub(r.asked) >= suspected
}

// after takes the outcome of a process.
func (r readiness) after(now time.Time, err error) readiness {
	r.asked = now
	switch {
	case err == nil:
		r.refusals = 0
	case isRefused(err):
		r.refusals = min(r.refusals+1, refusedOften)
	}
	return r
}

// isRefused says whether CUDA did not start because the system is not ready.
func isRefused(err error) bool {
	e, ok := errors.AsType[*childError](err)
	return ok && e.code == cuda.SystemNotReady
}

// ask has a process start CUDA, in a goroutine of wg, if one is to be asked now.
func (s *Scheduler) ask(ctx context.Context, wg *sync.WaitGroup, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	unsuspected := s.cfg.AskUnsuspected
	if !s.mayHaveSwitches() {
		unsuspected = 0
	}
	if s.paused || s.asking != nil || !s.ready.due(now, s.cfg.Ask, unsuspected) {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &running{cancel: cancel, done: make(chan struct{})}
	s.asking = r
	wg.Go(func() {
		defer cancel()
		_, err := s.run.List(ctx)
		close(r.done)
		s.answered(err)
	})
}

// mayHaveSwitches says whether NVSwitches may join the GPUs: of those that do not work nothing shows.
// Callers hold mu.
func (s *Scheduler) mayHaveSwitches() bool {
	whole := 0
	for _, d := range s.inv.Devices {
		if d.MIGProfile == "" && Supported(d) == nil {
			whole++
		}
	}
	return whole > 1
}

// answered takes what became of the process.
func (s *Scheduler) answered(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.ready.not()
	s.ready, s.asking = s.ready.after(time.Now(), err), nil
	switch not := s.ready.not(); {
	case not && !before:
		s.log.Warn("CUDA does not start on this node: its GPUs are unhealthy until it does", "error", err)
		s.tell()
	case before && !not:
		s.log.Info("CUDA starts again on this node")
		s.tell()
	}
}
