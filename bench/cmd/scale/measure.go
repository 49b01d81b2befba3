// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/bench/process"
)

// point is what was measured at one size.
type point struct {
	Nodes int `json:"nodes"`
	GPUs  int `json:"gpus"`
	Burst int `json:"burst_gangs"`
	// The placer's way: jobs are registered at its agent, as nomad-pal run does
	// where it knows one. Gated jobs are registered at Nomad with the gate, for
	// the placer to find; plain Nomad places the jobs without gate or gang.
	way
	Gated    way     `json:"gated"`
	Plain    way     `json:"plain"`
	PlainP50 float64 `json:"plain_p50_ms"` // again, beside the placer's

	PlacerRSS  float64 `json:"placer_rss_mb"`
	PlacerIdle float64 `json:"placer_idle_cpu_percent"`
	ServerRSS  float64 `json:"server_rss_mb"`
}

// way is what was measured of one way to place jobs.
type way struct {
	// GangsPerS are placed per second of a burst submitted at once.
	GangsPerS float64 `json:"gangs_per_s"`
	// P50 and P99 are from a job's registration until all its allocations exist,
	// jobs one after the other.
	P50 float64 `json:"place_p50_ms"`
	P99 float64 `json:"place_p99_ms"`
	// Processor time over the burst: of Nomad's server, of the placer, of the
	// simulated nodes and of this program.
	ServerCPU float64 `json:"server_cpu_s"`
	PlacerCPU float64 `json:"placer_cpu_s"`
	SimCPU    float64 `json:"simnodes_cpu_s"`
	BenchCPU  float64 `json:"bench_cpu_s"`
	Crowds    []crowd `json:"crowds,omitempty"`
}

// crowd is so many jobs of one GPU submitted at once: the median time from the
// registration of one until it runs.
type crowd struct {
	Jobs int     `json:"jobs"`
	P50  float64 `json:"run_p50_ms"`
}

// crowds are the sizes of crowds; those that leave no GPU free are left out, and
// larger clusters see the first only.
func (o options) crowds(nodes int) []int {
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
	defer func() {
		if e := b.close(); err == nil {
			err = e
		}
	}()
	p = point{Nodes: nodes, GPUs: nodes * 8, Burst: min(o.gangs, nodes/2)}
	server, sim := b.Servers()[0].PID(), b.sim.Process.Pid
	if p.Plain, err = b.measure(ctx, plain, p.Burst, o.paced, pids{server, 0, sim}); err != nil {
		return p, fmt.Errorf("plain Nomad: %w", err)
	}
	placer, stop, err := b.startPlacer(ctx)
	if err != nil {
		return p, err
	}
	defer stop()
	if _, err := b.measure(ctx, warm, 1, 1, pids{server, placer, sim}); err != nil {
		return p, fmt.Errorf("placer: %w", err)
	}
	if p.PlacerIdle, err = idle(ctx, placer); err != nil {
		return p, err
	}
	if p.Gated, err = b.measure(ctx, gated, p.Burst, o.paced, pids{server, placer, sim}); err != nil {
		return p, fmt.Errorf("placer, jobs with a gate: %w", err)
	}
	if p.way, err = b.measure(ctx, agent, p.Burst, o.paced, pids{server, placer, sim}); err != nil {
		return p, fmt.Errorf("placer, jobs registered at the agent: %w", err)
	}
	p.PlainP50 = p.Plain.P50
	p.PlacerRSS, p.ServerRSS = rss(placer), rss(server)
	return p, nil
}

