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

// readiness tracks whether CUDA starts on this node. If NVSwitches join the GPUs, CUDA fails with
// error 802 until the fabric manager runs. A node without a fabric manager would accept job after
// job, and every job would fail. NVML reports a missing fabric manager only from Hopper on.
//
// A single refusal by CUDA proves nothing, because the fabric may be starting. After a refused
// session, the scheduler runs processes that only start CUDA, one after the other, until CUDA
// starts. Other failures prove nothing. If NVML also reports that the fabric is not set up, one
// refusal is enough, and one process runs each minute. NVML alone does not decide, because on some
// machines NVML reports a failed fabric although CUDA starts.
//
// Sessions are rare, so on a node that may have NVSwitches, a test process also starts CUDA each
// hour. Error 803 means that some libraries do not fit the driver. NVML shows whether error 803
// concerns the system or only one process.
type readiness struct {
	refusals int       // refusals in a row
	started  bool      // CUDA started at the last attempt
	asked    time.Time // time of the last process
}

// refusedOften is the number of refusals in a row after which the node counts as not ready. The
// session's refusal counts.
const refusedOften = 3

// not reports whether CUDA fails to start. said means that NVML reports that the fabric is not set
// up.
func (r readiness) not(said bool) bool { return r.refusals >= refusedOften || said && r.refusals > 0 }

// suspected records a refused session. Several refused sessions at the same time count once.
func (r readiness) suspected(now time.Time) readiness {
	if r.refusals == 0 {
		r.refusals, r.asked = 1, now
	}
	return r
}

// due reports whether the next process should start. suspected is the minimum time between
// processes after a refusal. unsuspected is the minimum time otherwise; 0 means that no process
// runs.
func (r readiness) due(now time.Time, suspected, unsuspected time.Duration) bool {
	if r.refusals == 0 {
		return unsuspected > 0 && now.Sub(r.asked) >= unsuspected
	}
	return now.Sub(r.asked) >= suspected
}

// after records the outcome of a process that tested CUDA.
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

// ask tests in a goroutine of wg whether CUDA starts, if a test is due.
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

// mayHaveSwitches reports whether NVSwitches may join the GPUs. mayHaveSwitches counts GPUs,
// because switches that do not work are invisible. Callers hold mu.
func (s *Scheduler) mayHaveSwitches() bool {
	whole := 0
	for _, d := range s.inv.Devices {
		if d.MIG.Profile == "" && Supported(d) == nil {
			whole++
		}
	}
	return whole > 1
}

// fabricSaid reports whether NVML reports that a GPU's fabric is not set up. Callers hold mu.
func (s *Scheduler) fabricSaid() bool {
	return slices.ContainsFunc(s.inv.Devices, func(d gpu.Device) bool {
		return slices.Contains(d.Signals.FabricLimits, gpu.FabricNotReady) || slices.Contains(d.Signals.FabricLimits, gpu.FabricFailed)
	})
}

// answered records the outcome of the process that tested CUDA.
func (s *Scheduler) answered(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.ready.not(s.fabricSaid())
	s.ready, s.asking = s.ready.after(time.Now(), err), nil
	switch not := s.ready.not(s.fabricSaid()); {
	case not && !before:
		s.log.Warn("CUDA does not start on this node: its GPUs are unhealthy until CUDA starts", "error", err)
		s.tell()
	case before && !not:
		s.log.Info("CUDA starts again on this node")
		s.tell()
	}
}
