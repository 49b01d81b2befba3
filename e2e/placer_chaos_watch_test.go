// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/internal/patience"
)

// repairTime is how long a gang may be incomplete, as docs/operators/nodes-and-failures.md states.
// Nomad notices (two heartbeats, and 20 s if the server is a new leader) and retries if the job
// allows it (1 s and 5 s). Then come the grace period (2 s), the kill (1 s), and a standby that
// takes over from a killed placer (23 s): 61 s, and half as much again for a busy machine.
const repairTime = 90 * time.Second

// observer watches the cluster all the time and checks its invariants.
type observer struct {
	say func(args ...any) // reports each problem when it is found

	mu      sync.Mutex
	problem []string
	members map[string]int // number of members of each watched gang
	partly  map[string]time.Time
	longest time.Duration
	listed  map[string]*api.JobListStub
	allocs  map[string][]*api.AllocationListStub // by job
	lost    map[string]uint64                    // the index at which an allocation was first seen as lost with its node
	over    map[string]bool                      // allocations that were seen as ended
	known   map[string]*api.AllocationListStub   // all allocations ever seen, in their last state
	looked  time.Time                            // time of the last answer from Nomad
}

func newObserver(say func(args ...any)) *observer {
	return &observer{say: say, members: map[string]int{}, partly: map[string]time.Time{}, lost: map[string]uint64{}, over: map[string]bool{}, known: map[string]*api.AllocationListStub{}}
}

func (e *observer) wrong(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.note(format, args...)
}

// note is like wrong, but the caller holds the lock.
func (e *observer) note(format string, args ...any) {
	if len(e.problem) < 40 {
		e.problem = append(e.problem, time.Now().Format("15:04:05 ")+fmt.Sprintf(format, args...))
		e.say("WRONG:", e.problem[len(e.problem)-1])
	}
}

func (e *observer) wrongs() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.problem)
}

// expect starts to watch a gang.
func (e *observer) expect(id string, members int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.members[id] = members
}

func (e *observer) forget(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.members, id)
	delete(e.partly, id)
}

func (e *observer) jobs() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Sorted(maps.Keys(e.listed))
}

// of returns a job, nil if Nomad lists none, and how many of its members have
// completed and how many run.
func (e *observer) of(id string) (job *api.JobListStub, done, live int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	job = e.listed[id]
	if job != nil {
		done, live = standing(job, e.allocs[id])
	}
	return job, done, live
}

// liveSince is the number of running members of this version or a later one.
func (e *observer) liveSince(id string, version uint64) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	for _, a := range e.allocs[id] {
		if a.ClientStatus == "running" && a.DesiredStatus == "run" && a.JobVersion >= version {
			n++
		}
	}
	return n
}

// standing counts the members that have completed since the job was last registered, and those that
// run. A member that was told to stop has completed if it had ended by then, for example because
// its node was drained. If a gang completed just before it was stopped for another gang, its job is
// stopped although its work is done.
func standing(job *api.JobListStub, allocs []*api.AllocationListStub) (done, live int) {
	did, runs := map[string]bool{}, map[string]bool{}
	for _, a := range allocs {
		if (job.Stop || a.DesiredStatus != "run" && a.ModifyIndex > job.JobModifyIndex) && a.ClientStatus == "complete" && !killed(a) {
			did[a.Name] = true
		}
		if a.DesiredStatus != "run" {
			continue
		}
		did[a.Name] = did[a.Name] || a.ClientStatus == "complete" && a.ModifyIndex > job.JobModifyIndex
		runs[a.Name] = runs[a.Name] || a.ClientStatus == "running" && !takenUpAgain(a)
	}
	for name := range did {
		switch {
		case did[name]:
			done++
		case runs[name]:
			live++
		}
	}
	return done, live
}

