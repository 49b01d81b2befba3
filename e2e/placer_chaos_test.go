// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/e2e/cluster/clustertest"
	"github.com/nomad-pal/nomad-pal/internal/patience"
)

// TestPlacerChaos runs jobs of mixed kinds, registered with Nomad or an agent, under
// two placers, one of which leads. At random, placers, plugins, clients and the
// server are killed, nodes hang, go down or are drained, and GPUs become unhealthy.
// Each job must end as its kind does. No GPU may be given twice, and no gang may be
// incomplete for longer than [repairTime]. At the end nothing may be left, except
// what Nomad itself forgets; see [forgotten].
//
// PLACER_CHAOS_JOBS is the number of jobs (25 by default), PLACER_CHAOS_SEED the
// seed, PLACER_CHAOS_MINUTES the time after which no more jobs are submitted,
// PLACER_CHAOS_KEEP a folder for the placers' logs.
func TestPlacerChaos(t *testing.T) {
	t.Parallel()
	jobs, seed := number("PLACER_CHAOS_JOBS", 25), uint64(number("PLACER_CHAOS_SEED", 1))
	t.Logf("%d jobs, seed %d", jobs, seed)
	b := newBed(t, placerScores, cluster.Options{HeartbeatTTL: chaosHeartbeat, ServerHCL: chaosServer})
	b.config = b.nomadBlock() + chaosConfig
	c := chaosOn(b, seed, func(int, *bed) {})
	defer c.watch()()
	c.play(jobs)
	c.leftovers()
	t.Logf("ended: %v; faults: %v; longest time for which a gang was incomplete: %v; of %d processes that killed clients forgot, Nomad left over %d",
		c.ended, c.faults, c.observer.longest.Round(time.Second), len(c.lost), c.exempt)
	for _, w := range c.observer.wrongs() {
		t.Error(w)
	}
}

func number(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

// Limits of a run.
const (
	chaosHeartbeat = 5 * time.Second // a silent node is down after twice this time
	// stalled is how long a run may go on without the end of a job, on an idle machine. After it
	// the run is given up.
	stalled = 4 * time.Minute
	// openJobs is the number of unfinished jobs at a time.
	openJobs = 20
)

// chaosConfig is the placers' configuration: it shortens minutes to seconds.
const chaosConfig = `retries = 1
queue {
  preempt      = true
  migrate      = true
  restart_cost = "1s"
}
high_availability {
  enabled  = true
  lock_ttl = "10s"
}
`

// chaosServer makes Nomad garbage-collect ended objects within minutes, and
// makes a new leader miss heartbeats soon.
const chaosServer = `server {
  failover_heartbeat_ttl  = "20s"
  job_gc_interval         = "30s"
  job_gc_threshold        = "2m"
  eval_gc_threshold       = "2m"
  batch_eval_gc_threshold = "2m"
  deployment_gc_threshold = "2m"
}
`

// chaos is one run. Only the test's goroutine uses it, except for the observer.
type chaos struct {
	*bed
	rng     *rand.Rand // chooses jobs and faults
	way     *rand.Rand // chooses where jobs are registered
	placers [2]*bed    // one cluster, two agents
	stories []*story
	ended   map[string]int // number of jobs by kind and end
	faults  map[string]int
	mend    func() // ends the lasting fault; nil if there is none
	mendAt  time.Time
	files   []string // the plugins' files at the beginning
	claimed map[string]bool
	lost    map[process]string // processes that clients forgot when they were killed, and when
	exempt  int                // how many of these were left over
	// dress changes the jobs of the run before they are submitted; nil changes nothing.
	dress func(job) job

	observer *observer
}

// chaosOn is a run on a cluster; edit changes each placer.
func chaosOn(b *bed, seed uint64, edit func(k int, p *bed)) *chaos {
	c := &chaos{bed: b, rng: rand.New(rand.NewPCG(seed, 0)), way: rand.New(rand.NewPCG(seed, 1)), ended: map[string]int{}, faults: map[string]int{}, claimed: map[string]bool{}, lost: map[process]string{}, observer: newObserver(b.t.Log)}
	for k := range c.placers {
		p := *b
		c.placers[k] = &p
		edit(k, &p)
		p.startAgent("nomad-pal")
	}
	c.files = c.pluginFiles()
	if keep := os.Getenv("PLACER_CHAOS_KEEP"); keep != "" {
		b.t.Cleanup(func() { c.keep(keep) })
	}
	return c
}

// keep copies the placers' logs.
func (c *chaos) keep(dir string) {
	for k, p := range c.Placers() {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("placer-%d.log", k)), []byte(p.Log()), 0o644); err != nil {
			c.t.Log(err)
		}
	}
}

