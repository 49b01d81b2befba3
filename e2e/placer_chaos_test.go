// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
)

// TestPlacerChaos runs jobs of mixed sizes and kinds while the placer, plugins,
// clients and the server are killed at random. Every job must finish, or fail
// by its own fault; no GPU may be given twice; no gang may be partly there for
// longer than the repair takes.
//
// PLACER_CHAOS_JOBS is the number of jobs (40 without), PLACER_CHAOS_SEED the
// seed.
func TestPlacerChaos(t *testing.T) {
	jobs, seed := number("PLACER_CHAOS_JOBS", 40), uint64(number("PLACER_CHAOS_SEED", 1))
	t.Logf("%d jobs, seed %d", jobs, seed)
	b := newBed(t, placerScores, cluster.Options{})
	c := &chaos{bed: b, rng: rand.New(rand.NewPCG(seed, 0)), failing: map[string]bool{}, submitted: map[string]int{}}
	b.config = "queue {\n  preempt = true\n  migrate = true\n  restart_cost = \"1s\"\n}\n"
	b.startAgent("nomad-pal")
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() { c.watch(ctx) })
	c.play(jobs)
	c.finish(10 * time.Minute)
	cancel()
	watching.Wait()
	for _, w := range c.wrong {
		t.Error(w)
	}
	t.Logf("faults: %v", c.faults)
}

func number(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

// chaos is one run. rng, failing and submitted belong to the test's goroutine,
// what mu guards to both.
type chaos struct {
	*bed
	rng       *rand.Rand
	failing   map[string]bool // jobs that fail by their own fault
	submitted map[string]int  // members
	faults    map[string]int

	mu    sync.Mutex
	wrong []string
}

func (c *chaos) note(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.wrong) < 20 {
		c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
	}
}

// play submits jobs, a few at a time, with a fault now and then.
func (c *chaos) play(jobs int) {
	c.t.Helper()
	c.faults = map[string]int{}
	for i := range jobs {
		c.submit(i)
		if i%8 == 7 {
			c.fault()
		}
		c.until("room in the queue", func() string {
			if n := c.unfinished(); n > 12 {
				return fmt.Sprintf("%d jobs are unfinished", n)
			}
			return ""
		})
	}
}

func (c *chaos) submit(i int) {
	sizes := [][2]int{{1, 1}, {1, 1}, {2, 1}, {1, 2}, {4, 1}, {2, 2}, {1, 4}, {6, 1}, {3, 4}}
	size := sizes[c.rng.IntN(len(sizes))]
	j := gang(fmt.Sprintf("chaos-%04d", i), size[0], size[1])
	j.meta = fmt.Sprintf("pal_class = %q\n    pal_preempt = \"%v\"\n    pal_migrate = \"%v\"", []string{"A", "B", "C", "D"}[c.rng.IntN(4)], c.rng.IntN(3) == 0, c.rng.IntN(3) == 0)
	j.extra = fmt.Sprintf("priority = %d", 20+c.rng.IntN(60))
	j.groups[0].extra = "restart {\n attempts = 1\n delay = \"1s\"\n interval = \"1h\"\n mode = \"fail\"\n}\nreschedule {\n attempts = 1\n interval = \"1h\"\n delay = \"5s\"\n delay_function = \"constant\"\n unlimited = false\n}\n"
	j.script = fmt.Sprintf("sleep 0.%d", c.rng.IntN(10))
	if c.rng.IntN(20) == 0 {
		j.script = "exit 7"
		c.failing[j.id] = true
	}
	c.submitted[j.id] = size[0]
	job := c.parse(j.hcl())
	if c.rng.IntN(12) > 0 { // the others go past the placer
		job.Constraints = append(job.Constraints, &api.Constraint{LTarget: "${meta.pal_gate}", RTarget: "open", Operand: "="})
	} else {
		job.TaskGroups[0].Count = ptr(1)
		c.submitted[j.id] = 1
	}
	c.until("the job is registered", func() string {
		if _, _, err := c.API().Jobs().Register(job, nil); err != nil {
			return err.Error()
		}
		return ""
	})
}

// fault kills something and brings it back.
func (c *chaos) fault() {
	c.t.Helper()
	switch n := c.rng.IntN(10); {
	case n < 4:
		c.faults["placer"]++
		_ = c.agent.Process.Kill()
		_ = c.agent.Wait()
		c.startAgent("nomad-pal")
	case n < 7:
		c.faults["plugin"]++
		client := c.Clients()[c.rng.IntN(len(c.Clients()))]
		pids, err := client.PluginPIDs("nomad-device-pal")
		if err != nil {
			c.t.Fatal(err)
		}
		for _, pid := range pids {
			if p, err := os.FindProcess(pid); err == nil {
				_ = p.Kill()
			}
		}
	case n < 9:
		c.faults["client"]++
		c.bounce(c.Clients()[c.rng.IntN(len(c.Clients()))])
	default:
		c.faults["server"]++
		c.bounce(c.Servers()[0])
	}
}

