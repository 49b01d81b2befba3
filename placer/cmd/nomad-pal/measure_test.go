// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/internal/testlog"
	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
)

// measuringPlugins simulate the device plugins of the cluster's nodes.
type measuringPlugins struct {
	c        *testCluster
	accounts []map[string]attr.Account // by node
	times    []map[string]attr.Measurement
	problem  map[string]string // a session's problem, by GPU
	stuck    bool              // the plugins measure nothing
	uncapped bool              // class A stays below the power limit
	most     int               // jobs at the same time
	sessions []string          // in order
}

func (c *testCluster) measuringPlugins() *measuringPlugins {
	p := &measuringPlugins{c: c, problem: map[string]string{}}
	for n := range 2 {
		p.accounts, p.times = append(p.accounts, map[string]attr.Account{}), append(p.times, map[string]attr.Measurement{})
		for k := range 4 {
			p.accounts[n][fmt.Sprintf("GPU-%d-%d", n, k)] = attr.Account{}
		}
		p.publish(n)
	}
	old := measureLook
	measureLook = 5 * time.Millisecond
	c.t.Cleanup(func() { measureLook = old })
	return p
}

func (p *measuringPlugins) publish(n int) {
	node := nomadtest.GPUNode(n, 4)
	var ms []attr.Measurement
	for _, m := range p.times[n] {
		ms = append(ms, m)
	}
	d := node.NodeResources.Devices[0]
	d.Attributes[attr.Measuring] = &api.Attribute{StringVal: new(attr.FormatAccounts(p.accounts[n]))}
	d.Attributes[attr.Raw] = &api.Attribute{StringVal: new(attr.FormatMeasurements(ms))}
	d.Attributes[attr.Reference] = &api.Attribute{StringVal: new(attr.ReferenceNode)}
	p.c.nomad.AddNode(node)
}

// measuringJobs are the measuring jobs in Nomad, with the GPU that each was
// given.
func (p *measuringPlugins) measuringJobs() map[string]string {
	client := p.c.client("").API()
	jobs, _, err := client.Jobs().List(&api.QueryOptions{Prefix: "nomad-pal-measure-"})
	if err != nil {
		p.c.t.Error(err)
	}
	out := map[string]string{}
	for _, j := range jobs {
		out[j.ID] = ""
		allocs, _, err := client.Jobs().Allocations(j.ID, true, nil)
		if err != nil {
			p.c.t.Error(err)
		}
		for _, stub := range allocs {
			a, _, err := client.Allocations().Info(stub.ID, nil)
			if err != nil || stub.ClientStatus != api.AllocClientStatusRunning {
				continue
			}
			if task := a.AllocatedResources.Tasks["measure"]; task != nil { // otherwise it is somebody else's job
				out[j.ID] = task.Devices[0].DeviceIDs[0]
			}
		}
	}
	return out
}

