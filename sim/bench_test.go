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
	"github.com/nomad-pal/nomad-pal/pal/profile"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/sim/population"
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

// BenchmarkCalibration measures the CPU time per job, in µs, on 10,000 GPUs drawn as `simulate`
// draws them, for each method of binning. K-means makes hundreds of bins, and the core tries one
// after the other.
func BenchmarkCalibration(b *testing.B) {
	const nodes, jobs = 1250, 10_000
	p, err := DrawGPUs(population.Spec{Cluster: "longhorn", Nodes: nodes, GPUsPerNode: 8, Outliers: population.AsMeasured()}, 42)
	if err != nil {
		b.Fatal(err)
	}
	for name, o := range map[string]profile.Options{"edges": profile.DefaultOptions(), "kmeans": {Method: profile.KMeans}} {
		ns, err := p.PalNodes(o)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				t := trace.HeavyTail(1, jobs, 8*nodes, 0.9)
				c, err := pal.NewCluster(ns, pal.TwoTier(pal.DefaultPenalty))
				if err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				start := cpuTime(b)
				if _, err := (Config{Jobs: t.Jobs, Cluster: c, Queue: queue.Options{Order: queue.Adaptive, Backfill: queue.BackfillReserved, LocalityWait: true,
					OutlierThreshold: queue.DefaultOutlierThreshold, Placement: pal.Policy{Name: pal.PAL}}}).Run(); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64((cpuTime(b)-start).Microseconds())/jobs, "µs/job")
			}
		})
	}
}

// BenchmarkRules measures the CPU time per job with all features in use: gangs may be stopped,
// forty teams in eight departments have quotas, a sixteenth of the nodes is in maintenance for
// four hours of each day, and one team has a reservation each night.
func BenchmarkRules(b *testing.B) {
	const jobs, nodes, gpus = 10_000, 125, 1000
	tenants := map[string]queue.Tenant{}
	for i := range 40 {
		tenants[fmt.Sprintf("department-%d/team-%d", i%8, i)] = queue.Tenant{Quota: gpus / 40}
	}
	part := func(i, of int) (us []int) {
		for u := gpus / of * i; u < gpus/of*(i+1); u++ {
			us = append(us, u)
		}
		return us
	}
	windows := func(now time.Duration) ([]queue.Window, time.Duration) {
		const day = 24 * time.Hour
		today := now / day
		var ws []queue.Window
		for d := today; d < today+2; d++ {
			ws = append(ws, queue.Window{Name: "maintenance", From: d*day + 2*time.Hour, To: d*day + 6*time.Hour, GPUs: part(int(d)%16, 16)},
				queue.Window{Name: "night", From: d*day + 20*time.Hour, To: d*day + 24*time.Hour, GPUs: part(0, 20), For: []string{"team-0"}})
		}
		return ws, (today + 1) * day
	}
	for _, rules := range []struct {
		name                      string
		tenants, windows, preempt bool
	}{{"none", false, false, true}, {"quotas", true, false, true}, {"windows", false, true, true}, {"both,nobody stopped", true, true, false}, {"both", true, true, true}} {
		b.Run(rules.name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				t := trace.HeavyTail(1, jobs, gpus, 0.9)
				c := Config{Jobs: t.Jobs, Cluster: synthetic(b, nodes, 8), Queue: queue.Default(), Preemptible: rules.preempt, RestartS: 60}
				if rules.tenants {
					c.Queue.Tenants = tenants
				}
				if rules.windows {
					c.Windows = windows
				}
				b.StartTimer()
				start := cpuTime(b)
				if _, err := c.Run(); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64((cpuTime(b)-start).Microseconds())/jobs, "µs/job")
			}
		})
	}
}
