// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package sim

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

func job(id string, class pal.AppClass, gpus int, submitS, workS float64) trace.Job {
	return trace.Job{ID: id, Name: id, Class: class, GPUs: gpus, SubmitS: submitS, Iterations: workS, IterTimeS: 1}
}

// timeline runs a configuration and returns a log of its events.
func timeline(t *testing.T, c Config) []string {
	t.Helper()
	var log []string
	c.Observe = func(now time.Duration, i int, kind string, p pal.Placement) {
		log = append(log, fmt.Sprintf("%.1f %s %s %v", now.Seconds(), c.Jobs[i].ID, kind, p.GPUs()))
	}
	if _, err := c.Run(); err != nil {
		t.Fatal(err)
	}
	return log
}

// TestEngineByHand: times follow from work, score, penalty and restart cost, and were computed by
// hand.
func TestEngineByHand(t *testing.T) {
	// Class D: GPU 0 has score 1. Across nodes, the cost is 1.7 times the slowest score, 1.012.
	got := timeline(t, Config{Cluster: exampleCluster(t, 1.7), Queue: queue.Options{Order: queue.FIFO, Placement: pal.Policy{Name: pal.Packed}},
		Jobs: []trace.Job{job("a", "D", 1, 0, 100), job("b", "D", 8, 10, 100), job("c", "D", 1, 20, 10)}})
	if d := cmp.Diff([]string{
		"0.0 a start [0]", "100.0 a finish [0]",
		"100.0 b start [0 1 2 3 4 5 6 7]", "272.0 b finish [0 1 2 3 4 5 6 7]",
		"272.0 c start [0]", "282.0 c finish [0]"}, got); d != "" {
		t.Errorf("fifo (-want +got):\n%s", d)
	}
	// After an hour on 8 GPUs, a is 3 levels down. It is stopped for b, after 6000/1.7204 s of
	// its work, and loses a minute when it resumes.
	got = timeline(t, Config{Cluster: exampleCluster(t, 1.7), RestartS: 60, Preemptible: true,
		Queue: queue.Options{Order: queue.LAS, Placement: pal.Policy{Name: pal.Packed}, Preempt: true, Backfill: queue.BackfillReserved},
		Jobs:  []trace.Job{job("a", "D", 8, 0, 5000), job("b", "D", 1, 6000, 100)}})
	left := (5000 - 6000/(1.7*1.012)) * 1.7 * 1.012
	if d := cmp.Diff([]string{
		"0.0 a start [0 1 2 3 4 5 6 7]", "6000.0 a preempt [0 1 2 3 4 5 6 7]",
		"6000.0 b start [0]", "6100.0 b finish [0]",
		"6100.0 a resume [0 1 2 3 4 5 6 7]", fmt.Sprintf("%.1f a finish [0 1 2 3 4 5 6 7]", 6160+left)}, got); d != "" {
		t.Errorf("las (-want +got):\n%s", d)
	}
}