func (c *chaos) bounce(a *cluster.Agent) {
	c.t.Helper()
	if err := a.Kill(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
	if err := a.Start(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
}

// outcome of a job: "" while it goes on.
func (c *chaos) outcome(id string) string {
	job, _, err := c.API().Jobs().Info(id, nil)
	if err != nil {
		return ""
	}
	if *job.Status == "dead" {
		allocs, _, err := c.API().Jobs().Allocations(id, false, nil)
		if err != nil {
			return ""
		}
		done := 0
		for _, a := range allocs {
			if a.ClientStatus == "complete" && a.DesiredStatus == "run" {
				done++
			}
		}
		if done >= c.submitted[id] {
			return "finished"
		}
		return "failed"
	}
	if *job.Status == "pending" && len(job.Constraints) > 0 && c.failing[id] {
		if e := c.explain(id); strings.Contains(e.Reason, "given up") {
			return "failed"
		}
	}
	return ""
}

func (c *chaos) unfinished() int {
	jobs, _, err := c.API().Jobs().List(nil)
	if err != nil {
		return 1 << 20
	}
	n := 0
	for _, j := range jobs {
		if j.Status != "dead" && !(c.failing[j.ID] && j.Status == "pending") {
			n++
		}
	}
	return n
}

// finish waits for every job and judges it.
func (c *chaos) finish(limit time.Duration) {
	c.t.Helper()
	end := time.Now().Add(limit)
	for _, id := range slices.Sorted(mapsKeys(c.submitted)) {
		out := c.outcome(id)
		for tick := time.NewTicker(500 * time.Millisecond); out == "" && time.Now().Before(end); out = c.outcome(id) {
			<-tick.C
		}
		switch {
		case out == "":
			c.note("job %s did not end: %+v", id, c.explain(id))
		case out == "failed" && !c.failing[id]:
			c.note("job %s failed, not by its own fault: %s", id, c.explain(id).Reason)
			c.logAllocs(id)
		}
	}
	if agent := c.agent; agent.ProcessState != nil {
		c.note("the placer has ended: %v", agent.ProcessState)
	}
}

func mapsKeys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// watch holds the cluster to the invariants all the time.
func (c *chaos) watch(ctx context.Context) {
	const repairTime = time.Minute
	partly := map[string]time.Time{}
	tick := time.NewTicker(300 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		allocs, _, err := c.API().Allocations().List((&api.QueryOptions{Params: map[string]string{"resources": "true"}}).WithContext(ctx))
		if err != nil {
			continue // the server is down
		}
		c.checkOwners(allocs)
		for job, missing := range missingMembers(allocs) {
			if !missing {
				delete(partly, job)
			} else if since, ok := partly[job]; !ok {
				partly[job] = time.Now()
			} else if time.Since(since) > repairTime {
				c.note("gang %s was partly there for %v", job, time.Since(since).Round(time.Second))
				partly[job] = time.Now()
			}
		}
	}
}

// checkOwners notes GPUs that two running allocations have.
func (c *chaos) checkOwners(allocs []*api.AllocationListStub) {
	owner := map[string]string{}
	for _, a := range allocs {
		if a.ClientStatus != "running" || a.AllocatedResources == nil {
			continue
		}
		for _, t := range a.AllocatedResources.Tasks {
			for _, d := range t.Devices {
				for _, id := range d.DeviceIDs {
					if other, taken := owner[id]; taken {
						c.note("GPU %s was given to %s and to %s", id, other, a.Name)
					}
					owner[id] = a.Name
				}
			}
		}
	}
}

// missingMembers says for each job with running allocations whether others of
// the newest version are neither running nor done. Names tell members apart.
func missingMembers(allocs []*api.AllocationListStub) map[string]bool {
	type member struct{ job, name string }
	live, there := map[string]bool{}, map[member]bool{}
	for _, a := range allocs {
		m := member{a.JobID, a.Name}
		switch a.ClientStatus {
		case "running", "pending":
			if a.DesiredStatus == "run" {
				live[a.JobID], there[m] = true, true
			}
		case "complete":
			there[m] = true
		}
	}
	out := map[string]bool{}
	for _, a := range allocs {
		if live[a.JobID] {
			out[a.JobID] = out[a.JobID] || !there[member{a.JobID, a.Name}]
		}
	}
	return out
}
