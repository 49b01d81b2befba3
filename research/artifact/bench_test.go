// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

//go:build unix

package artifact

import (
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/research/pyrandom"
	"github.com/nomad-pal/nomad-pal/sim"
	"github.com/nomad-pal/nomad-pal/sim/population"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// cpuTime is the CPU time that this process has used: on a busy machine, wall time is not
// meaningful.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkFaithful runs a generated workload like the artifact's, without its data, under PAL
// and in rounds.
func BenchmarkFaithful(b *testing.B) {
	t := trace.SiaPhilly(1, trace.Shape{Jobs: 160})
	p, err := sim.DrawGPUs(population.Spec{Cluster: "longhorn", Nodes: 16, GPUsPerNode: 4, Outliers: population.AsMeasured()}, 1)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		c, err := Cluster(p, pal.TwoTier(pal.DefaultPenalty))
		if err != nil {
			b.Fatal(err)
		}
		if _, err := (Run{Jobs: t.Jobs, Cluster: c, Policy: "pal", Order: "fifo", RoundS: 360, LoadPerH: 2,
			Fillers: true, Arrivals: pyrandom.New(1)}).Run(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkArtifact runs the artifact's own runs, and compares with the time that the artifact
// took (golden/results.csv; its README names the machine). There are two such times: of the
// unmodified artifact, and of the same logic in one process without its logging. Ours is CPU
// time, summed over all threads.
func BenchmarkArtifact(b *testing.B) {
	dir := os.Getenv("PAL_DATA")
	if dir == "" {
		b.Skip("PAL_DATA is not set: the artifact's times are missing")
	}
	rows := longhorn(b, dir)
	for _, unmodified := range []bool{true, false} {
		name := map[bool]string{true: "unmodified", false: "one-process"}[unmodified]
		b.Run(name, func(b *testing.B) {
			theirs, ours := map[run]float64{}, map[run]float64{}
			for b.Loop() {
				for _, r := range csvRows(b, filepath.Join(dir, "golden", "results.csv")) {
					if strings.HasPrefix(r["driver"], "original") != unmodified {
						continue
					}
					wall, err := strconv.ParseFloat(r["wall_s"], 64)
					if err != nil {
						b.Fatal(err)
					}
					start := cpuTime(b)
					k := run{strings.TrimSuffix(strings.TrimPrefix(r["trace"], "workload-"), ".csv"), r["policy"], r["scheduler"]}
					runArtifact(b, rows, dir, k, nil)
					ours[k] += (cpuTime(b) - start).Seconds()
					theirs[k] += wall
				}
			}
			sumTheirs, sumOurs, least := 0.0, 0.0, math.Inf(1)
			for k := range ours {
				sumTheirs, sumOurs, least = sumTheirs+theirs[k], sumOurs+ours[k], min(least, theirs[k]/ours[k])
			}
			b.ReportMetric(sumTheirs/sumOurs, "times-faster")
			b.ReportMetric(least, "least-times-faster")
		})
	}
}