// TestCheckpoints: a run has a checkpoint every 70 s. The queue knows it, and stops a for b just
// after a checkpoint: at 340 s, because the restart may have taken 60 s of that. So 280 of 340 s
// are saved.
func TestCheckpoints(t *testing.T) {
	got := timeline(t, Config{Cluster: exampleCluster(t, 1), RestartS: 60, CheckpointS: 70, Preemptible: true,
		Queue:    queue.Options{Order: queue.SRTF, Placement: pal.Policy{Name: pal.Packed}, Preempt: true, Backfill: queue.BackfillReserved},
		Estimate: func(_ int, j trace.Job) time.Duration { return seconds(j.WorkS()) },
		Jobs:     []trace.Job{job("a", "D", 8, 0, 1000), job("b", "D", 1, 300, 2)}})
	if d := cmp.Diff([]string{
		"0.0 a start [0 1 2 3 4 5 6 7]", "340.0 a preempt [0 1 2 3 4 5 6 7]",
		"340.0 b start [0]", "342.0 b finish [0]",
		"342.0 a resume [0 1 2 3 4 5 6 7]", fmt.Sprintf("%.1f a finish [0 1 2 3 4 5 6 7]", 342+60+1012-280.)}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestStopsTakeTime: a gang that is being stopped does no work, and the job that it is stopped
// for starts when the GPUs are free.
func TestStopsTakeTime(t *testing.T) {
	got := timeline(t, Config{Cluster: exampleCluster(t, 1.7), RestartS: 60, StopS: 5, Preemptible: true,
		Queue: queue.Options{Order: queue.LAS, Placement: pal.Policy{Name: pal.Packed}, Preempt: true, Backfill: queue.BackfillReserved},
		Jobs:  []trace.Job{job("a", "D", 8, 0, 5000), job("b", "D", 1, 6000, 100)}})
	left := (5000 - 6000/(1.7*1.012)) * 1.7 * 1.012
	if d := cmp.Diff([]string{
		"0.0 a start [0 1 2 3 4 5 6 7]", "6005.0 a preempt [0 1 2 3 4 5 6 7]",
		"6005.0 b start [0]", "6105.0 b finish [0]",
		"6105.0 a resume [0 1 2 3 4 5 6 7]", fmt.Sprintf("%.1f a finish [0 1 2 3 4 5 6 7]", 6165+left)}, got); d != "" {
		t.Errorf("las (-want +got):\n%s", d)
	}
}

// TestStartsTakeTime: each start holds the GPUs for StartS before the work, whatever the GPUs'
// speed, and in addition to the restart cost.
func TestStartsTakeTime(t *testing.T) {
	start := func() float64 { return 3 }
	got := timeline(t, Config{Cluster: exampleCluster(t, 1.7), StartS: start, Queue: queue.Options{Order: queue.FIFO, Placement: pal.Policy{Name: pal.Packed}},
		Jobs: []trace.Job{job("b", "D", 8, 0, 100), job("c", "D", 1, 20, 10)}})
	if d := cmp.Diff([]string{
		"0.0 b start [0 1 2 3 4 5 6 7]", "175.0 b finish [0 1 2 3 4 5 6 7]", "175.0 c start [0]", "188.0 c finish [0]"}, got); d != "" {
		t.Errorf("fifo (-want +got):\n%s", d)
	}
	got = timeline(t, Config{Cluster: exampleCluster(t, 1), StartS: start, RestartS: 60, Preemptible: true,
		Queue: queue.Options{Order: queue.LAS, Placement: pal.Policy{Name: pal.Packed}, Preempt: true, Backfill: queue.BackfillReserved},
		Jobs:  []trace.Job{job("a", "D", 8, 0, 5000), job("b", "D", 1, 6000, 100)}})
	for _, line := range got {
		if line == "6103.0 b finish [0]" {
			return
		}
	}
	t.Errorf("b does not finish after 103 s: %v", got)
}

// TestEndsTakeTime: a gang finishes when its work is done, but the next one gets its GPUs EndS
// later. A stop in between has no effect.
func TestEndsTakeTime(t *testing.T) {
	c := Config{Cluster: exampleCluster(t, 1), RestartS: 60, EndS: 5, Preemptible: true,
		Queue:    queue.Options{Order: queue.SRTF, Placement: pal.Policy{Name: pal.Packed}, Preempt: true, Backfill: queue.BackfillReserved},
		Estimate: func(_ int, j trace.Job) time.Duration { return seconds(j.WorkS()) },
		Jobs:     []trace.Job{job("a", "D", 8, 0, 1000), job("b", "D", 1, 1013, 2)}}
	got := timeline(t, c)
	if d := cmp.Diff([]string{"0.0 a start [0 1 2 3 4 5 6 7]", "1017.0 a finish [0 1 2 3 4 5 6 7]", "1017.0 b start [0]", "1024.0 b finish [0]"}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	out, err := c.Run()
	if err != nil {
		t.Fatal(err)
	}
	if a, b := out.Jobs[0], out.Jobs[1]; a.Runs != 1 || a.Finish != 1012 || b.Finish != 1019 {
		t.Errorf("a finished at %v after %d runs, b at %v", a.Finish, a.Runs, b.Finish)
	}
}

// TestEngineConserves: whatever the policy, time on GPUs is work times cost plus restarts, and
// its sum agrees with the utilization.
func TestEngineConserves(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		preempt := rapid.Bool().Draw(rt, "preempt")
		o := queue.Default()
		o.Order = rapid.SampledFrom([]queue.Order{queue.FIFO, queue.LAS, queue.SRTF, queue.Adaptive}).Draw(rt, "order")
		var jobs []trace.Job
		for i := range rapid.IntRange(1, 15).Draw(rt, "jobs") {
			jobs = append(jobs, job(fmt.Sprint(i), rapid.SampledFrom(pal.AppClasses()).Draw(rt, "class"), rapid.IntRange(1, 8).Draw(rt, "gpus"),
				float64(i*rapid.IntRange(0, 2000).Draw(rt, "gap")), float64(rapid.IntRange(1, 20_000).Draw(rt, "work"))))
		}
		for i := 1; i < len(jobs); i++ {
			jobs[i].SubmitS = max(jobs[i].SubmitS, jobs[i-1].SubmitS)
		}
		stop := rapid.SampledFrom([]float64{0, 20}).Draw(rt, "stop")
		end := rapid.SampledFrom([]float64{0, 15}).Draw(rt, "end")
		checkpoint := rapid.SampledFrom([]float64{0, 50}).Draw(rt, "checkpoint")
		out, err := Config{Jobs: jobs, Cluster: exampleCluster(t, 1.7), Queue: o, RestartS: 30, CheckpointS: checkpoint, StopS: stop, EndS: end, Preemptible: preempt, Seed: 1}.Run()
		if err != nil {
			rt.Fatal(err)
		}
		held, last := 0.0, 0.0
		for i, j := range out.Jobs {
			most := j.WorkS*1.3*1.7 + (30+stop+checkpoint*1.3*1.7)*float64(j.Runs-1) + end + 1e-3
			if j.HeldS < j.WorkS*0.98-1e-3 || j.HeldS > most {
				rt.Errorf("job %d held its GPUs %v s for %v s of work in %d runs", i, j.HeldS, j.WorkS, j.Runs)
			}
			if gap := j.JCT() + end - j.HeldS - j.Wait; math.Abs(gap) > 1e-3 {
				rt.Errorf("job %d: completion time %v and the end are not wait %v and run %v", i, j.JCT(), j.Wait, j.HeldS)
			}
			held, last = held+j.HeldS*float64(j.GPUs), max(last, j.Finish)
		}
		if got := out.Utilization * 8 * last; math.Abs(got-held) > 1e-6*held+1e-3 {
			rt.Errorf("utilization says %v GPU seconds, the jobs held %v", got, held)
		}
	})
}

// TestRounds: with rounds, all events are at round boundaries, and jobs fed after the trace are
// not counted.
func TestRounds(t *testing.T) {
	n := 0
	c := Config{Cluster: exampleCluster(t, 1.7), RoundS: 360, Queue: queue.Options{Order: queue.FIFO, Placement: pal.Policy{Name: pal.Packed}},
		Jobs: []trace.Job{job("a", "D", 8, 10, 1000)},
		More: func() trace.Job { n++; return job(fmt.Sprint("more", n), "D", 8, float64(100*n), 10) }}
	out, err := c.Run()
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Jobs) != 1 || out.Jobs[0].Start != 360 || out.Jobs[0].Finish != 2160 || n < 2 {
		t.Errorf("%+v, %d fed", out.Jobs, n)
	}
}

