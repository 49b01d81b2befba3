// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"time"

	"github.com/nomad-pal/nomad-pal/bench/replay"
	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

const (
	gpusPerNode = 4
	compression = 120
	// locality is the average slowdown of gangs across nodes; the load includes this slowdown.
	locality = 1.3
)

// workload returns jobs with the statistics of Sia-Philly. Their work is load × the GPUs' capacity
// over the soak's duration. Every second job may be stopped and restarted.
func (o options) workload() []replay.Job {
	const sample = 2000
	work := 0.0
	for _, j := range o.generate(sample) {
		work += j.Work().Seconds() * float64(j.GPUs()) * locality / sample
	}
	n := max(1, int(o.load*float64(o.Nodes*gpusPerNode)*o.duration.Seconds()/work))
	jobs := o.generate(n)
	last := jobs[n-1].Submit
	for i := range jobs {
		jobs[i].Submit = time.Duration(float64(jobs[i].Submit) / float64(last) * float64(o.duration))
		jobs[i].Preempt = i%2 == 0
	}
	return jobs
}

// generate returns n jobs. No gang needs more than half the cluster, because a wider gang would
// delay the soak for minutes while a client is down or a GPU is unhealthy.
func (o options) generate(n int) []replay.Job {
	gpus := max(1, o.Nodes/2) * gpusPerNode
	return replay.FromTrace(trace.SiaPhilly(o.Seed, trace.Shape{Jobs: n, MaxGPUs: gpus}), replay.Compression{
		Arrivals: compression, Work: compression, Shortest: time.Second, Longest: o.longest,
		Iteration: 250 * time.Millisecond, MaxGPUs: gpus, GPUsPerNode: gpusPerNode, OneGPUUpTo: 4,
	})
}

// traffic submits the workload. traffic pauses while too many jobs are unfinished, because an
// ever-growing queue would hide other growth. timed ends after the soak's duration; ctx ends if the
// soak is aborted.
func (s *soak) traffic(ctx, timed context.Context) error {
	for _, j := range s.workload() {
		if err := cluster.Pause(timed, time.Until(s.start.Add(j.Submit))); err != nil {
			return err
		}
		for s.unfinished() >= s.queue {
			s.report.count(&s.report.HeldBackS)
			if err := cluster.Pause(timed, time.Second); err != nil {
				return err
			}
		}
		s.rendezvous.Expect(s.Gang(j))
		if err := s.Submit(ctx, j, s.rendezvous, true); err != nil {
			return err
		}
		s.report.count(&s.report.Submitted)
	}
	return nil
}

func (s *soak) unfinished() int {
	n := 0
	for _, g := range s.rendezvous.States() {
		if !g.Finished {
			n++
		}
	}
	return n
}
