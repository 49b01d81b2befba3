// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package sim

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// even is a cluster of equal GPUs.
func even(t *testing.T, nodes, gpus int, across float64) *pal.Cluster {
	t.Helper()
	p := Population{Nodes: nodes, GPUsPerNode: gpus, Scores: make([][pal.NumClasses]pal.PMScore, nodes*gpus)}
	for i := range p.Scores {
		p.Scores[i] = [pal.NumClasses]pal.PMScore{1, 1, 1, 1}
	}
	c, err := p.Cluster(pal.TwoTier(across))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// spans are the first start and the finish of each job, in seconds.
func spans(o Outcome) []string {
	var s []string
	for _, j := range o.Jobs {
		s = append(s, fmt.Sprintf("%s %g-%g", j.ID, math.Round(j.Start*1e3)/1e3, math.Round(j.Finish*1e3)/1e3))
	}
	return s
}

// inTasks divides jobs into tasks of this many GPUs, and a last task with the rest.
func inTasks(gpus int, jobs ...trace.Job) []trace.Job {
	for i := range jobs {
		jobs[i].MemberGPUs = min(gpus, jobs[i].GPUs)
	}
	return jobs
}

// TestPoliciesByHand: small workloads on small clusters of equal GPUs, with results worked out by
// hand. Stopped gangs lose 10 s.
func TestPoliciesByHand(t *testing.T) {
	exact := func(_ int, j trace.Job) time.Duration { return seconds(j.WorkS()) }
	config := func(o queue.Options, preempt bool, nodes, gpus int, jobs ...trace.Job) func() (Outcome, error) {
		return func() (Outcome, error) {
			if o.Placement.Name == "" {
				o.Placement.Name = pal.Packed
			}
			return Config{Jobs: jobs, Cluster: even(t, nodes, gpus, 2), Queue: o, RestartS: 10, Preemptible: preempt, Estimate: exact}.Run()
		}
	}
	nomad := func(giveUpS float64, nodes, gpus int, jobs ...trace.Job) func() (Outcome, error) {
		return func() (Outcome, error) {
			return Nomad{Jobs: jobs, Cluster: even(t, nodes, gpus, 2), RendezvousS: giveUpS, Seed: 1}.Run()
		}
	}
	// a takes 3 of 4 GPUs, and b needs all 4. c fits beside a until b could start; d does not.
	four := []trace.Job{job("a", "A", 3, 0, 100), job("b", "A", 4, 10, 50), job("c", "A", 1, 20, 80), job("d", "A", 1, 20, 81)}
	// One GPU: a is long; b and c are short and arrive later.
	one := []trace.Job{job("a", "A", 1, 0, 1000), job("b", "A", 1, 100, 50), job("c", "A", 1, 110, 20)}
	threeAndOne := inTasks(3, job("a", "A", 3, 0, 100), job("a2", "A", 3, 0, 100), job("b", "A", 4, 10, 10), job("c", "A", 1, 20, 10), job("d", "A", 1, 21, 5))
	threeAndOne[2].MemberGPUs = 3
	for _, tc := range []struct {
		name string
		run  func() (Outcome, error)
		want []string
	}{
		{"strict FIFO leaves a GPU idle", config(queue.Options{Order: queue.FIFO}, false, 1, 4, four...),
			[]string{"a 0-100", "b 100-150", "c 150-230", "d 150-231"}},
		{"EASY: c ends when b can start, d would be too late", config(queue.Options{Order: queue.FIFO, Backfill: queue.BackfillReserved}, false, 1, 4, four...),
			[]string{"a 0-100", "b 100-150", "c 20-100", "d 150-231"}},
		{"SRTF: nothing is stopped", config(queue.Options{Order: queue.SRTF}, false, 1, 1, one...),
			[]string{"a 0-1000", "b 1020-1070", "c 1000-1020"}},
		{"SRTF preemptive: b stops a, c (less than a power of 4 shorter) waits for b", config(queue.Options{Order: queue.SRTF, Preempt: true, Backfill: queue.BackfillReserved}, true, 1, 1, one...),
			[]string{"a 0-1080", "b 100-150", "c 150-170"}},
		{"across two nodes everything takes twice as long", config(queue.Options{Order: queue.FIFO}, false, 2, 2, job("a", "A", 3, 0, 100), job("b", "A", 2, 10, 100)),
			[]string{"a 0-200", "b 200-300"}},
		{"tasks of 2 GPUs: a task does not fit on one GPU of each of two nodes", config(queue.Options{Order: queue.FIFO}, false, 2, 3,
			inTasks(2, job("a", "A", 4, 0, 100), job("b", "A", 2, 10, 10))...), []string{"a 0-200", "b 200-210"}},
		{"Nomad: tasks of 2 GPUs need two on one node", nomad(0, 2, 3, inTasks(2, job("a", "A", 4, 0, 100), job("b", "A", 2, 10, 10))...),
			[]string{"a 0-200", "b 200-210"}},
		{"Nomad: two of three tasks start, give up, and start when there is room", nomad(30, 2, 4,
			inTasks(3, job("a", "A", 3, 0, 100), job("b", "A", 6, 10, 100))...), []string{"a 0-100", "b 100-300"}},
		{"Nomad: the task group that fits starts, and holds a GPU that d lacks", nomad(0, 2, 4, threeAndOne...),
			[]string{"a 0-100", "a2 0-100", "b 100-120", "c 20-30", "d 30-35"}},
		{"Nomad: a task of 3 and one of 2 are two task groups", nomad(0, 1, 5, inTasks(3, job("a", "A", 5, 0, 100))...), []string{"a 0-100"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, err := tc.run()
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, spans(out)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// TestUseful: in every engine, useful time is the kept work at cost 1. Restarts, work lost since
// checkpoints, starts, distance and half-placed gangs do not count as useful.
func TestUseful(t *testing.T) {
	preempting := queue.Options{Order: queue.SRTF, Preempt: true, Backfill: queue.BackfillReserved, Placement: pal.Policy{Name: pal.Packed}}
	exact := func(_ int, j trace.Job) time.Duration { return seconds(j.WorkS()) }
	two := []trace.Job{job("a", "A", 2, 0, 1000), job("b", "A", 1, 500, 10)}
	for _, tc := range []struct {
		name               string
		run                func() (Outcome, error)
		useful, held, lost float64 // in GPU seconds
		last               float64
	}{
		// a is stopped for b at 540, when its checkpoint of 480 is surely complete. b runs until
		// 550. a loses 60 s for the restart, and 60 s since its checkpoint.
		{"restart and checkpoint", Config{Jobs: two, Cluster: even(t, 1, 2, 2), Queue: preempting, RestartS: 60, CheckpointS: 120, Preemptible: true, Estimate: exact}.Run,
			2010, 2*540 + 10 + 2*(60+520), 2 * (60 + 60), 1130},
		// Across nodes 1,000 s of work take 2,000 s, after a start of 5 s.
		{"distance and start", Config{Jobs: two[:1], Cluster: even(t, 2, 1, 2), Queue: queue.Options{Order: queue.FIFO, Placement: pal.Policy{Name: pal.Packed}}, StartS: func() float64 { return 5 }}.Run,
			2000, 4010, 10, 2005},
		// b's first task holds 3 GPUs from 10 on, gives up at 40 and again at 70; both tasks
		// start at 100. The work of 100 s takes 200 s across nodes.
		{"plain Nomad", Nomad{Jobs: inTasks(3, job("a", "A", 3, 0, 100), job("b", "A", 6, 10, 100)), Cluster: even(t, 2, 4, 2), RendezvousS: 30, Seed: 1}.Run,
			900, 300 + 90*3 + 200*6, 90 * 3, 300},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, err := tc.run()
			if err != nil {
				t.Fatal(err)
			}
			gpus := 2.0
			if tc.name == "plain Nomad" {
				gpus = 8
			}
			got := []float64{out.Useful * gpus * tc.last, out.Utilization * gpus * tc.last, out.LostGPUh * 3600, out.MakespanS}
			for i, want := range []float64{tc.useful, tc.held, tc.lost, tc.last} {
				if math.Abs(got[i]-want) > 1e-3 {
					t.Errorf("useful, held and lost GPU seconds and makespan: got %v, want %v", got, []float64{tc.useful, tc.held, tc.lost, tc.last})
					break
				}
			}
		})
	}
}

// TestUsersEstimates: users' estimates are round numbers, and never too low.
func TestUsersEstimates(t *testing.T) {
	estimate := Users(1)
	for i, work := range []float64{1, 900, 901, 5000, 100_000, 2e6} {
		d := estimate(i, job("j", "A", 1, 0, work)).Seconds()
		if d < work || d > max(900, 5*work*2) || math.Mod(d, 900) != 0 {
			t.Errorf("the estimate of %v s of work is %v s", work, d)
		}
	}
	if j := (trace.Job{Iterations: 10, IterTimeS: 1, EstimateS: 77}); estimate(0, j) != 77*time.Second {
		t.Errorf("the estimate is %v instead of the trace's own", estimate(0, j))
	}
}

// TestStuck: a gang that fits nowhere waits forever, and the figures of the others are the same
// as without it.
func TestStuck(t *testing.T) {
	out, err := Config{Jobs: inTasks(3, job("a", "A", 1, 0, 10), job("b", "A", 3, 0, 10)), Cluster: even(t, 2, 2, 2),
		Queue: queue.Options{Order: queue.FIFO, Placement: pal.Policy{Name: pal.Packed}}}.Run()
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"a 0-10", "b -1--1"}, spans(out)); d != "" || out.Stuck != 1 {
		t.Errorf("%d stuck, (-want +got):\n%s", out.Stuck, d)
	}
}

// TestNomadsGangsHinderEachOther: gangs may block each other without end although they give up.
// The small tasks of others take the GPUs that one frees, and no large task ever fits. The
// simulation ends nevertheless.
func TestNomadsGangsHinderEachOther(t *testing.T) {
	var jobs []trace.Job
	for i := range 500 {
		j := job(fmt.Sprint(i), "A", 1+i%12, float64(400*i), float64(2000*(1+i%7)))
		j.MemberGPUs = min(8, j.GPUs)
		jobs = append(jobs, j)
	}
	out, err := Nomad{Jobs: jobs, Cluster: even(t, 4, 8, 1.7), RendezvousS: 600, Seed: 42}.Run()
	if err != nil {
		t.Fatal(err)
	}
	if out.Stuck == 0 || out.Stuck == len(jobs) {
		t.Errorf("%d of %d jobs are stuck, want some", out.Stuck, len(jobs))
	}
}
