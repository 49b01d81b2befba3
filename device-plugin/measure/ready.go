// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measure

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/nomad-pal/nomad-pal/device-plugin/cuda"
	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
)

// readiness tells whether CUDA starts on this node. Where NVSwitches join the GPUs, CUDA needs the
// fabric manager (else error 802), and NVML shows that only from Hopper on. A node without it takes
// job after job, and all fail.
//
// One refusal by CUDA proves nothing, as the fabric may be coming up. After a session that was
// refused, processes that only start CUDA are tried one after the other, for as long as they are
// refused. Only a process for which CUDA starts ends that; any other failure proves nothing. If
// NVML also reports that the fabric is not set up, one refusal is enough, and a process is tried
// each minute until CUDA starts. NVML alone does not decide: on some machines it reports a failed
// fabric, and CUDA starts. Sessions are a week apart, or never come (measure mode manual), so where
// NVSwitches may be, one process is tried each hour, too. Error 803, of libraries that do not fit
// the driver, may concern this process alone; NVML tells if it concerns the system.
type readiness struct {
	refusals int       // in a row
	started  bool      // CUDA started when last asked
	asked    time.Time // the last process
}

// refusedOften is how many processes in a row CUDA must refuse, the session's included.
const refusedOften = 3

// not says that CUDA does not start; said is whether NVML says that the fabric is not set up.
func (r readiness) not(said bool) bool { return r.refusals >= refusedOften || said && r.refusals > 0 }

// suspected takes a session that was refused; several at a time are one.
func (r readiness) suspected(now time.Time) readiness {
	if r.refusals == 0 {
		r.refusals, r.asked = 1, now
	}
	return r
}

// due reports whether it is time for the next process: the least times between them, once CUDA has refused
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
		r.refusals, r.started = 0, true
	case isRefused(err):
		r.started = false
		r.refusals = min(r.refusals+1, refusedOften)
	}
	return r
}

// isRefused reports whether CUDA did not start because the system is not ready.
func isRefused(err error) bool {
	e, ok := errors.AsType[*childError](err)
	return ok && e.code == cuda.SystemNotReady
}

// ask has a process start CUDA, in a goroutine of wg, if one is to be asked now.
func (s *Scheduler) ask(ctx context.Context, wg *sync.WaitGroup, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	unsuspected := s.cfg.AskUnsuspected
	switch said := s.fabricSaid(); {
	case said && !s.ready.started:
		unsuspected = s.cfg.Ask
	case !said && !s.mayHaveSwitches():
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

// mayHaveSwitches reports whether NVSwitches may join the GPUs: of those that do not work nothing shows.
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

// fabricSaid reports whether NVML says that the fabric of a GPU is not set up. Callers hold mu.
func (s *Scheduler) fabricSaid() bool {
	return slices.ContainsFunc(s.inv.Devices, func(d gpu.Device) bool {
		return slices.Contains(d.Signals.FabricLimits, gpu.FabricNotReady) || slices.Contains(d.Signals.FabricLimits, gpu.FabricFailed)
	})
}

// answered takes the outcome of the process.
func (s *Scheduler) answered(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.ready.not(s.fabricSaid())
	s.ready, s.asking = s.ready.after(time.Now(), err), nil
	switch not := s.ready.not(s.fabricSaid()); {
	case not && !before:
		s.log.Warn("CUDA does not start on this node: its GPUs are unhealthy until it does", "error", err)
		s.tell()
	case before && !not:
		s.log.Info("CUDA starts again on this node")
		s.tell()
	}
}
