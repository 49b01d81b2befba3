// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/nomad-pal/nomad-pal/bench/paldata"
	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/profile"
	"github.com/nomad-pal/nomad-pal/research/published"
	"github.com/nomad-pal/nomad-pal/sim"
	"github.com/nomad-pal/nomad-pal/sim/population"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// workload is a kind of jobs, and the size of the nodes of its cluster.
type workload struct {
	name     string
	nodeGPUs int
	pairs    int // number of pairs of runs
	// jobs draws jobs, and the number of nodes of their cluster.
	jobs func(seed uint64) ([]trace.Job, int)
}

// cluster32 is the name of the profile of the PAL artifact's physical cluster.
const cluster32 = "cluster32"

// inputs are what cells draw jobs and GPUs from. Without PAL_DATA, tables, measured and philly are
// empty, and the GPUs are drawn from the product's tables.
type inputs struct {
	tables   []population.Table
	measured [][pal.NumClasses]pal.PMScore // of cluster32
	philly   [][]trace.Job                 // by virtual cluster
}

func readInputs(dir string) (*inputs, error) {
	in := &inputs{}
	if dir == "" {
		return in, nil
	}
	var err error
	if in.tables, err = paldata.Tables(dir); err != nil {
		return nil, err
	}
	if in.measured, err = readCluster32(filepath.Join(dir, "cluster32_variability.csv")); err != nil {
		return nil, err
	}
	in.philly, err = readPhilly(filepath.Join(dir, "traces", "philly.csv"))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return in, err
}

// readCluster32 reads the scores of a physical cluster, and divides them by the median GPU's.
func readCluster32(path string) ([][pal.NumClasses]pal.PMScore, error) {
	rows, err := published.Table(path)
	if err != nil {
		return nil, err
	}
	scores := make([][pal.NumClasses]pal.PMScore, len(rows))
	for k, class := range pal.AppClasses() {
		var of []float64
		for i, r := range rows {
			v, err := strconv.ParseFloat(r["PerfVar_class"+string(class)], 64)
			if err != nil {
				return nil, fmt.Errorf("%s, line %d: %w", path, i+2, err)
			}
			of = append(of, v)
		}
		m := profile.Median(of)
		for i := range scores {
			scores[i][k] = pal.PMScore(of[i] / m)
		}
	}
	return scores, nil
}

// readPhilly reads the nine largest virtual clusters of Philly.
func readPhilly(path string) ([][]trace.Job, error) {
	t, err := published.ReadFile(path)
	if err != nil {
		return nil, err
	}
	byVC := map[string][]trace.Job{}
	for _, j := range t.Jobs {
		byVC[j.Tenant] = append(byVC[j.Tenant], j)
	}
	names := published.Tenants(t) // the largest first
	var clusters [][]trace.Job
	for _, name := range names[:min(9, len(names))] {
		clusters = append(clusters, byVC[name])
	}
	return clusters, nil
}

// Sizes of the workloads.
const (
	siaJobs, siaNodes, siaNodeGPUs = 160, 16, 4
	heavyJobs                      = 600
	phillyJobs, phillyNodeGPUs     = 800, 8
	leastNodes                     = 4
	heavyLoad                      = 0.8 // of heavy and Philly at load 1
)

func (in *inputs) cells() (cells []*cell) {
	loads := []workload{
		{"sia", siaNodeGPUs, 100, func(seed uint64) ([]trace.Job, int) {
			return trace.SiaPhilly(seed, trace.Shape{Jobs: siaJobs, MaxGPUs: 48}).Jobs, siaNodes
		}},
		{"heavy", siaNodeGPUs, 30, func(seed uint64) ([]trace.Job, int) {
			return trace.HeavyTail(seed, heavyJobs, siaNodes*siaNodeGPUs, heavyLoad).Jobs, siaNodes
		}},
	}
	if in.philly != nil {
		loads = append(loads, workload{"Philly", phillyNodeGPUs, 27, in.phillyJobs})
	}
	profiles := []string{"longhorn", "frontera"}
	if in.measured != nil {
		profiles = append(profiles, cluster32)
	}
	for _, w := range loads {
		for _, p := range profiles {
			for _, load := range []float64{1, 2} {
				cells = append(cells, &cell{in: in, of: w, profile: p, load: load})
			}
		}
	}
	return cells
}

// phillyJobs takes jobs in a row from one of the virtual clusters, and spreads the classes over
// them. The arrival rate is scaled to the load.
func (in *inputs) phillyJobs(seed uint64) ([]trace.Job, int) {
	r := rand.New(rand.NewPCG(seed, 0x9411))
	of := in.philly[seed%uint64(len(in.philly))]
	from := r.IntN(max(1, len(of)-phillyJobs))
	jobs := slices.Clone(of[from:min(len(of), from+phillyJobs)])
	work, widest := 0.0, 0
	for i := range jobs {
		j := &jobs[i]
		j.Class, j.MemberGPUs = pal.AppClasses()[r.IntN(pal.NumClasses)], 0
		work += j.WorkS() * float64(j.GPUs)
		widest = max(widest, j.GPUs)
	}
	first, last := jobs[0].SubmitS, jobs[len(jobs)-1].SubmitS
	nodes := int(math.Round(work / ((last - first) * heavyLoad * phillyNodeGPUs)))
	nodes = max(nodes, leastNodes, (widest+phillyNodeGPUs-1)/phillyNodeGPUs)
	scale := work / (float64(nodes*phillyNodeGPUs) * heavyLoad) / (last - first)
	for i := range jobs {
		jobs[i].SubmitS = (jobs[i].SubmitS - first) * scale
	}
	return jobs, nodes
}

// draw draws the GPUs of a cluster, with as many outliers as were measured.
func (in *inputs) draw(of string, nodes, perNode int, seed uint64) (sim.Population, error) {
	if of != cluster32 {
		return sim.DrawGPUs(population.Spec{Cluster: of, Nodes: nodes, GPUsPerNode: perNode, Outliers: population.AsMeasured(), Tables: in.tables}, seed)
	}
	p := sim.Population{Nodes: nodes, GPUsPerNode: perNode}
	rng, scores := sim.Stream(seed), slices.Clone(in.measured)
	for i := range nodes * perNode {
		if i%len(scores) == 0 {
			rng.Shuffle(len(scores), func(a, b int) { scores[a], scores[b] = scores[b], scores[a] })
		}
		p.Scores = append(p.Scores, scores[i%len(scores)])
	}
	return p, nil
}
