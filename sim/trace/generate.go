// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package trace

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/nomad-pal/nomad-pal/pal"
)

// Shape is the kind of workload to generate.
type Shape struct {
	Jobs    int
	MaxGPUs int // maximum size of a job; 0: 48
}

// ratePerHour is the mean rate of arrivals (Poisson): 160 jobs in 5 hours, as in the Sia-Philly
// workloads.
const ratePerHour = 32.0

// mix is one kind of job that the generator draws: a model, its weight, its sizes and its run
// times. The weights follow the Sia paper (SOSP'23) and the Philly study (ATC'19): most jobs are
// small and short, and the few wide and long jobs use most of the GPU time.
type mix struct {
	model   string
	weight  float64
	sizes   []int
	shortS  [2]float64 // log-uniform
	longS   [2]float64
	longPct float64
}

func mixes() []mix {
	return []mix{
		{"vgg19", 0.42, []int{1}, [2]float64{18, 1000}, [2]float64{18, 1000}, 0},
		{"PointNet", 0.34, []int{6, 6, 8, 8, 12, 12, 16}, [2]float64{17, 850}, [2]float64{17, 850}, 0},
		{"DCGAN", 0.07, []int{6, 8, 12}, [2]float64{120, 1400}, [2]float64{120, 1400}, 0},
		{"BERT", 0.05, []int{6, 8, 12, 16}, [2]float64{140, 3000}, [2]float64{140, 3000}, 0},
		{"GPT2", 0.025, []int{6, 8, 12, 16}, [2]float64{9000, 40000}, [2]float64{40000, 120000}, 0.25},
		{"resnet50", 0.07, []int{4}, [2]float64{1000, 15000}, [2]float64{15000, 35000}, 0.35},
		{"resnet50", 0.025, []int{24, 32, 32, 48}, [2]float64{13000, 60000}, [2]float64{60000, 250000}, 0.4},
	}
}

// SiaPhilly generates a workload like the Sia-Philly workloads: the same sizes (1, 4, 6, 8, 12, 16,
// 24, 32, 48), models and Poisson arrivals. The same seed and shape give the same workload.
func SiaPhilly(seed uint64, s Shape) Trace {
	r := rand.New(rand.NewPCG(seed, 0x5a1a))
	s.MaxGPUs = cmp.Or(s.MaxGPUs, 48)
	t := Trace{Name: fmt.Sprintf("sia-philly seed %d", seed)}
	models, ms := modelsByName(), mixes()
	at := 0.0
	for i := range s.Jobs {
		at += r.ExpFloat64() / ratePerHour * 3600
		m := pick(r, ms)
		work := m.draw(r)
		model := models[m.model]
		t.Jobs = append(t.Jobs, Job{
			ID: fmt.Sprint(i), Name: m.model, Class: model.Class,
			GPUs:    min(m.sizes[r.IntN(len(m.sizes))], s.MaxGPUs),
			SubmitS: math.Floor(at), Iterations: math.Ceil(work / model.IterTimeS), IterTimeS: model.IterTimeS,
		})
	}
	return t
}

func modelsByName() map[string]Model {
	models := map[string]Model{}
	for _, m := range SiaModels() {
		models[m.Name] = m
	}
	return models
}

func pick(r *rand.Rand, ms []mix) mix {
	total := 0.0
	for _, m := range ms {
		total += m.weight
	}
	u := r.Float64() * total
	for _, m := range ms {
		u -= m.weight
		if u < 0 {
			return m
		}
	}
	return ms[len(ms)-1]
}

// draw draws the work in seconds.
func (m mix) draw(r *rand.Rand) float64 {
	span := m.shortS
	if r.Float64() < m.longPct {
		span = m.longS
	}
	return span[0] * math.Pow(span[1]/span[0], r.Float64())
}

// HeavyTail generates jobs like those of a large shared cluster (Philly, Helios). Sizes are powers
// of two, most jobs have one GPU, and work is lognormal with a heavy tail. The load is the work
// divided by the capacity of the cluster's GPUs, and can exceed 1. Jobs belong to tenants, and
// their names recur within a tenant.
func HeavyTail(seed uint64, jobs, clusterGPUs int, load float64) Trace {
	r := rand.New(rand.NewPCG(seed, 0x4ea7))
	t := Trace{Name: fmt.Sprintf("heavy-tail seed %d", seed), Jobs: make([]Job, 0, jobs)}
	classes, work := pal.AppClasses(), 0.0
	for i := range jobs {
		tenant := r.IntN(40)
		name := r.IntN(25)
		// Each name has its own median; the runs of a name vary by a factor of e (one standard
		// deviation).
		median := 300 * math.Exp(1.5*rand.New(rand.NewPCG(uint64(tenant*1000+name), 0x57ab)).NormFloat64())
		j := Job{
			ID: fmt.Sprint(i), Name: fmt.Sprintf("job-%d-%d", tenant, name), Tenant: fmt.Sprintf("team-%d", tenant),
			Class: classes[(tenant+name)%len(classes)], GPUs: min(gangSize(r), clusterGPUs),
			Iterations: math.Ceil(min(maxWorkS, median*math.Exp(r.NormFloat64()))), IterTimeS: 1,
		}
		work += j.WorkS() * float64(j.GPUs)
		t.Jobs = append(t.Jobs, j)
	}
	span := work / (float64(clusterGPUs) * load)
	at := 0.0
	for i := range t.Jobs {
		at += r.ExpFloat64() * span / float64(jobs)
		t.Jobs[i].SubmitS = at
	}
	return t
}

// maxWorkS limits the work of a generated job to 3 days.
const maxWorkS = 3 * 86400

// gangSize draws a power of two as Helios reports: about half of the jobs have one GPU, and few
// have more than 8.
func gangSize(r *rand.Rand) int {
	u := r.Float64()
	for i, p := range []float64{0.55, 0.65, 0.78, 0.94, 0.97, 0.985, 0.995} {
		if u < p {
			return 1 << i
		}
	}
	return 128
}
