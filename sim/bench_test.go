// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

//go:build unix

package sim

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// synthetic is a cluster whose class-A scores spread over 5 % with some 0.5 %
// outliers.
func synthetic(tb testing.TB, nodes, gpusPerNode int) *pal.Cluster {
	tb.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	var ns []pal.Node
	for n := range nodes {
		var us []pal.GPU
		for i := range gpusPerNode {
			u := pal.GPU{ID: fmt.Sprintf("%d-%d", n, i)}
			for k := range u.Scores {
				bin := r.IntN(5)
				u.Scores[k], u.Binned[k] = pal.PMScore(0.96+0.02*float64(bin)+0.02*r.Float64()), pal.PMScore(0.97+0.02*float64(bin))
			}
			if r.IntN(200) == 0 {
				u.Scores[0], u.Binned[0] = 2.5, 2.5
			}
			us = append(us, u)
		}
		ns = append(ns, pal.Node{ID: fmt.Sprint(n), Datacenter: "dc", Groups: []pal.DeviceGroup{{Name: "gpu", GPUs: us}}})
	}
	c, err := pal.NewCluster(ns, pal.TwoTier(pal.DefaultPenalty))
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// cpuTime is the processor time that this process has used: on a busy machine, wall time is not
// meaningful.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkJobs measures the CPU time per simulated job, in µs, for several numbers of jobs and
// GPUs. The largest case is that of `make sim-million`: a million jobs on 100,000 GPUs.
func BenchmarkJobs(b *testing.B) {
	for _, size := range []struct{ jobs, nodes int }{{10_000, 125}, {10_000, 1250}, {10_000, 12_500}, {100_000, 125}, {100_000, 1250}, {100_000, 12_500}, {1_000_000, 12_500}} {
		b.Run(fmt.Sprintf("jobs=%d/gpus=%d", size.jobs, 8*size.nodes), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				t := trace.HeavyTail(1, size.jobs, 8*size.nodes, 0.9)
				c := synthetic(b, size.nodes, 8)
				b.StartTimer()
				start := cpuTime(b)
				out, err := Config{Jobs: t.Jobs, Cluster: c, Queue: queue.Options{Order: queue.Adaptive, Backfill: queue.BackfillReserved,
					Placement: pal.Policy{Name: pal.PAL}}}.Run()
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64((cpuTime(b)-start).Microseconds())/float64(size.jobs), "µs/job")
				b.ReportMetric(out.Utilization, "utilization")
			}
		})
	}
}

// BenchmarkPreemption measures the CPU time per simulated job, in µs, under the default queue, if
// gangs may be stopped and at most twelve per hour are moved.
func BenchmarkPreemption(b *testing.B) {
	for _, size := range []struct{ jobs, nodes int }{{10_000, 125}, {100_000, 1250}, {1_000_000, 12_500}} {
		b.Run(fmt.Sprintf("jobs=%d/gpus=%d", size.jobs, 8*size.nodes), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				t := trace.HeavyTail(1, size.jobs, 8*size.nodes, 0.9)
				c := synthetic(b, size.nodes, 8)
				b.StartTimer()
				start := cpuTime(b)
				out, err := Config{Jobs: t.Jobs, Cluster: c, Queue: queue.Default(), Preemptible: true, RestartS: 60}.Run()
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64((cpuTime(b)-start).Microseconds())/float64(size.jobs), "µs/job")
				b.ReportMetric(float64(out.Preemptions)/float64(size.jobs), "restarts/job")
			}
		})
	}
}
