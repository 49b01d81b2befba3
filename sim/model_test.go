// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// model is FIFO, SRTF or EASY on n equal GPUs without locality, written independently of the
// queue. It returns when each job starts. It stops no job, and knows run times exactly.
func model(jobs []trace.Job, n int, order string) []float64 {
	start, end := make([]float64, len(jobs)), make([]float64, len(jobs))
	for i := range start {
		start[i] = -1
	}
	for now := jobs[0].SubmitS; !math.IsInf(now, 1); {
		var line []int // waiting jobs, first to last
		free, next := n, math.Inf(1)
		for i, j := range jobs {
			switch {
			case j.SubmitS > now:
				next = min(next, j.SubmitS)
			case start[i] < 0:
				line = append(line, i)
			case end[i] > now:
				free -= j.GPUs
			}
		}
		if order == "srtf" {
			slices.SortStableFunc(line, func(a, b int) int { return int(jobs[a].WorkS() - jobs[b].WorkS()) })
		}
		head, at, left := -1, 0.0, 0 // the first waiting job, when it can start, and the GPUs left at that time
		for _, i := range line {
			j := jobs[i]
			ends := now + j.WorkS()
			switch {
			case j.GPUs <= free && (head < 0 || order == "easy" && (ends <= at || j.GPUs <= left)):
				if head >= 0 && ends > at {
					left -= j.GPUs
				}
				start[i], end[i], free = now, ends, free-j.GPUs
			case head < 0:
				head = i
				at, left = reservation(jobs, start, end, now, n, j.GPUs)
			}
		}
		for i := range jobs {
			if start[i] >= 0 && end[i] > now {
				next = min(next, end[i])
			}
		}
		now = next
	}
	return start
}

// reservation is the time at which this many of the n GPUs are free, and how many more are free
// then.
func reservation(jobs []trace.Job, start, end []float64, now float64, n, gpus int) (at float64, left int) {
	at = math.Inf(1)
	for i := range jobs {
		if start[i] < 0 || end[i] <= now {
			continue
		}
		free := n
		for k, j := range jobs {
			if start[k] >= 0 && end[k] > end[i] {
				free -= j.GPUs
			}
		}
		if free >= gpus && end[i] < at {
			at, left = end[i], free-gpus
		}
	}
	return at, left
}

// workload returns jobs that sometimes overload the GPUs.
func workload(seed uint64, gpus int) []trace.Job {
	r := rand.New(rand.NewPCG(seed, 7))
	var jobs []trace.Job
	for i := range 60 {
		jobs = append(jobs, job(fmt.Sprint(i), "A", 1+r.IntN(gpus), float64(40*i+r.IntN(20)), float64(10+r.IntN(200))))
	}
	return jobs
}

// TestModel: on random workloads the queue starts each gang when the model does.
func TestModel(t *testing.T) {
	const gpus = 8
	for _, order := range []queue.Order{queue.FIFO, queue.SRTF} {
		t.Run(string(order), func(t *testing.T) {
			for seed := range uint64(40) {
				jobs := workload(seed, gpus)
				out, err := Config{Jobs: jobs, Cluster: even(t, 1, gpus, 1), Queue: queue.Options{Order: order, Placement: pal.Policy{Name: pal.Packed}, MaxWait: Unbounded}, Estimate: Exact}.Run()
				if err != nil {
					t.Fatal(err)
				}
				for i, want := range model(jobs, gpus, string(order)) {
					if got := out.Jobs[i].Start; math.Abs(got-want) > 1e-6 {
						t.Fatalf("seed %d: job %d of %d GPUs starts at %v, in the model at %v", seed, i, jobs[i].GPUs, got, want)
					}
				}
			}
		})
	}
}

// TestModelOfEASY: the queue reserves certain GPUs, the model only a number of GPUs. So gangs may
// wait longer in the queue than in the model, but not much longer.
func TestModelOfEASY(t *testing.T) {
	const gpus, most = 8, 1.2
	queued, modelled := 0.0, 0.0
	for seed := range uint64(40) {
		jobs := workload(seed, gpus)
		out, err := Config{Jobs: jobs, Cluster: even(t, 1, gpus, 1), Queue: packed(queue.BackfillReserved), Estimate: Exact}.Run()
		if err != nil {
			t.Fatal(err)
		}
		for i, start := range model(jobs, gpus, "easy") {
			queued, modelled = queued+out.Jobs[i].Start-jobs[i].SubmitS, modelled+start-jobs[i].SubmitS
		}
	}
	if queued > most*modelled {
		t.Errorf("gangs wait %.2f times as long as in the model, want at most %v", queued/modelled, most)
	}
}
