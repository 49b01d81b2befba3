// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
)

// TestPlacerAuthors: four authors edit forty jobs at random, several times a second. Two placers
// place, preempt, move and resize them, under the faults of [TestPlacerChaos] and some that an
// operator causes. All the time, the invariants of that test hold. In the end, each job is as its
// author wrote it last, and has completed, or says why it cannot, or is purged.
//
// PLACER_AUTHORS_SECONDS is the duration (10 by default), PLACER_AUTHORS_SEED the seed,
// PLACER_AUTHORS_FAULTS the seconds between faults (3 by default; 0: none).
func TestPlacerAuthors(t *testing.T) {
	onlyLong(t)
	t.Parallel()
	seed, seconds, pause := uint64(number("PLACER_AUTHORS_SEED", 1)), number("PLACER_AUTHORS_SECONDS", 10), number("PLACER_AUTHORS_FAULTS", 3)
	t.Logf("seed %d", seed)
	const server = "server {\n  failover_heartbeat_ttl = \"20s\"\n}\n" // the test must see which jobs have ended
	c := newChaos(t, seed, server, strings.Replace(chaosConfig, "queue {", "queue {\n  order = \"fifo\"\n  quantum = \"1s\"", 1))
	defer c.watch()()
	defer c.revive()()
	authors := make([]*chaosAuthor, 4)
	var writing sync.WaitGroup
	end := time.Now().Add(time.Duration(seconds) * time.Second)
	for i := range authors {
		authors[i] = &chaosAuthor{chaos: c, name: fmt.Sprintf("a%d", i), rng: rand.New(rand.NewPCG(seed, uint64(100+i))), did: map[string]int{}}
		writing.Go(func() { authors[i].write(end) })
	}
	c.disturb(end, time.Duration(pause)*time.Second)
	writing.Wait()
	c.calm()
	settle(c, authors, (*chaosAuthor).lacksService)
	settle(c, authors, (*chaosAuthor).lacks)
	did := map[string]int{}
	for _, a := range authors {
		for what, n := range a.did {
			did[what] += n
		}
		for _, w := range a.jobs {
			a.deregister(w, false)
		}
	}
	c.leftovers()
	t.Logf("authors did: %v; faults: %v; longest time for which a gang was incomplete: %v", did, c.faults, c.observer.longest.Round(time.Second))
	for _, w := range c.observer.wrongs() {
		t.Error(w)
	}
}

// disturb causes faults until end.
func (c *chaos) disturb(end time.Time, pause time.Duration) {
	c.t.Helper()
	next := time.Now().Add(pause)
	for tick := time.NewTicker(200 * time.Millisecond); time.Now().Before(end); <-tick.C {
		if time.Now().After(c.mendAt) {
			c.endFault()
		}
		if pause > 0 && time.Now().After(next) {
			if c.rng.IntN(4) == 0 {
				c.tamper()
			} else {
				c.fault()
			}
			next = time.Now().Add(pause)
		}
	}
}

// revive restarts the server if it ends by itself, as its systemd unit does: Nomad 1.11.3 can
// panic when it applies a plan of a job that has been purged meanwhile.
func (c *chaos) revive() (end func()) {
	ctx, cancel := context.WithCancel(c.t.Context())
	var reviving sync.WaitGroup
	reviving.Go(func() {
		for s := c.Servers()[0]; ctx.Err() == nil; _ = cluster.Pause(ctx, time.Second) {
			c.bouncing.Lock()
			if s.PID() == 0 {
				c.t.Logf("Nomad's server ended by itself; restart: %v", s.Start(ctx))
			}
			c.bouncing.Unlock()
		}
	})
	return func() {
		cancel()
		reviving.Wait()
	}
}