// work measures each GPU whose own job runs, once, until ctx ends.
func (p *measuringPlugins) work(ctx context.Context) (done <-chan struct{}) {
	ended, seen := make(chan struct{}), map[string]bool{}
	go func() {
		defer close(ended)
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			jobs := p.measuringJobs()
			p.most = max(p.most, len(jobs))
			for job, gpu := range jobs {
				if gpu == "" || seen[gpu] || p.stuck {
					continue
				}
				if want := "nomad-pal-measure-" + gpu; job != want {
					p.c.t.Errorf("job %q was given %q", job, gpu)
				}
				seen[gpu] = true
				p.sessions = append(p.sessions, gpu)
				n := int(gpu[4] - '0')
				p.accounts[n][gpu] = attr.Account{Last: fmt.Sprintf("2026-01-02T03:04:%02dZ", len(p.sessions)), Problem: p.problem[gpu], Provisional: true, Uncapped: p.uncapped}
				if p.problem[gpu] == "" {
					p.times[n][gpu] = attr.Measurement{GPU: gpu, Key: "k", Times: map[pal.AppClass]float64{"A": 80, "C": 2.5}}
				}
				p.publish(n)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	}()
	return ended
}

// measure runs the command while the plugins work.
func (p *measuringPlugins) measure(args ...string) (code int, out map[string]measuredGPU, errs string) {
	p.c.t.Helper()
	ctx, stop := context.WithCancel(p.c.t.Context())
	done := p.work(ctx)
	code, text, errs := p.c.does(append([]string{"measure", "-json"}, args...)...)
	stop()
	<-done
	var list []measuredGPU
	if err := json.Unmarshal([]byte(text), &list); err != nil && code != 1 {
		p.c.t.Fatalf("%v\n%s%s", err, text, errs)
	}
	out = map[string]measuredGPU{}
	for _, m := range list {
		out[m.GPU] = m
	}
	if left := p.measuringJobs(); len(left) > 0 {
		p.c.t.Errorf("jobs left behind: %v", left)
	}
	return code, out, errs
}

// train is a job that Nomad itself places on GPUs of node-0.
func (c *testCluster) train(gpus uint64) (stop func()) {
	c.t.Helper()
	task := api.NewTask("t", "raw_exec").SetConfig("command", "sleep")
	task.Resources = &api.Resources{Devices: []*api.RequestedDevice{{Name: "nvidia/gpu", Count: &gpus}}}
	job := api.NewServiceJob("train", "train", "global", 50).AddDatacenter("*").Constrain(api.NewConstraint("${node.unique.name}", "=", "node-0"))
	group := api.NewTaskGroup("g", 1).AddTask(task)
	group.Migrate = &api.MigrateStrategy{MinHealthyTime: new(time.Hour)} // how long a drain of its node lasts
	client := c.client("").API().Jobs()
	if _, _, err := client.Register(job.AddTaskGroup(group), nil); err != nil {
		c.t.Fatal(err)
	}
	c.until("it runs", func() bool {
		allocs, _, err := client.Allocations("train", true, nil)
		return err == nil && len(allocs) == 1 && allocs[0].ClientStatus == api.AllocClientStatusRunning
	})
	return func() {
		if _, _, err := client.Deregister("train", true, nil); err != nil {
			c.t.Error(err)
		}
	}
}

// GPUs are measured a few at a time, each by a job to which Nomad gives exactly this GPU. GPUs that
// a job holds are measured when it ends, and are never given twice.
func TestMeasure(t *testing.T) {
	c := newCluster(t)
	p := c.measuringPlugins()
	stop := c.train(1)

	code, out, errs := p.measure("-dry-run", "node-0")
	held, ready := 0, 0
	for _, m := range out {
		switch {
		case m.Outcome == gpuWaits && m.Reason == "held by default/train":
			held++
		case m.Outcome == gpuReady:
			ready++
		}
	}
	if code != 0 || held != 1 || ready != 3 || len(p.sessions) > 0 {
		t.Errorf("dry run: exit code %d, %d held, %d ready of 1 and 3; measured %v\n%s", code, held, ready, p.sessions, errs)
	}

	code, out, errs = p.measure("-wait=0s", "-at-most=2", "node-0")
	measured := 0
	for gpu, m := range out {
		switch {
		case m.Outcome == gpuSkipped && m.Reason == "held by default/train" && !slices.Contains(p.sessions, gpu):
		case m.Outcome == gpuMeasured && m.Times["A"] == 80 && m.Key == "k" && m.Provisional:
			measured++
		default:
			t.Errorf("%+v", m)
		}
	}
	if code != 2 || measured != 3 || p.most > 2 || p.most < 1 {
		t.Errorf("exit code %d, %d measured of 3, at most %d at once of 2\n%s", code, measured, p.most, errs)
	}

	// Now measure waits for the held GPUs.
	released := make(chan struct{})
	go func() {
		defer close(released)
		c.until("the others measured", func() bool { return len(p.measuringJobs()) > 0 })
		stop()
	}()
	code, out, errs = p.measure("-all")
	<-released
	if code != 0 || len(out) != 8 {
		t.Errorf("exit code %d, %d GPUs\n%s", code, len(out), errs)
	}
	for _, m := range out {
		if m.Outcome != gpuMeasured {
			t.Errorf("%+v", m)
		}
	}
	if !strings.Contains(errs, "waits: held by default/train") {
		t.Errorf("progress:\n%s", errs)
	}
}

// The table says which results are provisional, and which say little about training.
func TestNotesOfMeasuredGPUs(t *testing.T) {
	c := newCluster(t)
	p := c.measuringPlugins()
	p.uncapped = true
	ctx, stop := context.WithCancel(t.Context())
	done := p.work(ctx)
	_, text, errs := c.does("measure", "GPU-0-0")
	stop()
	<-done
	const want = "provisional: not measured with all GPUs of its node; class A stayed below the power limit, so its time says little about training"
	if !strings.Contains(text, want) {
		t.Errorf("want %q\n%s%s", want, text, errs)
	}
}

// The command reports each GPU that cannot be measured, with the reason, and measures the others.
func TestMeasureSaysWhyNot(t *testing.T) {
	c := newCluster(t)
	p := c.measuringPlugins()
	p.accounts[0]["GPU-0-0"] = attr.Account{Unable: "measuring is off"}
	delete(p.accounts[0], "GPU-0-1")
	p.problem["GPU-0-2"] = "CUDA error 999"
	p.publish(0)
	c.nomad.SetEligible(nomadtest.GPUNode(1, 4).ID, false)
	code, out, errs := p.measure("GPU-0-", "GPU-1-3")
	want := map[string]string{"GPU-0-0": "skipped measuring is off", "GPU-0-1": "skipped this GPU cannot be measured", "GPU-0-2": "failed CUDA error 999",
		"GPU-0-3": "measured ", "GPU-1-3": "skipped its node is not eligible"}
	for gpu, text := range want {
		if got := string(out[gpu].Outcome) + " " + out[gpu].Reason; !strings.HasPrefix(got, text) {
			t.Errorf("%s: %q, want %q", gpu, got, text)
		}
	}
	if code != 2 || len(out) != len(want) {
		t.Errorf("exit code %d, %d GPUs\n%s", code, len(out), errs)
	}
	for text, args := range map[string][]string{
		"give nodes or GPUs, or use -all":                      {"measure"},
		`"nope" is neither a node with GPUs nor a GPU`:         {"measure", "nope"},
		"-at-most=0: at least one GPU is needed":               {"measure", "-all", "-at-most=0"},
		`no namespace "teams"`:                                 {"measure", "-namespace=teams", "-all"},
		"none of these drivers is healthy on its node: docker": {"measure", "-driver=docker", "-dry-run", "GPU-0-3"},
	} {
		if _, out, errs := c.does(args...); !strings.Contains(out+errs, text) {
			t.Errorf("%v: want %q\n%s%s", args, text, out, errs)
		}
	}
}

// The command does not wait forever for a measuring job: it reports what happened to the job, and
// measures the other GPUs.
func TestMeasureEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		happens func(c *testCluster, node string) // called when the node's jobs run
		want    string
	}{
		"the node goes down":     {func(c *testCluster, node string) { c.nomad.CrashNode(node) }, "skipped its node is down"},
		"the node is purged":     {func(c *testCluster, node string) { c.nomad.PurgeNode(node) }, "skipped its node no longer lists this GPU"},
		"the node is drained":    {func(c *testCluster, node string) { c.nomad.Drain(node) }, "skipped its node is being drained"},
		"the job is stopped":     {func(c *testCluster, _ string) { c.stopMeasuring(false) }, "skipped somebody stopped the measuring job"},
		"the job is preempted":   {(*testCluster).preempt, "skipped the measuring job was preempted by another job"},
		"the plugin is replaced": {func(c *testCluster, _ string) { c.nomad.AddNode(nomadtest.GPUNode(1, 4)); c.stopMeasuring(false) }, "skipped this GPU cannot be measured"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			p := c.measuringPlugins()
			p.stuck = true
			happened := make(chan struct{})
			go func() {
				defer close(happened)
				c.until("jobs run", func() bool {
					jobs := p.measuringJobs()
					return len(jobs) == 4 && !slices.Contains(slices.Collect(maps.Values(jobs)), "")
				})
				tc.happens(c, nomadtest.GPUNode(1, 4).ID)
			}()
			code, out, errs := p.measure("-wait=0s", "node-1")
			<-happened
			if code != 2 || len(out) != 4 {
				t.Errorf("exit code %d, %d GPUs of 4\n%s", code, len(out), errs)
			}
			for gpu, m := range out {
				if got := string(m.Outcome) + " " + m.Reason; !strings.HasPrefix(got, tc.want) {
					t.Errorf("%s: %q, want %q", gpu, got, tc.want)
				}
			}
		})
	}
}

