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

// If NVSwitches join the GPUs, CUDA fails with error 802 until the fabric manager runs. A node
// without a fabric manager would accept job after job, and every job would fail. NVML reports a
// missing fabric manager only from Hopper on, and on some machines NVML reports a failed fabric
// although CUDA starts. So the scheduler runs a process that only starts CUDA. Failures other than
// error 802 prove nothing.

// isRefused reports whether CUDA did not start because the system is not ready.
func isRefused(err error) bool {
	e, ok := errors.AsType[*childError](err)
	return ok && e.code == cuda.SystemNotReady
}

// ask tests in a goroutine of wg whether CUDA starts, if a test is due. On a node with a single GPU,
// no NVSwitch joins it to another. Switches that do not work are invisible, so ask counts GPUs.
func (s *Scheduler) ask(ctx context.Context, wg *sync.WaitGroup, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	wait := s.cfg.AskUnsuspected
	if s.refused {
		wait = s.cfg.Ask
	}
	if s.paused || s.asking != nil || s.whole() < 2 && !s.refused || now.Sub(s.asked) < wait {
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

// answered records the outcome of the process that tested CUDA.
func (s *Scheduler) answered(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked, s.asking = time.Now(), nil
	switch {
	case isRefused(err) && !s.refused:
		s.log.Warn("CUDA does not start on this node: its GPUs are unhealthy until CUDA starts", "error", err)
	case err == nil && s.refused:
		s.log.Info("CUDA starts again on this node")
	default:
		return
	}
	s.refused = err != nil
	s.tell()
}