// tamper does what a tired operator might do: purge a live node, which comes back with the same id,
// delete one of the placer's variables, or write garbage into it.
func (c *chaos) tamper() {
	c.t.Helper()
	what := []string{"purge a node", "delete a variable", "junk"}[c.rng.IntN(3)]
	c.faults[what]++
	if what == "purge a node" {
		id, err := c.NodeID(c.t.Context(), c.Clients()[c.rng.IntN(len(c.Clients()))].Name)
		if err == nil {
			_, _, err = c.API().Nodes().Purge(id, nil)
		}
		c.t.Logf("fault: %s: %v", what, err)
		return
	}
	vars, _, err := c.API().Variables().PrefixList("nomad-pal/", nil)
	if err != nil || len(vars) == 0 {
		return
	}
	path := vars[c.rng.IntN(len(vars))].Path
	if what == "junk" {
		_, _, err = c.API().Variables().Update(&api.Variable{Path: path, Items: api.VariableItems{"data": "\x00{", "junk": "[1,"}}, nil)
	} else {
		_, err = c.API().Variables().Delete(path, nil)
	}
	c.t.Logf("fault: %s: %s: %v", what, path, err)
}

// calm ends all faults.
func (c *chaos) calm() {
	c.t.Helper()
	c.endFault()
	c.lift()
}

// chaosAuthor owns some jobs. Only this author and the placers change them.
type chaosAuthor struct {
	*chaos
	name string
	rng  *rand.Rand
	jobs []*written
	did  map[string]int
	made int
}

// written is a job as its author wants it.
type written struct {
	id, kind string
	edition  int
	spec     job
	gone     bool // stopped or purged
	purged   bool
	touched  uint64 // JobModifyIndex of a job without the placer, as its author left it
	// waits is the time since when a job without a gate has been waiting at the end of the test;
	// evaluated: the test has evaluated it.
	waits     time.Time
	evaluated bool
	log       []string
}

const openPerAuthor = 10

func (a *chaosAuthor) write(end time.Time) {
	for time.Now().Before(end) {
		<-time.After(time.Duration(a.rng.ExpFloat64() * float64(250*time.Millisecond)))
		a.act()
	}
}

// act changes a random job.
func (a *chaosAuthor) act() {
	open := slices.DeleteFunc(slices.Clone(a.jobs), func(w *written) bool { return w.gone && a.rng.IntN(10) > 0 })
	if len(open) < openPerAuthor || a.rng.IntN(12) == 0 && len(open) < 2*openPerAuthor {
		a.create()
		return
	}
	w := open[a.rng.IntN(len(open))]
	acts := []struct {
		what   string
		weight int
		do     func(*written)
	}{
		{"again", 8, a.register},
		{"edit", 14, a.edit},
		{"stop", 5, func(w *written) { a.deregister(w, false) }},
		{"purge", 4, func(w *written) { a.deregister(w, true) }},
		{"purge and run", 4, a.purgeAndRun},
		{"revert", 6, a.revert},
		{"scale", 6, a.scale},
		{"evaluate", 6, a.evaluate},
		{"stop a member", 4, a.stopMember},
		{"restart a member", 3, a.restartMember},
		{"promote", 4, a.promote},
	}
	var all []int // each as often as its weight
	for i, x := range acts {
		all = append(all, slices.Repeat([]int{i}, x.weight)...)
	}
	x := acts[all[a.rng.IntN(len(all))]]
	a.did[x.what]++
	a.observer.forget(w.id)
	x.do(w)
	a.watchIt(w)
}

// watchIt makes the observer watch a gang whose members must all run, or none.
func (a *chaosAuthor) watchIt(w *written) {
	n := 0
	for _, g := range w.spec.groups {
		n += g.count
	}
	switch {
	case w.gone, w.kind == "service", w.kind == "canary", w.kind == "native":
		return
	case w.kind == "elastic":
		n = 1
	}
	a.observer.expect(w.id, n)
}

