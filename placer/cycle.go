// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/profile"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/failure"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// cycleTimeout bounds a cycle. Each request has a bound of its own; where many are
// not answered, reading everything again says whether Nomad is there at all.
const cycleTimeout = 2 * time.Minute

// errCycleTimeout ends a cycle that took too long.
var errCycleTimeout = fmt.Errorf("a cycle took longer than %v", cycleTimeout)

// tick reads the clock.
func (p *Placer) tick() time.Time {
	p.now = p.clock.now()
	return p.now
}

// cycle does everything that is due now. An error means that it could not be done
// to the end. What concerns one job is logged and kept for explain, and what could
// not be read or stored besides is logged and tried again with a later cycle.
func (p *Placer) cycle(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, cycleTimeout, errCycleTimeout)
	defer cancel()
	if err := p.cycleWithin(ctx); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// cycleWithin is one cycle. The order matters: each step relies on those before it.
//
//  1. Read what events did not tell enough of: allocations, measurements, failures.
//  2. Bring the view up to date: who holds which GPU, which GPUs are kept out.
//  3. Bring each gang up to date (track), then let it do what is due (reconcileAll).
//     Gangs that end give their GPUs back here, before anybody is started.
//  4. Tell the queue what changed, and compare it with the view (balance). Only a queue
//     that agrees with the view may decide: else a GPU could be given out twice.
//  5. Take in jobs that came to the agent, and decide.
//  6. Publish and store. Nothing above waits for that, and it may fail.
func (p *Placer) cycleWithin(ctx context.Context) error {
	now := p.tick()
	if p.mayTry(readingAllocs, now) {
		p.trouble(readingAllocs, p.nomad.ReadStale(ctx, p.state))
		now = p.tick() // what it read may be later than now was
	}
	if err := p.calibrate(ctx, now); err != nil {
		return err
	}
	p.lastCycle = now
	p.restoreLearned(ctx, now)
	p.ready, p.moves = append(p.ready, p.moves...), nil
	if p.mayTry(notingFailures, now) {
		p.trouble(notingFailures, p.noteFailures(ctx, now))
	}
	if err := p.updateView(now); err != nil {
		return err
	}
	p.syncWindows(now)
	p.track(ctx)
	p.reconcileAll(func(t *tracked) { p.step(ctx, t, gang.Turn{}) })
	p.distrustPins(now)
	p.checkDependencies(ctx, now, dependencyBatch)
	p.syncQueue(ctx)
	if p.hooks.Ledger != nil {
		p.hooks.Ledger(p.checkLedger())
	}
	p.enqueueSubmissions(ctx, now)
	if err := p.decide(ctx, now); err != nil {
		return err
	}
	p.publish(now)
	return nil
}

// sorted are the jobs by key; not to be changed. The order is kept from cycle to cycle,
// so that thousands of jobs need not be sorted in each. It is valid if it is as long as the map: [Placer.add] and [Placer.forget] keep it so, or
// drop it.
func (p *Placer) sorted() []*tracked {
	if len(p.order) != len(p.jobs) {
		p.order = make([]*tracked, 0, len(p.jobs))
		for _, k := range slices.SortedFunc(maps.Keys(p.jobs), nomad.JobKey.Compare) {
			p.order = append(p.order, p.jobs[k])
		}
	}
	return p.order
}

func byKey(t *tracked, k nomad.JobKey) int { return t.Key.Compare(k) }

// add begins to track a job.
func (p *Placer) add(k nomad.JobKey) *tracked {
	t := &tracked{Gang: gang.Gang{Observed: gang.Observed{Key: k}}}
	if len(p.order) == len(p.jobs) {
		i, _ := slices.BinarySearchFunc(p.order, k, byKey)
		p.order = slices.Insert(p.order, i, t)
	} else {
		p.order = nil
	}
	p.jobs[k] = t
	return t
}

// forget ends that.
func (p *Placer) forget(k nomad.JobKey) {
	if i, ok := slices.BinarySearchFunc(p.order, k, byKey); ok && len(p.order) == len(p.jobs) {
		p.order = slices.Delete(p.order, i, i+1)
	} else {
		p.order = nil
	}
	delete(p.jobs, k)
}