// idle is the share of one core that a process uses while nothing happens.
func idle(ctx context.Context, pid int) (percent float64, err error) {
	const span = 10 * time.Second
	before := cpuSeconds(pid)
	select {
	case <-time.After(span):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	return 100 * (cpuSeconds(pid) - before) / span.Seconds(), nil
}

// pids are the processes that are measured.
type pids struct{ server, placer, sim int }

// cpu are their seconds of processor time so far, and this program's.
func (p pids) cpu() [4]float64 {
	return [4]float64{cpuSeconds(p.server), cpuSeconds(p.placer), cpuSeconds(p.sim), cpuSeconds(os.Getpid())}
}

// how jobs are submitted; it begins the names of its jobs.
type how string

// The ways of [point], and one that is not measured.
const (
	plain how = "plain"
	gated how = "gated"
	agent how = "agent"
	warm  how = "warm"
)

// measure submits gangs one after the other, each when the one before is
// placed, then a burst, then crowds; it stops all of them at the end.
func (b *bed) measure(ctx context.Context, h how, burst, paced int, ps pids) (f way, err error) {
	w, err := b.watch(ctx)
	if err != nil {
		return f, err
	}
	defer w.stop()
	placed, err := b.oneByOne(ctx, w, h, "paced", min(paced, burst), func(id string) *api.Job { return gang(id, h, 2, 4) }, w.placed)
	if err != nil {
		return f, err
	}
	f.P50, f.P99 = percentile(placed, 0.5), percentile(placed, 0.99)
	before := ps.cpu()
	stop := b.profile(ctx, string(h))
	f.GangsPerS, err = b.burst(ctx, w, h, burst)
	after := ps.cpu()
	f.ServerCPU, f.PlacerCPU, f.SimCPU, f.BenchCPU = after[0]-before[0], after[1]-before[1], after[2]-before[2], after[3]-before[3]
	if e := stop(); err == nil {
		err = e
	}
	if err != nil {
		return f, err
	}
	if err := b.stopAll(ctx, string(h)+"-burst", burst); err != nil {
		return f, err
	}
	if h == warm {
		return f, nil
	}
	for _, n := range b.o.crowds(b.nodes) {
		if err := settle(ctx, ps.server); err != nil {
			return f, err
		}
		p50, err := b.crowd(ctx, w, h, n)
		if err != nil {
			return f, fmt.Errorf("%d jobs at once: %w", n, err)
		}
		f.Crowds = append(f.Crowds, crowd{Jobs: n, P50: p50})
	}
	return f, settle(ctx, ps.server)
}

// oneByOne submits jobs, each when the one before is there, and returns how long
// each took in ms. They are stopped at the end only: a client reports one batch
// of changes after the other, and the end of a job would delay the next one's
// start on the same node.
func (b *bed) oneByOne(ctx context.Context, w *watcher, h how, what string, n int, job func(id string) *api.Job, there func(context.Context, string, int) (time.Time, error)) ([]float64, error) {
	var latencies []float64
	for i := range n {
		j := job(fmt.Sprintf("%s-%s-%d", h, what, i))
		began, err := b.submit(ctx, h, j)
		if err != nil {
			return nil, err
		}
		at, err := there(ctx, *j.ID, *j.TaskGroups[0].Count)
		if err != nil {
			return nil, err
		}
		latencies = append(latencies, at.Sub(began).Seconds()*1000)
	}
	return latencies, b.stopAll(ctx, fmt.Sprintf("%s-%s", h, what), n)
}

// crowd submits n jobs of one GPU at once, or 20 one after the other for a crowd
// of one, and returns the median time until one runs, in ms.
func (b *bed) crowd(ctx context.Context, w *watcher, h how, n int) (p50 float64, err error) {
	if n == 1 {
		latencies, err := b.oneByOne(ctx, w, h, "alone", 20, func(id string) *api.Job { return gang(id, h, 1, 1) }, w.runs)
		return percentile(latencies, 0.5), err
	}
	id := func(i int) string { return fmt.Sprintf("%s-crowd-%d-%d", h, n, i) }
	began, err := b.submitAll(ctx, h, n, func(i int) *api.Job { return gang(id(i), h, 1, 1) })
	if err != nil {
		return 0, err
	}
	var latencies []float64
	for i := range n {
		at, err := w.runs(ctx, id(i), 1)
		if err != nil {
			return 0, err
		}
		latencies = append(latencies, at.Sub(began[i]).Seconds()*1000)
	}
	return percentile(latencies, 0.5), b.stopAll(ctx, fmt.Sprintf("%s-crowd-%d", h, n), n)
}

// burst submits from eight sides at once and returns gangs placed per second.
func (b *bed) burst(ctx context.Context, w *watcher, h how, n int) (rate float64, err error) {
	began := time.Now()
	if _, err := b.submitAll(ctx, h, n, func(i int) *api.Job { return gang(fmt.Sprintf("%s-burst-%d", h, i), h, 2, 4) }); err != nil {
		return 0, err
	}
	last := began
	for i := range n {
		at, err := w.placed(ctx, fmt.Sprintf("%s-burst-%d", h, i), 2)
		if err != nil {
			return 0, err
		}
		if at.After(last) {
			last = at
		}
	}
	return float64(n) / last.Sub(began).Seconds(), nil
}

// sides is how many submit or stop jobs at the same time.
const sides = 8

// fromAllSides calls f for 0…n-1.
func fromAllSides(n int, f func(i int) error) error {
	var wg sync.WaitGroup
	errs := make([]error, sides)
	for s := range sides {
		wg.Go(func() {
			for i := s; i < n && errs[s] == nil; i += sides {
				errs[s] = f(i)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// submitAll returns when each was submitted.
func (b *bed) submitAll(ctx context.Context, h how, n int, job func(int) *api.Job) ([]time.Time, error) {
	began := make([]time.Time, n)
	return began, fromAllSides(n, func(i int) (err error) {
		began[i], err = b.submit(ctx, h, job(i))
		return err
	})
}

// stopAll stops name-0 … name-(n-1).
func (b *bed) stopAll(ctx context.Context, name string, n int) error {
	return fromAllSides(n, func(i int) error { return b.stopJob(ctx, fmt.Sprintf("%s-%d", name, i)) })
}

func (b *bed) submit(ctx context.Context, h how, j *api.Job) (time.Time, error) {
	at := b.api
	if h == agent {
		at = b.agent
	}
	began := time.Now()
	_, _, err := at.Jobs().Register(j, (&api.WriteOptions{}).WithContext(ctx))
	if err != nil {
		return began, fmt.Errorf("register %q: %w", *j.ID, err)
	}
	return began, nil
}

func (b *bed) stopJob(ctx context.Context, id string) error {
	if _, _, err := b.api.Jobs().Deregister(id, false, (&api.WriteOptions{}).WithContext(ctx)); err != nil {
		return fmt.Errorf("stop %q: %w", id, err)
	}
	return nil
}

// gang is a batch job of members × GPUs that runs until it is stopped.
func gang(id string, h how, members, gpus int) *api.Job {
	j := api.NewBatchJob(id, id, "global", 50)
	j.Datacenters = []string{"*"}
	if h != plain {
		j.Constrain(api.NewConstraint("${meta.pal_gate}", "=", "open"))
	}
	task := api.NewTask("rank", "raw_exec").SetConfig("command", "/bin/true")
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

// cpuSeconds is the processor time of a process; 0 where it is gone.
func cpuSeconds(pid int) float64 {
	d, _ := process.CPU(pid)
	return d.Seconds()
}

// rss is the resident memory of a process in MB; 0 where it is gone.
func rss(pid int) float64 {
	u, _ := process.Of(pid)
	return u.RSSMB
}
