// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// After events that only show progress the next cycle is delayed; after other events it runs at
// once.
func TestDebounce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlacer(t)
		// There is no Nomad, so nothing may be due to be read.
		p.m.State, p.profileReadAt, p.failureLog.readAt = cluster.NewState(), time.Now().Add(time.Hour), time.Now().Add(time.Hour)
		p.m.Controls, p.resyncedAt = map[cluster.JobKey]gang.Control{}, time.Now()
		began := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		events := make(chan []cluster.Event)
		p.events = events
		ended := make(chan error, 1)
		done := make(chan error)
		go func() { done <- p.runCycles(ctx, ended) }()
		synctest.Wait()
		index := uint64(1)
		hear := func(gap time.Duration, kind string, want time.Duration) {
			t.Helper()
			time.Sleep(time.Second - time.Since(began)%time.Second + 5*time.Millisecond)         // wait until between two ticks
			events <- []cluster.Event{{Topic: "Node", Type: "NodeDeregistration", Index: index}} // causes a cycle at once
			synctest.Wait()
			last := p.Vitals().LastCycle
			time.Sleep(gap)
			job := rewrite.Gate(benchJob("stopped", 1))
			stop := true
			job.Stop = &stop
			e := cluster.Event{Topic: "Job", Type: kind, Index: index}
			e.Payload.Job, index = job, index+1
			events <- []cluster.Event{e}
			time.Sleep(500 * time.Millisecond)
			synctest.Wait()
			if got := p.Vitals().LastCycle.Sub(last); got != want {
				t.Errorf("%s, %v after a cycle: the next cycle is %v after that one, want %v", kind, gap, got, want)
			}
		}
		hear(time.Millisecond, "EvaluationUpdated", 10*time.Millisecond)
		hear(time.Millisecond, "JobRegistered", time.Millisecond)
		hear(20*time.Millisecond, "EvaluationUpdated", 20*time.Millisecond)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