// followed is what the tracked jobs were brought up to date with.
type followed struct {
	mark  nomad.Mark
	view  *nomad.View
	epoch uint64
	all   time.Time // when all of them were
}

// followAll is how often all jobs are looked at, whether they changed or not:
// what was learned of running jobs says something about those that wait.
const followAll = 10 * time.Second

// viewOptions are the options of the view as they are now. Kept out like GPUs in
// quarantine are those of a node that is back but has not yet said what it still runs, and
// those of purged jobs whose tasks may still run: Nomad counts both as free.
func (p *Placer) viewOptions(now time.Time) nomad.ViewOptions {
	o := p.cfg.viewOptions(p.profile, p.heldGPUs(now))
	o.Quarantined = failure.Out(p.failureHistory.quarantine, now)
	maps.Copy(o.Quarantined, p.state.Reconnecting(now))
	maps.Copy(o.Quarantined, p.state.Purged(now))
	o.Completing = p.state.Completing(now)
	return o
}

func (c Config) viewOptions(prof *profile.Profile, held map[nomad.JobKey][]string) nomad.ViewOptions {
	o := nomad.ViewOptions{
		Locality: c.Locality, Profile: prof, RackMeta: c.RackMeta,
		Apps: c.Apps, DefaultClass: c.DefaultClass, Held: held, Children: c.Children, OutlierThreshold: c.Queue.OutlierThreshold,
	}
	if c.Learner != nil {
		o.Learned = c.Learner.Class
	}
	return o
}

// updateView brings the view up to date, or rebuilds it and tells the queue.
func (p *Placer) updateView(now time.Time) error {
	if p.view != nil && p.view.Update(p.state, p.viewOptions(now)) {
		return nil
	}
	v, err := p.state.View(p.viewOptions(now))
	if err != nil {
		return err
	}
	p.view = v
	p.rebase()
	return nil
}

// track brings the tracked jobs up to date with the state. As a rule it looks only at
// jobs that were touched since the last cycle. It looks at all of them after a full read,
// when the view was built again or other nodes may serve jobs (its epoch), and every
// [followAll].
func (p *Placer) track(ctx context.Context) {
	keys, mark, known := p.state.Touched(p.followed.mark)
	now := followed{mark: mark, view: p.view, epoch: p.view.Epoch(), all: p.followed.all}
	if !known || now.view != p.followed.view || now.epoch != p.followed.epoch || p.now.Sub(now.all) > followAll {
		keys, now.all = p.state.SortedJobs(), p.now
		for k := range p.jobs {
			if p.state.Jobs[k] == nil {
				p.drop(k)
			}
		}
	}
	others := now.view == p.followed.view && now.epoch != p.followed.epoch
	p.followed = now
	for _, k := range keys {
		p.trackJob(ctx, k)
	}
	p.endJob() // not deferred: a panic leaves it on
	if others {
		p.reconsider()
	}
}

func (p *Placer) trackJob(ctx context.Context, k nomad.JobKey) {
	p.beginJob(k)
	job := p.state.Jobs[k]
	if job == nil {
		p.drop(k)
		return
	}
	if reason, ok := p.isolated(job, p.now); ok {
		p.trackIsolated(k, job, reason)
		return
	}
	st := gang.Observe(p.state, job).WithLost(world{p})
	t := p.jobs[k]
	if t == nil && !st.Ours() {
		return
	}
	if t == nil {
		t = p.add(k)
	}
	t.quiet = false
	p.releaseUnconfirmed(job)
	o := gang.Observation{Observed: st}
	if st.Ours() {
		o.Request, o.Refused = p.requestOf(st)
	}
	p.step(ctx, t, o)
	if !t.Ours() {
		p.forget(k)
	}
}

