// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"context"
	"fmt"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/profile"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/request"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// cycleTimeout is the longest time that a cycle may take. Each request has its own timeout. If many
// requests time out, the cycle ends, and the placer then reads everything again. The full read
// shows whether Nomad answers at all.
const cycleTimeout = 2 * time.Minute

// errCycleTimeout is the error of a cycle that took too long.
var errCycleTimeout = fmt.Errorf("a cycle took longer than %v", cycleTimeout)

// tick reads the clock.
func (p *core) tick() time.Time {
	p.m.Time = p.clock.now()
	return p.m.Time
}

// cycle runs one cycle, with a timeout. An error means that the cycle was not completed. Errors
// that concern a single job do not end the cycle, but are logged and shown by explain. Other failed
// reads and writes are logged and retried in a later cycle.
func (p *Placer) cycle(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, cycleTimeout, errCycleTimeout)
	defer cancel()
	if err := p.cycleWithin(ctx); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// cycleWithin runs one cycle. The order matters, because each step relies on the steps before it.
//
//  1. Read data that events do not contain completely: allocations, measurements, failures.
//  2. Catch up (catchUp).
//  3. Decide.
//  4. Publish a snapshot. The other steps do not depend on the snapshot.
func (p *Placer) cycleWithin(ctx context.Context) error {
	p.began = time.Now()
	began := p.tick()
	if !p.backsOff(readingAllocs, began) {
		p.report(readingAllocs, p.nomad.ReadStale(ctx, p.m.State))
		p.tick() // reading the allocations can take a while
	}
	if err := p.calibrate(ctx, p.m.Time); err != nil {
		return err
	}
	p.lastCycle = p.m.Time
	told := p.readOrders(ctx)
	p.changed = p.changed || p.runTimesFile.due || p.usage.due
	p.restoreLearned(ctx, p.m.Time)
	p.ready, p.moves = append(p.ready, p.moves...), nil
	if err := p.catchUp(ctx); err != nil {
		return err
	}
	ordered := p.orders.announced.Load() != p.orders.read
	if p.clock.now().Sub(began) > oldNews && (p.applyAll() > 0 || ordered) {
		p.tick()
		told = p.readOrders(ctx)
		if err := p.catchUp(ctx); err != nil {
			return err
		}
	}
	if told {
		if err := p.decide(ctx, p.m.Time); err != nil {
			return err
		}
	}
	p.forgetReleases(ctx)
	p.publish(p.m.Time)
	return nil
}

// readOrders reads people's orders about jobs and GPUs, and notes failures, which have the same
// effect on GPUs as orders. readOrders reports whether the placer may make decisions.
func (p *Placer) readOrders(ctx context.Context) (told bool) {
	told = p.readControls(ctx, p.m.Time)
	if !p.backsOff(notingFailures, p.m.Time) {
		p.report(notingFailures, p.noteFailures(ctx, p.m.Time))
	}
	return told
}

// oldNews is the age at which the data of a cycle is too old for a decision. If a cycle has run for
// longer than oldNews, it applies new events and people's orders once more before it decides. While
// Nomad answers slowly, somebody can hold a waiting job, or a job can start and then be lost with
// its node. When the node comes back, the lost job holds its GPUs again.
const oldNews = time.Second

// catchUp brings the placer up to date with Nomad's state, and does what is due for each gang.
//
//  1. Update the view: which job holds which GPU, and which GPUs are excluded.
//  2. Update each gang (track), then do what is due for it (reconcileAll). In this step ended gangs
//     give their GPUs back, before any gang starts.
//  3. Tell the queue what changed, and which GPUs each gang has (syncQueue). The queue must not
//     decide before this step, or it could give a GPU to two gangs.
func (p *Placer) catchUp(ctx context.Context) error {
	now := p.m.Time
	p.meanwhile.begin()
	if err := p.m.UpdateView(now); err != nil {
		return err
	}
	p.noteHealth()
	p.m.SyncWindows(now)
	p.track(ctx)
	p.reconcileAll(func(t *model.Tracked) { p.step(ctx, t, gang.Reconcile{}) })
	p.distrustPins(now)
	p.checkDependencies(ctx, now, dependencyBatch)
	p.holdJobs()
	model.DelayRetries(p.m)
	p.syncQueue(ctx)
	if p.hooks.Ledger != nil {
		p.hooks.Ledger(p.m)
	}
	return nil
}

// followed describes the state that track used last.
type followed struct {
	mark  cluster.Mark
	view  *request.View
	epoch uint64
	all   time.Time // when all jobs were last updated
}

// followAll is the interval at which track updates all jobs, even unchanged jobs. Unchanged jobs
// need updates because finished runs change the estimates of waiting jobs.
const followAll = 10 * time.Second

// track updates the tracked jobs that have changed since the previous cycle. It updates all jobs
// every [followAll], after a full read, and when the view was rebuilt or its epoch has changed.
func (p *Placer) track(ctx context.Context) {
	keys, mark, known := p.m.State.Touched(p.followed.mark)
	now := followed{mark: mark, view: p.m.View, epoch: p.m.View.Epoch(), all: p.followed.all}
	if !known || now.view != p.followed.view || now.epoch != p.followed.epoch || p.m.Time.Sub(now.all) > followAll {
		keys, now.all = p.m.State.SortedJobs(), p.m.Time
		for k := range p.m.Jobs {
			if p.m.State.Jobs[k] == nil {
				p.drop(k)
			}
		}
	}
	others := now.view == p.followed.view && now.epoch != p.followed.epoch
	p.followed = now
	for _, k := range keys {
		p.trackJob(ctx, k)
	}
	p.m.EndJob() // not deferred: after a panic the job must still be set
	if others {
		p.m.Reconsider()
	}
}