// play submits jobs, a few at a time, causes a fault now and then, and follows
// each job to its end.
func (c *chaos) play(jobs int) {
	c.t.Helper()
	c.parents()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	since, total := patience.Stopwatch(), jobs
	end := time.Now().Add(time.Duration(number("PLACER_CHAOS_MINUTES", 24*60)) * time.Minute)
	for jobs > 0 || len(c.stories) > 0 {
		<-tick.C
		if time.Now().After(c.mendAt) {
			c.endFault()
		}
		if c.follow() > 0 {
			since = patience.Stopwatch()
		}
		if jobs > 0 && time.Now().After(end) {
			c.t.Logf("the time is over: %d jobs are not submitted", jobs)
			jobs = 0
		}
		if jobs > 0 && len(c.stories) < openJobs {
			c.submit(total - jobs)
			if jobs--; jobs%8 == 0 {
				c.fault()
			}
			if jobs%50 == 0 {
				c.t.Logf("%d jobs submitted; ended: %v; faults: %v", total-jobs, c.ended, c.faults)
			}
		}
		if since() > stalled {
			c.giveUp()
			break
		}
	}
	c.endFault()
}

// endFault ends the lasting fault, if there is one.
func (c *chaos) endFault() {
	if c.mend != nil {
		c.mend()
		c.mend = nil
	}
}

// follow moves each job one step forward and returns how many have ended.
func (c *chaos) follow() int {
	n := len(c.stories)
	c.stories = slices.DeleteFunc(c.stories, func(s *story) bool {
		end := s.step()
		if end == "" {
			return false
		}
		c.ended[s.kind+" "+end]++
		if !slices.Contains(s.ends, end) {
			c.observer.wrong("job %s (%s) %s", s.id, s.kind, end)
			c.logAllocs(s.id)
		}
		c.observer.forget(s.id)
		return true
	})
	return n - len(c.stories)
}

// giveUp reports each job that has not ended, with explain's answer.
func (c *chaos) giveUp() {
	c.t.Helper()
	for _, s := range c.stories {
		c.observer.wrong("job %s (%s, step %d) did not end: %+v", s.id, s.kind, s.at, c.explain(s.id))
		c.logAllocs(s.id)
	}
}

// try retries a request to Nomad until it succeeds: the server may be down.
func (c *chaos) try(what string, do func() error) {
	c.t.Helper()
	c.until(what, func() string {
		if err := do(); err != nil {
			return err.Error()
		}
		return ""
	})
}

// register registers a job.
func (c *chaos) register(job *api.Job) {
	c.t.Helper()
	c.try("job "+*job.ID+" is registered", func() error {
		_, _, err := c.API().Jobs().Register(job, nil)
		return err
	})
}

// stop stops a job as its author would.
func (c *chaos) stop(id string) {
	c.t.Helper()
	c.try("job "+id+" is stopped", func() error {
		_, _, err := c.API().Jobs().Deregister(id, false, nil)
		return err
	})
}