// trackIsolated keeps a job in sight that is left alone.
func (p *Placer) trackIsolated(k nomad.JobKey, job *api.Job, reason string) {
	t := p.jobs[k]
	if t == nil {
		t = p.add(k)
	}
	t.Observed, t.Refused = asideObserved(job), errors.New(reason)
}

// requestOf reads what a job wants. A gang that was requeued wants other nodes
// than those that failed it, too.
func (p *Placer) requestOf(st gang.Observed) (nomad.Request, error) {
	r, err := p.view.Request(st.Job)
	if err == nil {
		if nodes := p.avoids(st, p.now); nodes != nil {
			p.view.Avoid(&r, nodes)
		}
	}
	return r, err
}

// avoids are the nodes, by name, that a gang that was requeued goes to only if
// it fits nowhere else; nil for none.
func (p *Placer) avoids(st gang.Observed, now time.Time) map[string]bool {
	if st.Nomad != gang.Waiting || len(st.Pins.Groups) == 0 {
		return nil
	}
	return p.failureHistory.failedOn(st.Key, now)
}

// drop forgets a job that Nomad does not know any more.
func (p *Placer) drop(k nomad.JobKey) {
	t := p.jobs[k]
	if t == nil {
		return
	}
	if t.Queued {
		p.queue.Removed(since(p.now), k.String())
	}
	if s := t.State(); s != gang.Ended && p.hooks.Events != nil {
		p.emit(k, Finished, "was purged; it was "+s.String())
	}
	p.forget(k)
}

// profileAgain is how often a stored profile is looked for where there is none
// and the nodes publish nothing to build one from.
const profileAgain = 10 * time.Second

// calibrate turns what the nodes publish into a profile. The error is that of ctx.
func (p *Placer) calibrate(ctx context.Context, now time.Time) error {
	if p.profile == nil && now.Sub(p.profileReadAt) > profileAgain {
		stored, err := store.In(p.nomad).Profile().Read(ctx)
		if err != nil {
			p.log.Warn("the stored profile cannot be read; building one from what the nodes publish", "error", err)
		}
		p.profile, p.profileReadAt = stored, now
	}
	built, err := p.buildProfile()
	if err != nil {
		p.log.Warn("some measurements cannot be read", "error", err)
	}
	if built == nil || (p.profile != nil && built == p.profile) {
		return ctx.Err()
	}
	for _, e := range profile.Diff(p.profile, built) {
		if e.Kind == profile.Added {
			p.log.Trace("profile", "event", e.String())
		} else {
			p.log.Info("profile", "event", e.String())
		}
	}
	p.profile = built
	p.log.Info("profile in force", "version", built.Version, "gpus", len(built.GPUs))
	p.unstored = true
	return ctx.Err()
}

// profileDue stores the profile in force, if it is not, for the nodes and the commands,
// and for the placer that comes next.
func (p *Placer) profileDue(now time.Time) *entry {
	if !p.unstored || !p.mayTry(storingProfile, now) {
		return nil
	}
	prof := p.profile
	p.unstored = false
	return &entry{
		what:  storingProfile,
		write: func(ctx context.Context) error { return store.In(p.nomad).Profile().Write(ctx, prof) },
		then:  func(err error) { p.unstored = p.unstored || err != nil },
	}
}

// buildProfile returns the profile in force itself where nothing changed.
func (p *Placer) buildProfile() (*profile.Profile, error) {
	if p.view != nil && p.builtFrom == p.state.NodeGeneration() {
		return p.profile, nil
	}
	samples, known, readErr := p.state.Measurements()
	p.builtFrom = p.state.NodeGeneration()
	samples = nomad.MergeSamples(samples, p.imported, known)
	if len(samples) == 0 {
		return p.profile, readErr
	}
	o := p.cfg.Calibration
	o.Known, o.Created = known, p.now.UTC().Format(time.RFC3339)
	built, err := profile.Build(samples, o, p.profile)
	if err != nil {
		return p.profile, err
	}
	return built, readErr
}

// policy is the placement policy.
func (c Config) policy() pal.Policy { return queue.Placement(c.Placement) }

func since(t time.Time) time.Duration { return gang.QueueTime(t) }