// killed reports whether a task of the allocation never started, or was killed before it had ended
// by itself. A client that restarts and finds the task ended also logs that it kills it.
func killed(a *api.AllocationListStub) bool {
	for _, s := range a.TaskStates {
		began, ended := false, false
		for _, e := range s.Events {
			switch e.Type {
			case api.TaskStarted, api.TaskTerminated:
				began = true
				ended = e.Type == api.TaskTerminated
			case api.TaskKilling:
				if !ended {
					return true
				}
			}
		}
		if !began {
			return true
		}
	}
	return false
}

// watch looks at the cluster again and again until stopped.
func (c *chaos) watch() (end func()) {
	ctx, cancel := context.WithCancel(c.t.Context())
	var watching sync.WaitGroup
	watching.Go(func() { c.lookOn(ctx) })
	return func() {
		cancel()
		watching.Wait()
	}
}

func (c *chaos) lookOn(ctx context.Context) {
	tick := time.NewTicker(500 * time.Millisecond)
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
		jobs, _, err := c.API().Jobs().List((&api.QueryOptions{}).WithContext(ctx))
		if err != nil {
			continue
		}
		c.observer.look(time.Now(), jobs, allocs)
	}
}

// look checks what Nomad lists at one time.
func (e *observer) look(now time.Time, jobs []*api.JobListStub, allocs []*api.AllocationListStub) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.looked = now
	e.listed, e.allocs = map[string]*api.JobListStub{}, map[string][]*api.AllocationListStub{}
	for _, j := range jobs {
		e.listed[j.ID] = j
	}
	for _, a := range allocs {
		e.allocs[a.JobID] = append(e.allocs[a.JobID], a)
		e.known[a.ID] = a
		if _, known := e.lost[a.ID]; !known && a.DesiredDescription == lostWithNode {
			e.lost[a.ID] = a.ModifyIndex
		}
		e.over[a.ID] = e.over[a.ID] || a.ClientStatus == "complete" || a.ClientStatus == "failed"
	}
	for _, twice := range e.owners(allocs) {
		e.note("%s", twice)
	}
	for id, members := range e.members {
		job := e.listed[id]
		if job == nil || job.Stop {
			delete(e.partly, id)
			continue
		}
		done, live := standing(job, e.allocs[id])
		since, was := e.partly[id]
		switch {
		case live == 0 || done+live >= members:
			delete(e.partly, id)
		case !was:
			e.partly[id] = now
		case now.Sub(since) > repairTime:
			e.note("gang %s: %d of %d members run, %d have finished, for %v", id, live, members, done, now.Sub(since).Round(time.Second))
			e.partly[id] = now
			e.longest = max(e.longest, now.Sub(since))
		default:
			e.longest = max(e.longest, now.Sub(since))
		}
	}
}

// owners returns the GPUs that two allocations have. An allocation has its GPUs until its client
// says that it has ended, or its node is down.
//
// Some cases are Nomad's own doing and do not count. Within one job, an update gives the next
// allocation the GPUs of one that is told to stop, and waits for it. A node may come back that
// still runs lost allocations: see [observer.bypassed]. The client of a purged node may restart
// what it has ended (seen on 1.11.3: complete, then pending again).
func (e *observer) owners(allocs []*api.AllocationListStub) []string {
	var twice []string
	owner := map[string]*api.AllocationListStub{}
	name := func(a *api.AllocationListStub) string {
		return fmt.Sprintf("%s (%s, %s, %s)", a.Name, a.ID[:min(8, len(a.ID))], a.DesiredStatus, a.ClientStatus)
	}
	for _, a := range allocs {
		if a.ClientStatus != "running" && a.ClientStatus != "pending" || e.over[a.ID] || takenUpAgain(a) {
			continue
		}
		for _, id := range cluster.DeviceIDs(a.AllocatedResources) {
			other := owner[id]
			update := other != nil && other.JobID == a.JobID && (a.DesiredStatus != "run" || other.DesiredStatus != "run")
			if other != nil && !update && !e.bypassed(a, other) && !e.bypassed(other, a) {
				twice = append(twice, fmt.Sprintf("GPU %s was given to %s and to %s", id, name(other), name(a)))
			}
			owner[id] = a
		}
	}
	return twice
}