// TestNomadDeadlocks: two gangs that each have half of their GPUs deadlock; with a rendezvous
// timeout both finish. The older one needs whole nodes, so single GPUs that come free first go to
// the younger one.
func TestNomadDeadlocks(t *testing.T) {
	whole := func(j trace.Job, gpus int) trace.Job { j.MemberGPUs = gpus; return j }
	for seed := range uint64(20) {
		jobs := []trace.Job{
			whole(job("a node", "D", 4, 0, 100), 4), whole(job("most of a node", "D", 3, 0, 50), 3),
			whole(job("both nodes", "D", 8, 1, 100), 4), job("ranks", "D", 6, 2, 100),
		}
		for rendezvousS, want := range map[float64]int{0: 2, 60: 0} {
			out, err := Nomad{Jobs: jobs, Cluster: exampleCluster(t, 1.7), Seed: seed, RendezvousS: rendezvousS}.Run()
			if err != nil {
				t.Fatal(err)
			}
			if out.Stuck != want {
				t.Errorf("gangs give up after %v s, seed %d: %d jobs never finish, want %d", rendezvousS, seed, out.Stuck, want)
			}
			if restarts := out.Preemptions; restarts > 0 != (rendezvousS > 0) {
				t.Errorf("gangs give up after %v s, seed %d: %d restarts", rendezvousS, seed, restarts)
			}
		}
	}
}