// preempt runs a job that takes a node's GPUs from jobs of lower priority.
func (c *testCluster) preempt(node string) {
	c.nomad.SetPreemption(true)
	task := api.NewTask("t", "raw_exec").SetConfig("command", "sleep")
	task.Resources = &api.Resources{Devices: []*api.RequestedDevice{{Name: "nvidia/gpu", Count: new(uint64(4))}}}
	job := api.NewServiceJob("urgent", "urgent", "global", 90).AddDatacenter("*").Constrain(api.NewConstraint("${node.unique.id}", "=", node))
	if _, _, err := c.client("").API().Jobs().Register(job.AddTaskGroup(api.NewTaskGroup("g", 1).AddTask(task)), nil); err != nil {
		c.t.Error(err)
	}
}

// stopMeasuring stops the measuring jobs, as a person might.
func (c *testCluster) stopMeasuring(purge bool) {
	jobs := c.client("").API().Jobs()
	list, _, err := jobs.List(&api.QueryOptions{Prefix: "nomad-pal-measure-"})
	if err != nil {
		c.t.Error(err)
	}
	for _, j := range list {
		if _, _, err := jobs.Deregister(j.ID, purge, nil); err != nil {
			c.t.Error(err)
		}
	}
}

// The command ignores a job that only has the name of a measuring job: it neither
// stops it nor waits for it.
func TestMeasureLeavesOtherJobsAlone(t *testing.T) {
	c := newCluster(t)
	p := c.measuringPlugins()
	jobs := c.client("").API().Jobs()
	for _, gpu := range []string{"GPU-1-0", "GPU-1-1"} {
		job := api.NewServiceJob("nomad-pal-measure-"+gpu, "mine", "global", 50).AddDatacenter("*")
		task := api.NewTask("t", "raw_exec").SetConfig("command", "sleep")
		if _, _, err := jobs.Register(job.AddTaskGroup(api.NewTaskGroup("g", 1).AddTask(task)), nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := jobs.Deregister("nomad-pal-measure-GPU-1-1", false, nil); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := p.work(ctx)
	code, text, errs := c.does("measure", "-json", "GPU-1-0", "GPU-1-1", "GPU-1-2")
	stop()
	<-done
	if code != 2 || strings.Count(text, `is reserved for the measuring job; give your job another name`) != 2 || strings.Count(text, `"measured"`) != 1 {
		t.Errorf("exit code %d\n%s%s", code, text, errs)
	}
	if left := p.measuringJobs(); len(left) != 2 {
		t.Errorf("jobs left: %v, want somebody else's two", left)
	}
}

// With -wait=0s, measure does not wait for GPUs that Nomad does not give its jobs, either:
// a job that the token may not see may hold them.
func TestMeasureWaitsNoLonger(t *testing.T) {
	c := newCluster(t)
	c.measuringPlugins()
	var out, errs bytes.Buffer
	b := &base{ctx: t.Context(), io: streams{strings.NewReader(""), &out, &errs, false}, json: true}
	r := &measureRun{b: b, began: time.Now()}
	unplaced := &measureTarget{measuredGPU: measuredGPU{GPU: "GPU-a", Outcome: gpuReady}}
	turn := &measureTarget{measuredGPU: measuredGPU{GPU: "GPU-b", Outcome: gpuReady}}
	r.targets = []*measureTarget{unplaced, turn}
	r.later(unplaced, "Nomad does not place the measuring job")
	r.giveUpWaiting()
	if unplaced.Outcome != gpuSkipped || turn.Outcome != gpuReady {
		t.Errorf("a GPU whose job is not placed: %s; one whose turn comes later: %s", unplaced.Outcome, turn.Outcome)
	}
}

// The command reports at once what the plugin waits for, not after a quarter of an hour.
func TestMeasureTellsWhatThePluginWaitsFor(t *testing.T) {
	c := newCluster(t)
	p := c.measuringPlugins()
	p.stuck = true
	go func() {
		c.until("a job runs", func() bool { return p.measuringJobs()["nomad-pal-measure-GPU-1-0"] != "" })
		p.accounts[1]["GPU-1-0"] = attr.Account{Waits: "in use: process 7, python"}
		p.publish(1)
	}()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var out testlog.Buffer
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(ctx, []string{"measure", "GPU-1-0"}, streams{strings.NewReader(""), &out, &out, false})
	}()
	c.until("the reason is shown", func() bool { return strings.Contains(out.String(), "waits: in use: process 7, python") })
	stop()
	<-done
}

// Ctrl-C removes the jobs.
func TestMeasureInterrupted(t *testing.T) {
	c := newCluster(t)
	p := c.measuringPlugins()
	p.stuck = true
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		defer stop()
		c.until("jobs", func() bool { return len(p.measuringJobs()) == 4 })
	}()
	var out, errs bytes.Buffer
	code := run(ctx, []string{"measure", "node-1"}, streams{strings.NewReader(""), &out, &errs, false})
	if left := p.measuringJobs(); code != 2 || len(left) > 0 || !strings.Contains(errs.String(), "Interrupted") {
		t.Errorf("exit code %d, jobs left %v\n%s%s", code, left, out.String(), errs.String())
	}
}