// takenUpAgain reports whether a client received an allocation again after it was told to end it.
// The client may report it as running without running any of its tasks: see [hung].
func takenUpAgain(a *api.AllocationListStub) bool {
	for _, s := range a.TaskStates {
		was := false
		for _, e := range s.Events {
			if was && e.Type == api.TaskReceived {
				return true
			}
			was = was || e.Type == api.TaskKilling
		}
	}
	return false
}

// bypassed reports whether Nomad alone placed a beside an allocation that was lost with its node
// (docs/operators/nodes-and-failures.md): a is of a job without a gate, of a service, or of a job
// whose pins are older than the loss. A lost allocation that is pending never starts: the client of
// a purged node may report even an ended one as pending.
func (e *observer) bypassed(a, lost *api.AllocationListStub) bool {
	if lost.DesiredStatus != "stop" || lost.DesiredDescription != lostWithNode {
		return false
	}
	job := e.listed[a.JobID]
	before := job != nil && job.JobModifyIndex < e.lost[lost.ID]
	return before || lost.ClientStatus == "pending" || strings.HasSuffix(a.JobID, "-native") || strings.HasSuffix(a.JobID, "-service")
}

// lostWithNode is Nomad's description of an allocation whose node went down.
const lostWithNode = "alloc is lost since its node is down"

// leftovers checks at the end that nothing is left except what ran at the
// beginning.
func (c *chaos) leftovers() {
	c.t.Helper()
	c.stop("chaos-dispatch")
	c.stop("chaos-cron")
	for _, s := range c.stories {
		c.stop(s.id)
	}
	c.untilCollected()
	// Nomad sends no event when it collects a job. An agent that is reloaded reads everything again.
	for k, p := range c.placers {
		if err := syscall.Kill(p.placer.PID(), syscall.SIGHUP); err != nil {
			c.t.Errorf("placer %d: %v", k, err)
		}
	}
	var left []string
	_ = patience.Until(c.t.Context(), patience.Long, "nothing is left", func(context.Context) (string, error) {
		left = c.left() // each is reported below
		return strings.Join(left, ", "), nil
	})
	for _, l := range left {
		c.observer.wrong("left over: %s", l)
	}
	for p, when := range c.lost {
		if began(p.pid) == p.began {
			c.exempt++
			c.t.Logf("left over by Nomad: process %d, %s", p.pid, when)
		}
	}
	for k, p := range c.placers {
		if err := p.placer.Stop(); err != nil {
			c.observer.wrong("placer %d: %v", k, err)
		}
	}
	if v, _, err := c.API().Variables().Peek("nomad-pal/lock", nil); err == nil && v != nil && v.Lock != nil && v.Lock.ID != "" {
		c.observer.wrong("left over: the lock is held")
	}
}

// untilCollected waits until Nomad has deleted all jobs.
func (c *chaos) untilCollected() {
	c.t.Helper()
	_ = patience.Until(c.t.Context(), patience.Long, "Nomad has no jobs", func(context.Context) (string, error) {
		if err := c.API().System().GarbageCollect(); err != nil {
			return err.Error(), nil
		}
		jobs, _, err := c.API().Jobs().List(nil)
		if err != nil {
			return err.Error(), nil
		}
		var ids []string
		for _, j := range jobs {
			ids = append(ids, j.ID)
		}
		return strings.Join(ids, ", "), nil
	})
}

