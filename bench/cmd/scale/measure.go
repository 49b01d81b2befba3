// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"
	"golang.org/x/sync/errgroup"

	"github.com/nomad-pal/nomad-pal/bench/process"
	"github.com/nomad-pal/nomad-pal/e2e/cluster"
)

// point has the measurements at one cluster size.
type point struct {
	Nodes int `json:"nodes"`
	GPUs  int `json:"gpus"`
	Burst int `json:"burst_gangs"`
	// A job can be placed in two ways. Gated: the job is registered with the gate, and the placer
	// chooses its GPUs. Plain: plain Nomad places the job, which has no gate.
	Gated way `json:"gated"`
	Plain way `json:"plain"`

	PlacerRSS  float64 `json:"placer_rss_mb"`
	PlacerIdle float64 `json:"placer_idle_cpu_percent"`
	ServerRSS  float64 `json:"server_rss_mb"`
}

// way has the measurements of one way to place jobs, from all rounds.
type way struct {
	// GangsPerS is how many gangs of a burst are placed per second, as the median of the rounds.
	// Low and High are the values of the slowest and the fastest round.
	GangsPerS float64 `json:"gangs_per_s"`
	Low       float64 `json:"gangs_per_s_low"`
	High      float64 `json:"gangs_per_s_high"`
	// P50 and P99 are percentiles of the time from a job's registration until all its allocations
	// exist, over the jobs that are submitted one after the other in all rounds.
	P50 float64 `json:"place_p50_ms"`
	P99 float64 `json:"place_p99_ms"`
	// The processor time of Nomad's server, the placer, the simulated nodes and this program during
	// a burst, as means over the rounds.
	ServerCPU float64 `json:"server_cpu_s"`
	PlacerCPU float64 `json:"placer_cpu_s"`
	SimCPU    float64 `json:"simnodes_cpu_s"`
	BenchCPU  float64 `json:"bench_cpu_s"`
	Crowds    []crowd `json:"crowds,omitempty"`
}

// crowd is the median time until a job runs, for a number of one-GPU jobs that are submitted at
// once. All times count from the submission of the first job, because a client that waits for a
// late answer submits its next job late.
type crowd struct {
	Jobs int     `json:"jobs"`
	P50  float64 `json:"run_p50_ms"`
}

// crowds returns the sizes of the crowds for a cluster. A crowd must leave at least one GPU free.
// On more than 1,000 nodes, only the first size is measured.
func crowds(nodes int) []int {
	switch {
	case nodes < 250:
		return []int{1, 100}
	case nodes <= 1000:
		return []int{1, 100, 1000}
	}
	return []int{1}
}

func (o options) point(ctx context.Context, nodes int) (p point, err error) {
	fmt.Fprintf(os.Stderr, "%d nodes\n", nodes)
	b, err := o.start(ctx, nodes)
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	p = point{Nodes: nodes, GPUs: nodes * 8, Burst: min(o.gangs, nodes/2)}
	all := map[how]*taken{plain: {}, gated: {}}
	for round := range o.rounds {
		if err := b.round(ctx, round, &p, all); err != nil {
			return p, fmt.Errorf("round %d: %w", round, err)
		}
	}
	p.Gated, p.Plain = all[gated].way(), all[plain].way()
	return p, nil
}