// fault causes a random fault. Killed processes are started again at once;
// other faults last for some seconds.
func (c *chaos) fault() {
	c.t.Helper()
	n := c.rng.IntN(len(c.Clients()))
	client := c.Clients()[n]
	f := []string{"placer", "retires", "plugin", "plugin", "client", "client", "server", "down", "hangs", "drain", "unhealthy"}[c.rng.IntN(11)]
	if c.mend != nil && slices.Index([]string{"down", "hangs", "drain", "unhealthy"}, f) >= 0 {
		f = "retires"
	}
	if c.mend != nil && f == "client" {
		f = "plugin" // the client may be down
	}
	c.faults[f]++
	seconds := 2 + c.rng.IntN(20)
	c.t.Logf("fault: %s, node %d, %d s", f, n, seconds)
	switch f {
	case "placer":
		c.killPlacer(c.placers[c.rng.IntN(2)])
	case "retires":
		c.pardon()
	case "plugin":
		c.killPlugin(client)
	case "client":
		c.bounce(client)
	case "server":
		c.bounce(c.Servers()[0])
	default:
		c.mendAt = time.Now().Add(time.Duration(seconds) * time.Second)
		c.mend = map[string]func(int) func(){"down": c.down, "hangs": c.hangs, "drain": c.drain, "unhealthy": c.makeUnhealthy}[f](n)
	}
}

func (c *chaos) killPlacer(p *bed) {
	c.t.Helper()
	p.killAgent()
	p.startAgent("nomad-pal")
}

// pardon acts as an operator: it stops both placers in order, lifts the
// quarantine of all GPUs, and starts both again.
func (c *chaos) pardon() {
	c.t.Helper()
	for _, p := range c.placers {
		p.stopAgent()
	}
	c.lift()
	for _, p := range c.placers {
		p.startAgent("nomad-pal")
	}
}

// lift lifts the quarantine of all GPUs while the placers run. Otherwise wide
// gangs would wait for these GPUs longer than the run lasts.
func (c *chaos) lift() {
	c.t.Helper()
	c.try("the quarantine is lifted", func() error {
		if out, code := c.pal("quarantine", "-lift", "-all"); code != 0 {
			return errors.New(out)
		}
		return nil
	})
}

func (c *chaos) killPlugin(client *cluster.Agent) {
	c.t.Helper()
	pids, err := client.PluginPIDs("nomad-device-pal")
	if err != nil {
		c.t.Fatal(err)
	}
	for _, pid := range pids {
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Kill()
		}
	}
}

func (c *chaos) bounce(a *cluster.Agent) {
	c.t.Helper()
	c.kill(a)
	c.start(a)
}

func (c *chaos) kill(a *cluster.Agent) {
	c.t.Helper()
	if err := a.Kill(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
	if slices.Contains(c.Servers(), a) {
		return
	}
	found, err := forgotten(c.t.Context(), c.Program("nomad"), a)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, p := range found {
		if c.lost[p] == "" {
			kind := "logmon"
			if runs(fmt.Sprintf("/proc/%d", p.pid), "executor") {
				kind = "executor"
			}
			c.lost[p] = fmt.Sprintf("%s, forgotten by %s when it was killed at %s", kind, a.Name, time.Now().Format(time.TimeOnly))
		}
	}
}

func (c *chaos) start(a *cluster.Agent) {
	c.t.Helper()
	ctx, cancel := clustertest.Context(c.t, c.Cluster)
	defer cancel()
	if err := a.Start(ctx); err != nil {
		c.t.Fatal(err)
	}
}

// down takes a node down for some seconds: its client is killed, its tasks keep
// running.
func (c *chaos) down(n int) func() {
	c.t.Helper()
	a := c.Clients()[n]
	c.kill(a)
	return func() { c.start(a) }
}

func (c *chaos) hangs(n int) func() {
	c.t.Helper()
	a := c.Clients()[n]
	if err := a.Pause(); err != nil {
		c.t.Fatal(err)
	}
	return func() {
		if err := a.Resume(); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *chaos) drain(n int) func() {
	c.t.Helper()
	set := func(spec *api.DrainSpec) {
		c.try("a drain", func() error {
			id, err := c.NodeID(c.t.Context(), c.Clients()[n].Name)
			if err == nil {
				_, err = c.API().Nodes().UpdateDrain(id, spec, spec == nil, nil)
			}
			return err
		})
	}
	set(&api.DrainSpec{Deadline: 3 * time.Second})
	return func() { set(nil) }
}

func (c *chaos) makeUnhealthy(n int) func() {
	c.inventory(n, placerScores[n], map[int]bool{c.rng.IntN(4): true})
	return func() {
		c.inventory(n, placerScores[n], nil)
		c.lift()
	}
}
