// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"
)

// point is what was measured at one size. Latencies are from the job's
// registration until all its allocations exist.
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
	server := b.Servers()[0].PID()
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
	placed, err := b.measure(ctx, "placed", true, p.Burst, o.paced, server, pid)
	if err != nil {
		return p, fmt.Errorf("placer: %w", err)
	}
	p.PlainGangsPerS, p.PlainP50, p.PlainP99, p.PlainServerCPU = plain.rate, plain.p50, plain.p99, plain.cpu[0]
	p.GangsPerS, p.P50, p.P99, p.ServerCPU, p.PlacerCPU = placed.rate, placed.p50, placed.p99, placed.cpu[0], placed.cpu[1]
	p.PlacerRSS, p.ServerRSS = rss(pid), rss(server)
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
}

// measure submits gangs one after the other, each when the one before is
// placed, then a burst; it stops all of them at the end.
func (b *bed) measure(ctx context.Context, name string, gated bool, burst, paced int, pids ...int) (f figures, err error) {
	w, err := b.watch(ctx)
	if err != nil {
		return f, err
	}
	defer w.stop()
	var latencies []float64
	for i := range min(paced, burst) {
		id := fmt.Sprintf("%s-paced-%d", name, i)
		began, err := b.submit(ctx, gang(id, gated, 2, 4))
		if err != nil {
			return f, err
		}
		at, err := w.placed(ctx, id, 2)
		if err != nil {
			return f, err
		}
		latencies = append(latencies, at.Sub(began).Seconds()*1000)
		if err := b.stopJob(ctx, id); err != nil {
			return f, err
		}
	}
	f.p50, f.p99 = percentile(latencies, 0.5), percentile(latencies, 0.99)
	for _, pid := range pids {
		f.cpu = append(f.cpu, -cpuSeconds(pid))
	}
	f.rate, err = b.burst(ctx, w, name, gated, burst)
	for i, pid := range pids {
		f.cpu[i] += cpuSeconds(pid)
	}
	if err != nil {
		return f, err
	}
	for i := range burst {
		if err := b.stopJob(ctx, fmt.Sprintf("%s-burst-%d", name, i)); err != nil {
			return f, err
		}
	}
	return f, nil
}

// burst submits from eight sides at once and returns gangs placed per second.
func (b *bed) burst(ctx context.Context, w *watcher, name string, gated bool, n int) (rate float64, err error) {
	began := time.Now()
	if err := b.submitAll(ctx, n, func(i int) *api.Job { return gang(fmt.Sprintf("%s-burst-%d", name, i), gated, 2, 4) }); err != nil {
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

func (b *bed) submitAll(ctx context.Context, n int, job func(int) *api.Job) error {
	const sides = 8
	var wg sync.WaitGroup
	errs := make([]error, sides)
	for s := range sides {
		wg.Go(func() {
			for i := s; i < n && errs[s] == nil; i += sides {
				_, errs[s] = b.submit(ctx, job(i))
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *bed) submit(ctx context.Context, j *api.Job) (time.Time, error) {
	began := time.Now()
	_, _, err := b.API().Jobs().Register(j, (&api.WriteOptions{}).WithContext(ctx))
	if err != nil {
		return began, fmt.Errorf("register %q: %w", *j.ID, err)
	}
	return began, nil
}

func (b *bed) stopJob(ctx context.Context, id string) error {
	if _, _, err := b.API().Jobs().Deregister(id, false, (&api.WriteOptions{}).WithContext(ctx)); err != nil {
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

// watcher follows allocations through the event stream.
type watcher struct {
	cancel context.CancelFunc
	done   chan struct{}
	mu     sync.Mutex
	seen   map[string]map[string]time.Time // job → allocation → when seen
	grew   chan struct{}
	err    error
}

func (b *bed) watch(ctx context.Context) (*watcher, error) {
	ctx, cancel := context.WithCancel(ctx)
	events, err := b.API().EventStream().Stream(ctx, map[api.Topic][]string{api.TopicAllocation: {"*"}}, 0, nil)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("follow allocations: %w", err)
	}
	w := &watcher{cancel: cancel, done: make(chan struct{}), seen: map[string]map[string]time.Time{}, grew: make(chan struct{})}
	go w.follow(events)
	return w, nil
}

func (w *watcher) stop() {
	w.cancel()
	<-w.done
}

func (w *watcher) follow(events <-chan *api.Events) {
	defer close(w.done)
	for es := range events {
		now := time.Now()
		w.mu.Lock()
		if es.Err != nil {
			w.err = es.Err
		}
		for _, e := range es.Events {
			a, err := e.Allocation()
			if err != nil || a == nil {
				continue
			}
			if w.seen[a.JobID] == nil {
				w.seen[a.JobID] = map[string]time.Time{}
			}
			if _, ok := w.seen[a.JobID][a.ID]; !ok {
				w.seen[a.JobID][a.ID] = now
			}
		}
		close(w.grew)
		w.grew = make(chan struct{})
		w.mu.Unlock()
	}
}

// placed waits until the job has n allocations and returns when the last came.
func (w *watcher) placed(ctx context.Context, job string, n int) (time.Time, error) {
	limit := time.NewTimer(5 * time.Minute)
	defer limit.Stop()
	for {
		w.mu.Lock()
		got, grew, err := w.seen[job], w.grew, w.err
		var last time.Time
		for _, at := range got {
			if at.After(last) {
				last = at
			}
		}
		have := len(got)
		w.mu.Unlock()
		switch {
		case err != nil:
			return last, fmt.Errorf("follow allocations: %w", err)
		case have >= n:
			return last, nil
		}
		select {
		case <-grew:
		case <-ctx.Done():
			return last, ctx.Err()
		case <-limit.C:
			return last, fmt.Errorf("job %q has %d of %d allocations after 5 minutes", job, have, n)
		}
	}
}

func percentile(xs []float64, p float64) float64 {
	if len(xs) == 0 {
		return 0
	}
	xs = slices.Sorted(slices.Values(xs))
	return xs[min(len(xs)-1, int(p*float64(len(xs))))]
}

// cpuSeconds is the processor time of a process, from /proc/PID/stat (ticks of
// 10 ms).
func cpuSeconds(pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	user, _ := strconv.ParseFloat(f[11], 64)
	system, _ := strconv.ParseFloat(f[12], 64)
	return (user + system) / 100
}

// rss is the resident memory of a process in MB.
func rss(pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	pages, _ := strconv.ParseFloat(strings.Fields(string(text))[1], 64)
	return pages * float64(os.Getpagesize()) / 1e6
}