// round measures each way once: plain Nomad without a placer, then gated jobs. A machine's speed
// changes from minute to minute, so more rounds give better results than longer bursts.
func (b *bed) round(ctx context.Context, round int, p *point, all map[how]*taken) (err error) {
	server, sim := b.Servers()[0].PID(), b.sim.PID()
	if err := b.measure(ctx, plain, round, p.Burst, b.o.paced, pids{server, 0, sim}, all[plain]); err != nil {
		return fmt.Errorf("plain Nomad: %w", err)
	}
	placer, stop, err := b.startPlacer(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	ps := pids{server, placer, sim}
	if err := b.measure(ctx, warm, round, 1, 1, ps, &taken{}); err != nil {
		return fmt.Errorf("placer: %w", err)
	}
	if round == 0 {
		if p.PlacerIdle, err = idle(ctx, placer); err != nil {
			return err
		}
	}
	if err := b.measure(ctx, gated, round, p.Burst, b.o.paced, ps, all[gated]); err != nil {
		return fmt.Errorf("placer, gated jobs: %w", err)
	}
	p.PlacerRSS, p.ServerRSS = rss(placer), rss(server)
	return nil
}

// idle returns the share of one core that an idle process uses.
func idle(ctx context.Context, pid int) (percent float64, err error) {
	const span = 10 * time.Second
	before := cpuSeconds(pid)
	if err := cluster.Pause(ctx, span); err != nil {
		return 0, err
	}
	return 100 * (cpuSeconds(pid) - before) / span.Seconds(), nil
}

// pids are the ids of the measured processes.
type pids struct{ server, placer, sim int }

// cpu returns the processor time so far, in seconds, of these processes and of this program.
func (p pids) cpu() [4]float64 {
	return [4]float64{cpuSeconds(p.server), cpuSeconds(p.placer), cpuSeconds(p.sim), cpuSeconds(os.Getpid())}
}

// how is a way to submit jobs, and the prefix of the jobs' names.
type how string

// The ways to submit jobs (see [point]). Jobs submitted as warm are not measured.
const (
	plain how = "plain"
	gated how = "gated"
	warm  how = "warm"
)

// taken has the measurements so far of one way to submit jobs.
type taken struct {
	rates  []float64 // gangs/s of the bursts
	placed []float64 // ms, for gangs submitted one after the other
	cpu    [4]float64
	crowds map[int][]float64 // ms, by size
}

func (x *taken) way() way {
	n := float64(len(x.rates))
	w := way{
		GangsPerS: percentile(x.rates, 0.5), Low: slices.Min(x.rates), High: slices.Max(x.rates),
		P50: percentile(x.placed, 0.5), P99: percentile(x.placed, 0.99),
		ServerCPU: x.cpu[0] / n, PlacerCPU: x.cpu[1] / n, SimCPU: x.cpu[2] / n, BenchCPU: x.cpu[3] / n,
	}
	w.Crowds = x.medians()
	return w
}

// medians returns the medians of the crowds, by size.
func (x *taken) medians() (all []crowd) {
	for _, size := range slices.Sorted(maps.Keys(x.crowds)) {
		all = append(all, crowd{Jobs: size, P50: percentile(x.crowds[size], 0.5)})
	}
	return all
}

// measure submits gangs one after the other, each when the previous gang is placed, then a burst,
// then crowds. At the end it stops all jobs.
func (b *bed) measure(ctx context.Context, h how, round, burst, paced int, ps pids, x *taken) error {
	w, err := b.watch(ctx)
	if err != nil {
		return err
	}
	defer w.stop()
	name := fmt.Sprintf("%s-%d", h, round)
	placed, err := b.oneByOne(ctx, name+"-paced", min(paced, burst), func(id string) *api.Job { return b.gang(id, h, 2, 4) }, w.placed)
	if err != nil {
		return err
	}
	x.placed = append(x.placed, placed...)
	before := ps.cpu()
	stop := b.profile(ctx, name)
	rate, err := b.burst(ctx, h, name+"-burst", burst, w.placed)
	for i, after := range ps.cpu() {
		x.cpu[i] += after - before[i]
	}
	if err := errors.Join(err, stop()); err != nil {
		return err
	}
	x.rates = append(x.rates, rate)
	if err := b.stopAll(ctx, name+"-burst", burst); err != nil || h == warm {
		return err
	}
	if err := b.measureCrowds(ctx, w, h, name, crowds(b.nodes), x); err != nil {
		return err
	}
	return b.forget(ctx, name)
}

// measureCrowds submits crowds of the given sizes, one after the other, and stops each crowd when
// all of its jobs run.
func (b *bed) measureCrowds(ctx context.Context, w *watcher, h how, name string, sizes []int, x *taken) error {
	for _, n := range sizes {
		if err := b.settle(ctx); err != nil {
			return err
		}
		crowd := fmt.Sprintf("%s-crowd-%d", name, n)
		stop := b.profile(ctx, crowd)
		p50, err := b.crowd(ctx, w, h, crowd, n)
		if err := errors.Join(err, stop()); err != nil {
			return fmt.Errorf("%d jobs at once: %w", n, err)
		}
		if x.crowds == nil {
			x.crowds = map[int][]float64{}
		}
		x.crowds[n] = append(x.crowds[n], p50)
	}
	return nil
}

// forget waits until Nomad is idle, purges the jobs whose names begin with name, and makes Nomad
// drop their evaluations and allocations. Old jobs, evaluations and allocations would slow down the
// next measurement: the server counts all jobs every second, and its garbage collector examines all
// objects.
func (b *bed) forget(ctx context.Context, name string) error {
	if err := b.settle(ctx); err != nil {
		return err
	}
	jobs, _, err := b.api.Jobs().PrefixList(name + "-")
	if err != nil {
		return fmt.Errorf("listing the jobs %s-*: %w", name, err)
	}
	err = fromAllSides(len(jobs), func(i int) error { return b.Deregister(ctx, jobs[i].ID, true) })
	if err := errors.Join(err, b.settle(ctx)); err != nil {
		return err
	}
	if err := b.api.System().GarbageCollect(); err != nil {
		return fmt.Errorf("collecting garbage after the jobs %s-*: %w", name, err)
	}
	return b.settle(ctx)
}

// oneByOne submits n jobs one after the other and returns how long each took, in ms. The parameter
// there waits until a job is placed or started, and returns the time. The jobs are stopped only at
// the end. A client reports its changes in batches, so the end of a job would delay the start of
// the next job on the same node.
func (b *bed) oneByOne(ctx context.Context, name string, n int, job func(id string) *api.Job, there func(context.Context, string, int) (time.Time, error)) ([]float64, error) {
	var latencies []float64
	for i := range n {
		j := job(fmt.Sprintf("%s-%d", name, i))
		began, err := b.submit(ctx, j)
		if err != nil {
			return nil, err
		}
		at, err := there(ctx, *j.ID, *j.TaskGroups[0].Count)
		if err != nil {
			return nil, err
		}
		latencies = append(latencies, at.Sub(began).Seconds()*1000)
	}
	return latencies, b.stopAll(ctx, name, n)
}

// crowd submits n one-GPU jobs at once and returns the median time until a job runs, in ms. For n =
// 1, crowd submits 20 jobs one after the other.
func (b *bed) crowd(ctx context.Context, w *watcher, h how, name string, n int) (p50 float64, err error) {
	if n == 1 {
		latencies, err := b.oneByOne(ctx, name, 20, func(id string) *api.Job { return b.gang(id, h, 1, 1) }, w.runs)
		return percentile(latencies, 0.5), err
	}
	id := func(i int) string { return fmt.Sprintf("%s-%d", name, i) }
	began := time.Now()
	if err := b.submitAll(ctx, n, func(i int) *api.Job { return b.gang(id(i), h, 1, 1) }); err != nil {
		return 0, err
	}
	var latencies []float64
	for i := range n {
		at, err := w.runs(ctx, id(i), 1)
		if err != nil {
			return 0, err
		}
		latencies = append(latencies, at.Sub(began).Seconds()*1000)
	}
	return percentile(latencies, 0.5), b.stopAll(ctx, name, n)
}

// burst submits n gangs at once, eight requests at a time, and returns how many are placed or
// started per second. The parameter there waits until a gang is placed or started, and returns the
// time.
func (b *bed) burst(ctx context.Context, h how, name string, n int, there func(context.Context, string, int) (time.Time, error)) (rate float64, err error) {
	began := time.Now()
	if err := b.submitAll(ctx, n, func(i int) *api.Job { return b.gang(fmt.Sprintf("%s-%d", name, i), h, 2, 4) }); err != nil {
		return 0, err
	}
	last := began
	for i := range n {
		at, err := there(ctx, fmt.Sprintf("%s-%d", name, i), 2)
		if err != nil {
			return 0, err
		}
		if at.After(last) {
			last = at
		}
	}
	return float64(n) / last.Sub(began).Seconds(), nil
}

// sides is how many requests to submit or stop jobs run in parallel.
const sides = 8

// fromAllSides calls f for 0…n-1, with at most sides calls at once.
func fromAllSides(n int, f func(i int) error) error {
	var g errgroup.Group
	g.SetLimit(sides)
	for i := range n {
		g.Go(func() error { return f(i) })
	}
	return g.Wait()
}

func (b *bed) submitAll(ctx context.Context, n int, job func(int) *api.Job) error {
	return fromAllSides(n, func(i int) error {
		_, err := b.submit(ctx, job(i))
		return err
	})
}

// stopAll stops name-0 … name-(n-1).
func (b *bed) stopAll(ctx context.Context, name string, n int) error {
	return fromAllSides(n, func(i int) error { return b.Deregister(ctx, fmt.Sprintf("%s-%d", name, i), false) })
}

func (b *bed) submit(ctx context.Context, j *api.Job) (time.Time, error) {
	began := time.Now()
	_, _, err := b.api.Jobs().Register(j, (&api.WriteOptions{}).WithContext(ctx))
	if err != nil {
		return began, fmt.Errorf("registering %q: %w", *j.ID, err)
	}
	return began, nil
}

// gang returns a batch job that runs until it is stopped.
func (b *bed) gang(id string, h how, members, gpus int) *api.Job {
	j := api.NewBatchJob(id, id, "global", 50)
	j.Datacenters = []string{"*"}
	if h != plain {
		j.Constrain(api.NewConstraint("${meta.pal_gate}", "=", "open"))
	}
	task := b.program()
	cpu, mem, n := 100, 64, uint64(gpus)
	task.Resources = &api.Resources{CPU: &cpu, MemoryMB: &mem, Devices: []*api.RequestedDevice{{Name: "nvidia/gpu", Count: &n}}}
	g := api.NewTaskGroup("ranks", members).AddTask(task)
	return j.SetMeta("pal_class", "A").AddTaskGroup(g)
}

func percentile(xs []float64, p float64) float64 {
	if len(xs) == 0 {
		return 0
	}
	xs = slices.Sorted(slices.Values(xs))
	return xs[min(len(xs)-1, int(p*float64(len(xs))))]
}

// cpuSeconds returns the processor time of a process; 0 if the process has ended.
func cpuSeconds(pid int) float64 {
	u, _ := process.Of(pid)
	return u.CPU.Seconds()
}

// rss returns the resident memory of a process in MB; 0 if the process has ended.
func rss(pid int) float64 {
	u, _ := process.Of(pid)
	return u.RSSMB
}
