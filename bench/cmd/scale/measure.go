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

// point is what was measured at one size. Latencies are from the job's
// registration until all its allocations exist, or run.
type point struct {
	Nodes int `json:"nodes"`
	GPUs  int `json:"gpus"`
	Burst int `json:"burst_gangs"`
	// GangsPerS are placed per second of a burst submitted at once.
	GangsPerS      float64 `json:"gangs_per_s"`
	PlainGangsPerS float64 `json:"plain_gangs_per_s"`
	P50            float64 `json:"place_p50_ms"`
	P99            float64 `json:"place_p99_ms"`
	PlainP50       float64 `json:"plain_p50_ms"`
	PlainP99       float64 `json:"plain_p99_ms"`
	PlacerRSS      float64 `json:"placer_rss_mb"`
	PlacerCPU      float64 `json:"placer_cpu_s"` // over the burst
	PlacerIdle     float64 `json:"placer_idle_cpu_percent"`
	ServerCPU      float64 `json:"server_cpu_s"` // over the placer's burst
	PlainServerCPU float64 `json:"plain_server_cpu_s"`
	ServerRSS      float64 `json:"server_rss_mb"`
	// SimCPU and BenchCPU are what the simulated nodes and this program took of
	// the machine over the placer's burst.
	SimCPU   float64 `json:"simnodes_cpu_s"`
	BenchCPU float64 `json:"bench_cpu_s"`
	Crowds   []crowd `json:"crowds,omitempty"`
}

