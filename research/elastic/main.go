// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Elastic compares elastic gangs with gangs of one size: the same workloads, with a
// part of the gangs of several members elastic. It prints a table of ratios to the same
// queue without elastic gangs.
package main

import (
	"flag"
	"fmt"
	"math"
	"os"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/sim"
	"github.com/nomad-pal/nomad-pal/sim/population"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

const (
	nodes, nodeGPUs = 16, 8
	outliers        = 2
	restartS        = 60
)

// figures are of one run.
type figures struct{ avg, p99, makespan, useful, resizes float64 }

func main() {
	jobs := flag.Int("jobs", 1500, "jobs of a workload")
	seeds := flag.Int("seeds", 8, "workloads of each load")
	first := flag.Uint64("first", 8, "seed of the first of them; those before were to choose by")
	flag.Parse()
	if err := run(*jobs, *seeds, *first); err != nil {
		fmt.Fprintf(os.Stderr, "elastic: %v\n", err)
		os.Exit(1)
	}
}

func run(jobs, seeds int, first uint64) error {
	fmt.Println("| load | gangs may be stopped | elastic | members | efficiency | average JCT | p99 JCT | makespan | utilisation, rigid | utilisation | changes of size a gang |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|---|---|")
	for _, load := range []float64{0.6, 0.85, 1.1} {
		for _, preempt := range []bool{false, true} {
			var rigid []figures
			for _, e := range []trace.Elastic{
				{},
				{Share: 0.25, Least: 0.5, Most: 2, Efficiency: 1},
				{Share: 1, Least: 0.5, Most: 1, Efficiency: 1},
				{Share: 1, Least: 0.5, Most: 2, Efficiency: 1},
				{Share: 1, Least: 0.25, Most: 4, Efficiency: 1},
				{Share: 1, Least: 0.5, Most: 2, Efficiency: 0.85},
			} {
				var fs []figures
				for seed := range seeds {
					f, err := one(first+uint64(seed), jobs, load, preempt, e)
					if err != nil {
						return err
					}
					fs = append(fs, f)
				}
				if e.Share == 0 {
					rigid = fs
					continue
				}
				over := func(of func(figures) float64) float64 {
					sum := 0.0
					for i := range fs {
						sum += math.Log(of(fs[i]) / of(rigid[i]))
					}
					return math.Exp(sum / float64(len(fs)))
				}
				mean := func(fs []figures, of func(figures) float64) float64 {
					sum := 0.0
					for _, f := range fs {
						sum += of(f)
					}
					return sum / float64(len(fs))
				}
				useful := func(f figures) float64 { return f.useful }
				fmt.Printf("| %.0f %% | %s | %.0f %% | ×%g to ×%g | %g | %.3f | %.3f | %.3f | %.3f | %.3f | %.1f |\n", 100*load, map[bool]string{false: "no", true: "yes"}[preempt], 100*e.Share, e.Least, e.Most, e.Efficiency,
					over(func(f figures) float64 { return f.avg }), over(func(f figures) float64 { return f.p99 }), over(func(f figures) float64 { return f.makespan }),
					mean(rigid, useful), mean(fs, useful), mean(fs, func(f figures) float64 { return f.resizes }))
			}
		}
	}
	return nil
}

// one plays one workload.
func one(seed uint64, jobs int, load float64, preempt bool, e trace.Elastic) (figures, error) {
	rules := model.DefaultConfig()
	p, err := sim.DrawGPUs(population.Spec{Cluster: "longhorn", Nodes: nodes, GPUsPerNode: nodeGPUs, Outliers: population.Exactly(outliers)}, seed)
	if err != nil {
		return figures{}, err
	}
	ns, err := p.PalNodes(rules.Calibration)
	if err != nil {
		return figures{}, err
	}
	c, err := pal.NewCluster(ns, rules.Locality)
	if err != nil {
		return figures{}, err
	}
	t := trace.HeavyTail(seed, jobs, nodes*nodeGPUs, load)
	if e.GPUs = nodes * nodeGPUs; e.Share > 0 {
		t = t.Elastic(seed, e)
	}
	out, err := sim.Config{Jobs: t.Jobs, Cluster: c, Queue: rules.Queue, RestartS: restartS, Preemptible: preempt, Seed: seed}.Run()
	if err != nil {
		return figures{}, err
	}
	f, gangs := sim.FiguresOf(out.Jobs), 0
	for _, j := range t.Jobs {
		if j.LeastMembers > 0 {
			gangs++
		}
	}
	return figures{f.AvgJCT, f.P99, f.Makespan, out.Useful, float64(out.Resizes) / float64(max(1, gangs))}, nil
}