func (w *written) note(format string, args ...any) {
	w.log = append(w.log, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// create registers a job of a random kind.
func (a *chaosAuthor) create() {
	a.made++
	kinds := []string{"gang", "gang", "gang", "gang", "gang", "groups", "elastic", "elastic", "service", "canary", "native"}
	w := &written{kind: kinds[a.rng.IntN(len(kinds))]}
	w.id = fmt.Sprintf("%s-%03d-%s", a.name, a.made, w.kind)
	w.spec = gang(w.id, 1+a.rng.IntN(4), 1+a.rng.IntN(2))
	g := &w.spec.groups[0]
	switch w.kind {
	case "groups":
		w.spec.groups = append(w.spec.groups, group{name: "more", count: 1 + a.rng.IntN(2), gpus: 1})
	case "elastic":
		g.count, g.gpus, g.extra = 4, 1, "scaling {\n min = 1\n max = 6\n}\n"
	case "service", "canary":
		w.spec.kind, g.count, g.gpus = "service", 1+a.rng.IntN(2), 1
		if w.kind == "canary" {
			w.spec.groups[0] = canaried(w.id, g.count, 1, a.rng.IntN(2) == 0).groups[0]
		}
	case "native":
		g.count, g.gpus = 1, 1
	}
	if w.spec.kind == "" {
		for i := range w.spec.groups {
			w.spec.groups[i].extra += "restart {\n attempts = 1\n delay = \"1s\"\n interval = \"1h\"\n mode = \"fail\"\n}\nreschedule {\n attempts = 1\n interval = \"1h\"\n delay = \"5s\"\n delay_function = \"constant\"\n unlimited = false\n}\n"
		}
	}
	a.jobs = append(a.jobs, w)
	a.did["create "+w.kind]++
	a.vary(w)
	a.register(w)
	a.watchIt(w)
}

// vary changes the job's script, priority and hints.
func (a *chaosAuthor) vary(w *written) {
	w.edition++
	w.spec.script = fmt.Sprintf("sleep %d", 2+a.rng.IntN(25))
	if w.spec.kind == "service" {
		w.spec.script = fmt.Sprintf("exec sleep %d", 3600+w.edition)
	}
	w.spec.extra = fmt.Sprintf("priority = %d", 20+10*a.rng.IntN(6))
	w.spec.meta = fmt.Sprintf("edition = \"%d\"", w.edition)
	if w.kind != "native" {
		w.spec.meta += fmt.Sprintf("\n    pal_class = %q\n    pal_preempt = \"%v\"\n    pal_migrate = \"%v\"", []string{"A", "B", "C", "D"}[a.rng.IntN(4)], a.rng.IntN(2) == 0, a.rng.IntN(2) == 0)
	}
	if w.kind == "elastic" {
		w.spec.meta += "\n    pal_elastic = \"true\""
	}
}

// register registers the job; it retries until Nomad has accepted it.
func (a *chaosAuthor) register(w *written) {
	w.gone, w.purged = false, false
	a.insist(w, fmt.Sprintf("register edition %d", w.edition), func() error {
		j, err := a.API().Jobs().ParseHCL(w.spec.hcl(), true)
		if err != nil {
			return err
		}
		if w.kind != "native" {
			j.Constraints = append(j.Constraints, &api.Constraint{LTarget: "${meta.pal_gate}", RTarget: "open", Operand: "="})
		}
		if _, _, err := a.API().Jobs().Register(j, nil); err != nil || w.kind != "native" {
			return err
		}
		info, _, err := a.API().Jobs().Info(w.id, nil)
		if err == nil {
			w.touched = *info.JobModifyIndex
		}
		return err
	})
}

// insist retries until Nomad has accepted the change.
func (a *chaosAuthor) insist(w *written, what string, do func() error) {
	for try := 0; ; try++ {
		err := do()
		w.note("%s: %v", what, err)
		if err == nil || strings.Contains(err.Error(), "not found") {
			return
		}
		if try > 200 {
			a.observer.wrong("author of %s: %s: %v", w.id, what, err)
			return
		}
		<-time.After(300 * time.Millisecond)
	}
}

func (a *chaosAuthor) edit(w *written) {
	a.vary(w)
	g := &w.spec.groups[0]
	switch a.rng.IntN(4) {
	case 0:
		if w.kind == "elastic" {
			g.count = 1 + a.rng.IntN(6)
		} else if w.kind != "native" {
			g.count = 1 + a.rng.IntN(4)
		}
	case 1:
		if w.kind == "gang" || w.kind == "groups" {
			g.gpus = 1 + a.rng.IntN(4)
		}
	}
	a.register(w)
}

func (a *chaosAuthor) deregister(w *written, purge bool) {
	if w.purged {
		return
	}
	w.gone, w.purged = true, purge
	a.insist(w, fmt.Sprintf("stop (purge: %v)", purge), func() error {
		_, _, err := a.API().Jobs().Deregister(w.id, purge, nil)
		return err
	})
}

func (a *chaosAuthor) purgeAndRun(w *written) {
	a.deregister(w, true)
	if a.rng.IntN(2) == 0 {
		a.vary(w)
	}
	a.register(w)
}

// revert reverts the job to a version that Nomad keeps.
func (a *chaosAuthor) revert(w *written) {
	if w.purged || w.kind == "native" {
		return
	}
	versions, _, _, err := a.API().Jobs().Versions(w.id, false, nil)
	if err != nil || len(versions) < 2 {
		return
	}
	v := versions[1+a.rng.IntN(len(versions)-1)]
	if v.Stop != nil && *v.Stop {
		return
	}
	_, _, err = a.API().Jobs().Revert(w.id, *v.Version, nil, nil, "", "")
	w.note("revert to version %d, edition %s: %v", *v.Version, v.Meta["edition"], err)
	if err != nil { // Nomad may have done it all the same
		a.vary(w)
		a.register(w)
		return
	}
	w.gone = false
	w.edition, _ = strconv.Atoi(v.Meta["edition"])
	a.takeOver(w, v)
}

// takeOver updates the author's file to a version.
func (a *chaosAuthor) takeOver(w *written, v *api.Job) {
	for i, g := range v.TaskGroups {
		if w.kind != "elastic" {
			w.spec.groups[i].count = *g.Count
		}
		w.spec.groups[i].gpus = int(*g.Tasks[0].Resources.Devices[0].Count)
	}
	args, _ := g0(v).Config["args"].([]any)
	w.spec.script = fmt.Sprint(args[1])
	w.spec.extra = fmt.Sprintf("priority = %d", *v.Priority)
	var meta []string
	for k, m := range v.Meta {
		meta = append(meta, fmt.Sprintf("%s = %q", k, m))
	}
	slices.Sort(meta)
	w.spec.meta = strings.Join(meta, "\n    ")
}

func g0(j *api.Job) *api.Task { return j.TaskGroups[0].Tasks[0] }

func (a *chaosAuthor) scale(w *written) {
	if w.gone || w.kind == "native" {
		return
	}
	n := 1 + a.rng.IntN(4)
	_, _, err := a.API().Jobs().Scale(w.id, "workers", &n, "an author's", false, nil, nil)
	w.note("scale to %d: %v", n, err)
	if w.kind != "elastic" {
		w.spec.groups[0].count = n
	}
	if err != nil && !strings.Contains(err.Error(), "blocked due to active deployment") { // Nomad may have done it all the same
		a.vary(w)
		a.register(w)
	} else if err != nil {
		a.register(w)
	}
}

func (a *chaosAuthor) evaluate(w *written) {
	_, _, err := a.API().Jobs().EvaluateWithOpts(w.id, api.EvalOptions{ForceReschedule: a.rng.IntN(2) == 0}, nil)
	w.note("evaluate: %v", err)
}

func (a *chaosAuthor) withMember(w *written, do func(*api.Allocation) error) {
	stubs, _, err := a.API().Jobs().Allocations(w.id, false, nil)
	if err != nil {
		return
	}
	for _, s := range stubs {
		if s.ClientStatus == "running" && s.DesiredStatus == "run" && a.rng.IntN(2) == 0 {
			w.note("%.8s: %v", s.ID, do(&api.Allocation{ID: s.ID, Namespace: s.Namespace}))
			return
		}
	}
}

func (a *chaosAuthor) stopMember(w *written) {
	a.withMember(w, func(m *api.Allocation) error {
		_, err := a.API().Allocations().Stop(m, nil)
		return err
	})
}

func (a *chaosAuthor) restartMember(w *written) {
	a.withMember(w, func(m *api.Allocation) error { return a.API().Allocations().Restart(m, "", nil) })
}

func (a *chaosAuthor) promote(w *written) {
	d, _, err := a.API().Jobs().LatestDeployment(w.id, nil)
	if err != nil || d == nil || d.Status != "running" {
		return
	}
	if a.rng.IntN(4) == 0 {
		_, _, err = a.API().Deployments().Fail(d.ID, nil)
	} else {
		_, _, err = a.API().Deployments().PromoteAll(d.ID, nil)
	}
	w.note("promote or fail: %v", err)
}