// left names what should not be there.
func (c *chaos) left() []string {
	vars, _, err := c.API().Variables().PrefixList("nomad-pal/", nil)
	if err != nil {
		return []string{err.Error()}
	}
	var paths []string
	for _, v := range vars {
		paths = append(paths, v.Path)
	}
	left := append(records(paths), c.held()...)
	left = append(left, strays(c.Dir, c.Env()[0], c.known(), c.lost)...)
	if d := cmp.Diff(c.files, c.pluginFiles()); d != "" {
		left = append(left, "files of the plugins: "+d)
	}
	for _, p := range c.placers {
		if n := openFiles(p.placer.PID()); n > 40 {
			left = append(left, fmt.Sprintf("the placer has %d open files", n))
		}
	}
	return left
}

// records are the variables that should have been deleted with their jobs.
func records(paths []string) []string {
	return slices.DeleteFunc(slices.Clone(paths), func(p string) bool {
		first, _, _ := strings.Cut(strings.TrimPrefix(p, "nomad-pal/"), "/")
		return slices.Contains([]string{"agent", "failures", "quarantine", "profile", "lock", "classes", "history", "usage", "after"}, first)
	})
}

// held are the GPUs that the leading placer still counts as held by jobs, the
// jobs that it still knows, and its goroutines if there are too many.
func (c *chaos) held() []string {
	for _, p := range c.placers {
		var m struct {
			Leader     int
			Jobs       map[string]int
			Goroutines int `json:"go_goroutines"`
		}
		var gpus []struct{ ID, Job string }
		if json.Unmarshal([]byte(p.http("/v1/metrics")), &m) != nil || m.Leader == 0 {
			continue
		}
		if err := json.Unmarshal([]byte(p.http("/v1/gpus")), &gpus); err != nil {
			return []string{err.Error()}
		}
		var out []string
		for _, g := range gpus {
			if g.Job != "" {
				out = append(out, fmt.Sprintf("GPU %s of %s", g.ID, g.Job))
			}
		}
		for phase, n := range m.Jobs {
			if n > 0 {
				out = append(out, fmt.Sprintf("%d jobs %s", n, phase))
			}
		}
		if m.Goroutines > 60 {
			out = append(out, fmt.Sprintf("%d goroutines", m.Goroutines))
		}
		return out
	}
	return []string{"no placer leads"}
}

// known are the processes that run from beginning to end.
func (c *chaos) known() map[int]bool {
	known := map[int]bool{os.Getpid(): true}
	for _, a := range slices.Concat(c.Servers(), c.Clients()) {
		known[a.PID()] = true
		pids, err := a.PluginPIDs("nomad-device-pal")
		if err == nil && len(pids) == 1 {
			known[pids[0]] = true
		}
	}
	for _, p := range c.placers {
		known[p.placer.PID()] = true
	}
	return known
}

// strays are unknown processes that carry the cluster's mark or work in its
// folder, except those that a client forgot when it was killed.
func strays(dir, mark string, known map[int]bool, lost map[process]string) []string {
	var out []string
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range procs {
		pid := pidOf(p)
		env, _ := os.ReadFile(p + "/environ")
		cwd, _ := os.Readlink(p + "/cwd")
		ours := slices.Contains(strings.Split(string(env), "\x00"), mark) || strings.HasPrefix(cwd, dir+"/")
		cmdline, _ := os.ReadFile(p + "/cmdline")
		if ours && !known[pid] && len(cmdline) > 0 && lost[process{pid, began(pid)}] == "" {
			out = append(out, fmt.Sprintf("process %d: %.120s", pid, strings.ReplaceAll(string(cmdline), "\x00", " ")))
		}
	}
	return out
}

func pidOf(proc string) int {
	pid, _ := strconv.Atoi(filepath.Base(proc))
	return pid
}

func openFiles(pid int) int {
	fds, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return len(fds)
}

// pluginFiles are the files in the plugins' state folders.
func (c *chaos) pluginFiles() []string {
	var out []string
	for _, a := range c.Clients() {
		_ = fs.WalkDir(os.DirFS(a.PluginState()), ".", func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				out = append(out, a.Name+": "+path)
			}
			return nil
		})
	}
	return out
}