// crowd is so many jobs of one GPU submitted at once: the median time from the
// registration of one until it runs.
type crowd struct {
	Jobs     int     `json:"jobs"`
	P50      float64 `json:"run_p50_ms"`
	PlainP50 float64 `json:"plain_run_p50_ms"`
	Ratio    float64 `json:"ratio"`
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
	plain, err := b.measure(ctx, "plain", false, p.Burst, o.paced, server)
	if err != nil {
		return p, fmt.Errorf("plain Nomad: %w", err)
	}
	pid, stop, err := b.startPlacer(ctx)
	if err != nil {
		return p, err
	}
	defer stop()
	if _, err := b.measure(ctx, "warm", true, 1, 1, server, pid); err != nil {
		return p, fmt.Errorf("placer: %w", err)
	}
	if p.PlacerIdle, err = idle(ctx, pid); err != nil {
		return p, err
	}
	placed, err := b.measure(ctx, "placed", true, p.Burst, o.paced, server, pid, sim, os.Getpid())
	if err != nil {
		return p, fmt.Errorf("placer: %w", err)
	}
	p.PlainGangsPerS, p.PlainP50, p.PlainP99, p.PlainServerCPU = plain.rate, plain.p50, plain.p99, plain.cpu[0]
	p.GangsPerS, p.P50, p.P99, p.ServerCPU, p.PlacerCPU = placed.rate, placed.p50, placed.p99, placed.cpu[0], placed.cpu[1]
	p.SimCPU, p.BenchCPU = placed.cpu[2], placed.cpu[3]
	p.PlacerRSS, p.ServerRSS = rss(pid), rss(server)
	for i, n := range o.crowds(nodes) {
		p.Crowds = append(p.Crowds, crowd{Jobs: n, P50: placed.crowds[i], PlainP50: plain.crowds[i], Ratio: placed.crowds[i] / plain.crowds[i]})
	}
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

type figures struct {
	rate, p50, p99 float64
	cpu            []float64 // of the processes, over the burst
	crowds         []float64 // median until running, ms
}

// measure submits gangs one after the other, each when the one before is
// placed, then a burst, then crowds; it stops all of them at the end.
func (b *bed) measure(ctx context.Context, name string, gated bool, burst, paced int, pids ...int) (f figures, err error) {
	w, err := b.watch(ctx)
	if err != nil {
		return f, err
	}
	defer w.stop()
	placed, err := b.oneByOne(ctx, w, name, min(paced, burst), func(id string) *api.Job { return gang(id, gated, 2, 4) }, w.placed)
	if err != nil {
		return f, err
	}
	f.p50, f.p99 = percentile(placed, 0.5), percentile(placed, 0.99)
	for _, pid := range pids {
		f.cpu = append(f.cpu, -cpuSeconds(pid))
	}
	stop := b.profile(ctx, name)
	f.rate, err = b.burst(ctx, w, name, gated, burst)
	for i, pid := range pids {
		f.cpu[i] += cpuSeconds(pid)
	}
	if e := stop(); err == nil {
		err = e
	}
	if err != nil {
		return f, err
	}
	if err := b.stopAll(ctx, name+"-burst", burst); err != nil {
		return f, err
	}
	if paced == 1 { // only to warm up
		return f, nil
	}
	for _, n := range b.o.crowds(b.nodes) {
		if err := settle(ctx, pids[0]); err != nil {
			return f, err
		}
		p50, err := b.crowd(ctx, w, name, gated, n)
		if err != nil {
			return f, fmt.Errorf("%d jobs at once: %w", n, err)
		}
		f.crowds = append(f.crowds, p50)
	}
	return f, settle(ctx, pids[0])
}

// oneByOne submits jobs, each when the one before is there, and returns how long
// each took in ms. They are stopped at the end only: a client reports one batch
// of changes after the other, and the end of a job would delay the next one's
// start on the same node.
func (b *bed) oneByOne(ctx context.Context, w *watcher, name string, n int, job func(id string) *api.Job, there func(context.Context, string, int) (time.Time, error)) ([]float64, error) {
	var latencies []float64
	for i := range n {
		j := job(fmt.Sprintf("%s-paced-%d", name, i))
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
	return latencies, b.stopAll(ctx, name+"-paced", n)
}

// crowd submits n jobs of one GPU at once, or 20 one after the other for a crowd
// of one, and returns the median time until one runs, in ms.
func (b *bed) crowd(ctx context.Context, w *watcher, name string, gated bool, n int) (p50 float64, err error) {
	if n == 1 {
		latencies, err := b.oneByOne(ctx, w, name+"-alone", 20, func(id string) *api.Job { return gang(id, gated, 1, 1) }, w.runs)
		return percentile(latencies, 0.5), err
	}
	id := func(i int) string { return fmt.Sprintf("%s-crowd-%d-%d", name, n, i) }
	began, err := b.submitAll(ctx, n, func(i int) *api.Job { return gang(id(i), gated, 1, 1) })
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
	return percentile(latencies, 0.5), b.stopAll(ctx, fmt.Sprintf("%s-crowd-%d", name, n), n)
}

// burst submits from eight sides at once and returns gangs placed per second.
func (b *bed) burst(ctx context.Context, w *watcher, name string, gated bool, n int) (rate float64, err error) {
	began := time.Now()
	if _, err := b.submitAll(ctx, n, func(i int) *api.Job { return gang(fmt.Sprintf("%s-burst-%d", name, i), gated, 2, 4) }); err != nil {
		return 0, err
	}
	last := began
	for i := range n {
		at, err := w.placed(ctx, fmt.Sprintf("%s-burst-%d", name, i), 2)
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
func (b *bed) submitAll(ctx context.Context, n int, job func(int) *api.Job) ([]time.Time, error) {
	began := make([]time.Time, n)
	return began, fromAllSides(n, func(i int) (err error) {
		began[i], err = b.submit(ctx, job(i))
		return err
	})
}

// stopAll stops name-0 … name-(n-1).
func (b *bed) stopAll(ctx context.Context, name string, n int) error {
	return fromAllSides(n, func(i int) error { return b.stopJob(ctx, fmt.Sprintf("%s-%d", name, i)) })
}

func (b *bed) submit(ctx context.Context, j *api.Job) (time.Time, error) {
	began := time.Now()
	_, _, err := b.api.Jobs().Register(j, (&api.WriteOptions{}).WithContext(ctx))
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
func gang(id string, gated bool, members, gpus int) *api.Job {
	j := api.NewBatchJob(id, id, "global", 50)
	j.Datacenters = []string{"*"}
	if gated {
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