// Cluster is the population's cluster.
func (p Population) Cluster(l pal.Locality) (*pal.Cluster, error) {
	nodes, err := p.PalNodes(twoBins)
	if err != nil {
		return nil, err
	}
	return pal.NewCluster(nodes, l)
}

// twoBins divides the scores in the middle of their range. The value of a bin is its mean, relative to
// the middle of both means.
func twoBins(scores []float64) []float64 {
	middle := (slices.Min(scores) + slices.Max(scores)) / 2
	var sums, counts [2]float64
	bin := make([]int, len(scores))
	for i, s := range scores {
		if s > middle {
			bin[i] = 1
		}
		sums[bin[i]] += s
		counts[bin[i]]++
	}
	low := sums[0] / counts[0]
	high := low
	if counts[1] > 0 {
		high = sums[1] / counts[1]
	}
	values := make([]float64, len(scores))
	for i, b := range bin {
		values[i] = [2]float64{low, high}[b] / ((low + high) / 2)
	}
	return values
}

// exampleCluster is a cluster of 2 nodes × 4 GPUs with one slow GPU per node for class A.
func exampleCluster(t *testing.T, across float64) *pal.Cluster {
	t.Helper()
	p := Population{Nodes: 2, GPUsPerNode: 4, Scores: [][pal.NumClasses]pal.PMScore{
		{1.00, 1.00, 1.00, 1.000}, {1.02, 1.01, 1.00, 1.001}, {1.30, 1.00, 1.05, 1.000}, {0.98, 1.04, 1.00, 1.010},
		{1.01, 1.04, 1.05, 1.000}, {1.28, 1.00, 1.04, 1.000}, {0.99, 1.05, 1.00, 1.012}, {1.03, 1.00, 1.00, 1.000},
	}}
	c, err := p.Cluster(pal.TwoTier(across))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A run that ends after the last time that a Duration holds is refused. Its end would overflow.
func TestRunOfCenturies(t *testing.T) {
	jobs := []trace.Job{job("long", "D", 1, 0, 1e11)}
	for name, p := range map[string]interface{ Run() (Outcome, error) }{
		"queue": Config{Jobs: jobs, Cluster: exampleCluster(t, 1.7), Queue: queue.Default()},
		"nomad": Nomad{Jobs: jobs, Cluster: exampleCluster(t, 1.7)},
	} {
		out, err := p.Run()
		if err == nil || !strings.Contains(err.Error(), `job "long" would run for 31`) {
			t.Errorf("%s: %+v, %v", name, out, err)
		}
	}
}

// Submissions in a trace may be more precise than simulated times. A job that takes no time still
// has no negative completion time, and the mean is a number.
func TestNoTimeAtAll(t *testing.T) {
	jobs := []trace.Job{job("a", "D", 1, 0.12345678912, 0), job("b", "D", 1, 0.5, 10)}
	for name, p := range map[string]interface{ Run() (Outcome, error) }{
		"queue": Config{Jobs: jobs, Cluster: exampleCluster(t, 1.7), Queue: queue.Default()},
		"nomad": Nomad{Jobs: jobs, Cluster: exampleCluster(t, 1.7)},
	} {
		out, err := p.Run()
		if err != nil {
			t.Fatal(err)
		}
		if f, j := FiguresOf(out.Jobs), out.Jobs[0]; !(f.GeoJCT >= 0) || j.JCT() < 0 || j.Wait < 0 || out.LostGPUh < 0 {
			t.Errorf("%s: %+v, %+v, lost %v", name, f, j, out.LostGPUh)
		}
	}
}

// Samples are equally far apart, also after every other one was dropped.
func TestSamplesAreEven(t *testing.T) {
	u := newUsage(1)
	for at := range time.Duration(3 * maxSamples) {
		u.add(at*time.Minute, (at+1)*time.Minute)
	}
	for i, s := range u.samples {
		if want := float64(i) * u.every.Seconds(); s.AtS != want {
			t.Fatalf("sample %d is at %v s, want %v", i, s.AtS, want)
		}
	}
}