func (p *Placer) trackJob(ctx context.Context, k cluster.JobKey) {
	p.m.BeginJob(k)
	job := p.m.State.Jobs[k]
	if job == nil {
		p.drop(k)
		return
	}
	if why, ok := p.m.Isolated(job, p.m.Time); ok {
		p.m.TrackIsolated(k, job, why)
		return
	}
	st := gang.Observe(p.m.State, job).WithLost(p.m.World())
	t := p.m.Jobs[k]
	if t == nil && !st.Ours() {
		return
	}
	if t == nil {
		t = p.m.Add(k)
	}
	o := gang.Observation{Observed: st}
	o.Overwrote, o.Recreated = p.m.WroteLate(job)
	if st.Ours() {
		o.Request, o.Refused = p.m.RequestOf(st)
	}
	p.step(ctx, t, o)
	if !t.Ours() {
		p.m.Forget(k)
	}
}

// drop forgets a job that Nomad no longer has.
func (p *Placer) drop(k cluster.JobKey) {
	t := p.m.Jobs[k]
	if t == nil {
		return
	}
	if t.Queued {
		p.m.Queue.Removed(gang.QueueTime(p.m.Time), k.String())
	}
	s := t.State(p.m)
	if s != palapi.Ended && p.hooks.Events != nil {
		p.emit(k, palapi.EventFinished, "was purged; it was "+string(s))
	}
	p.unsaved.forget(k)
	p.stale = append(p.stale, store.DecisionPath(k))
	p.m.Forget(k)
}

// pinsGrace is the time after the placer's start during which all pins reserve GPUs. The previous
// placer may have written pins without recording them. After pinsGrace, the members of all gangs
// with such pins have started.
const pinsGrace = 30 * time.Second

// distrustPins ensures that, after pinsGrace, pins reserve GPUs only if the placer knows that a
// placer wrote them.
func (p *Placer) distrustPins(now time.Time) {
	if p.pinsUntil.IsZero() {
		p.pinsUntil = now.Add(pinsGrace)
	}
	if !now.Before(p.pinsUntil) {
		p.m.State.OnlyOwnPins()
	}
}

// profileAgain is the interval at which the placer looks for a stored profile. The placer looks
// only while it has no profile and cannot build one from measurements.
const profileAgain = 10 * time.Second

// calibrate builds a profile from the imported measurements and the measurements that the nodes
// publish. calibrate returns only errors of ctx.
func (p *Placer) calibrate(ctx context.Context, now time.Time) error {
	if p.m.Profile == nil && now.Sub(p.profileReadAt) > profileAgain {
		stored, err := store.In(p.nomad).Profile().Read(ctx)
		if err != nil {
			p.log.Warn("cannot read the stored profile; building one from the nodes' measurements", "error", err)
		}
		p.m.Profile, p.profileReadAt = stored, now
	}
	built, err := p.m.BuildProfile()
	if err != nil {
		p.log.Warn("cannot read some measurements", "error", err)
	}
	if built == nil || built == p.m.Profile {
		return ctx.Err()
	}
	for _, e := range profile.Diff(p.m.Profile, built) {
		if e.Kind != profile.Added {
			p.log.Info("profile", "event", e.String())
		}
	}
	p.m.Profile = built
	p.log.Info("profile in force", "version", built.Version, "gpus", len(built.GPUs))
	p.unstored = true
	return ctx.Err()
}

// profileDue returns the write that stores the current profile, if it is not stored yet. Nodes,
// commands and the next placer read the stored profile.
func (p *journal) profileDue(now time.Time) *dueWrite {
	if !p.unstored || p.backsOff(storingProfile, now) {
		return nil
	}
	prof := p.m.Profile
	p.unstored = false
	return &dueWrite{
		what:  storingProfile,
		write: func(ctx context.Context) error { return store.In(p.nomad).Profile().Write(ctx, prof) },
		then:  func(err error) { p.unstored = p.unstored || err != nil },
	}
}

// syncQueue lets each gang tell the queue what has happened to the gang since the previous cycle.
// syncQueue also tells the queue on which GPUs each gang runs, according to the view.
func (p *Placer) syncQueue(ctx context.Context) {
	for _, k := range p.m.View.TakeShifted() {
		t := p.m.Jobs[k]
		if t != nil {
			t.Idle = false // the queue must learn where the gang runs
		}
	}
	for _, t := range p.m.Sorted() {
		if t.Idle {
			continue
		}
		p.m.BeginJob(t.Key)
		p.step(ctx, t, gang.Sync{Unread: t.PassedOver, After: t.After != nil, Eligible: t.Eligible})
		if t.Placed {
			p.m.Queue.SetPlacement(gang.QueueTime(p.m.Time), t.Key.String(), p.m.At(t))
		}
		t.Idle = t.Quiet(p.m) && !t.PassedOver && t.After == nil
	}
	p.m.EndJob()
	p.m.Queue.LookAround(gang.QueueTime(p.m.Time), p.m.View.Cluster)
	p.m.CountOutside()
}