// The job requests exactly one GPU, in the node's own pool, and preempts nobody.
func TestMeasureJob(t *testing.T) {
	node := &api.Node{ID: "n", Name: "gpu-7", NodePool: "gpu", Drivers: map[string]*api.DriverInfo{
		"raw_exec": {Detected: true}, "docker": {Detected: true, Healthy: true}, "podman": {Detected: true, Healthy: true}}}
	target := &measureTarget{measuredGPU: measuredGPU{GPU: "GPU-a"}, node: node}
	job, err := measureOptions{image: "busybox:1"}.measureJob(measureKey("ml", "GPU-a"), target)
	if err != nil {
		t.Fatal(err)
	}
	task := job.TaskGroups[0].Tasks[0]
	if *job.NodePool != "gpu" || *job.Namespace != "ml" || *job.Priority != 1 || task.Driver != "docker" || task.Config["image"] != "busybox:1" ||
		task.Env[attr.EnvMeasure] == "" || task.Resources.Devices[0].Constraints[0].RTarget != "GPU-a" {
		t.Errorf("%+v, task %+v", job, task)
	}
	if _, err := (measureOptions{driver: "java"}).measureJob(measureKey("ml", "GPU-a"), target); err == nil || !strings.Contains(err.Error(), "is healthy on its node: java;") {
		t.Errorf("a driver that the node lacks: %v", err)
	}
}
