// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"cmp"
	"context"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/nomad-pal/nomad-pal/pal/reason"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/heartbeat"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/query"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// ReadSnapshot reads everything from Nomad once.
func ReadSnapshot(ctx context.Context, c *nomad.Client) (*query.Snapshot, error) {
	return Refresh(ctx, c, nil)
}

// Refresh reads what has changed of nodes and jobs since the last snapshot, which stays as
// it is, and everything else; all if last is nil.
func Refresh(ctx context.Context, c *nomad.Client, last *query.Snapshot) (*query.Snapshot, error) {
	cfg, err := ReadEffectiveConfig(ctx, c)
	if err != nil {
		return nil, err
	}
	return readSnapshot(ctx, c, last, cfg)
}

// Refresh is [Refresh] by the placer's own configuration, whatever is published: another agent may
// have been at work for a moment.
func (p *Placer) Refresh(ctx context.Context, c *nomad.Client, last *query.Snapshot) (*query.Snapshot, error) {
	return readSnapshot(ctx, c, last, p.m.Cfg)
}

func readSnapshot(ctx context.Context, c *nomad.Client, last *query.Snapshot, cfg model.Config) (*query.Snapshot, error) {
	last = cmp.Or(last, query.New(&model.Model{}, c, heartbeat.Activity{}, ""))
	p, err := New(c, cfg, hclog.NewNullLogger(), Hooks{})
	if err != nil {
		return nil, err
	}
	if p.m.State, err = c.Resync(ctx, last.Model().State); err != nil {
		return nil, err
	}
	now := p.tick()
	stamp, err := p.readKept(ctx, now, last)
	if err != nil {
		return nil, err
	}
	p.m.State.ForgetReconnected(now)
	if before := last.Seen(); !before.IsZero() {
		p.m.State.VanishedSince(before)
	}
	activity, err := heartbeat.ReadActivity(ctx, c, now)
	if err != nil {
		return nil, err
	}
	if err := p.m.UpdateView(now); err != nil {
		return nil, err
	}
	for !p.m.IsolatePanics(func() {
		p.followed = followed{} // all of them
		p.track(ctx)
	}) {
	}
	p.readAllRecords(ctx)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err := p.updateViewWithoutForgedPins(ctx, now); err != nil {
		return nil, err
	}
	p.m.SyncWindows(now)
	p.snapshotDependencies(ctx, now, last.Model())
	for !p.m.IsolatePanics(func() { p.syncQueue(ctx) }) {
	}
	return query.New(p.m, c, activity, stamp), nil
}

// updateViewWithoutForgedPins brings the view of a snapshot, which has read all records, to what
// an agent at work believes. What was registered a moment ago may not be recorded
// yet.
func (p *Placer) updateViewWithoutForgedPins(ctx context.Context, now time.Time) error {
	for _, t := range p.m.Sorted() {
		if t.Nomad == gang.Starting && now.Sub(time.Unix(0, *t.Job.SubmitTime)).Abs() < query.RecordComes {
			p.m.State.Own(t.Key, t.Pins.GPUs())
		}
	}
	p.m.State.OnlyOwnPins()
	if err := p.m.UpdateView(now); err != nil {
		return err
	}
	p.track(ctx)
	return nil
}

// readKept reads what the placer keeps in Nomad's variables, as far as it may.
// A profile that is still what last read is taken from there: it is large. stamp is that
// of the stored one.
func (p *Placer) readKept(ctx context.Context, now time.Time, last *query.Snapshot) (stamp string, err error) {
	kept := store.In(p.nomad)
	if stamp, err = kept.Profile().Stamp(ctx); err != nil {
		return "", err
	}
	if p.m.Profile = last.Model().Profile; p.m.Profile == nil || stamp == "" || stamp != last.ProfileStamp {
		if p.m.Profile, err = kept.Profile().Read(ctx); err != nil && !store.Unreadable(err) {
			return "", err
		}
	}
	if p.m.Profile == nil {
		if p.m.Profile, err = p.m.BuildProfile(); err != nil && p.m.Profile == nil {
			return "", err
		}
	}
	// What somebody has made unreadable is as if it were not there, as it is to the
	// placer, which writes it again.
	if p.m.Quarantine, err = ReadQuarantine(ctx, p.nomad); err != nil && !store.Unreadable(err) {
		return "", err
	}
	// The failures themselves are not for everybody's eyes, as they name jobs of all
	// namespaces: who cannot read them is told of those that a job's own allocations
	// tell.
	if failures, err := kept.Failures().Read(ctx); err == nil {
		p.m.Failures = failures.Of.Kept
	}
	// What runs took is not either: who cannot read it gets the order that the jobs'
	// own hints give.
	p.runHistory.due, p.usage.due = true, true
	p.restoreLearned(ctx, now)
	return stamp, nil
}

// readAllRecords reads the records of all jobs. Nobody waits for those of one job, or of
// one namespace.
func (p *Placer) readAllRecords(ctx context.Context) {
	p.timeBudget.within = snapshotWithin
	p.reconcileAll(func(t *model.Tracked) {
		ctx, cancel := context.WithTimeout(ctx, snapshotAnswer)
		defer cancel()
		p.step(ctx, t, gang.Turn{ReadOnly: true})
	})
	for _, t := range p.m.Sorted() {
		if t.PassedOver { // it has the place in the queue that the job alone gives it
			t.PassedOver, t.Trouble = false, reason.Unread("what is recorded of it could not be read in time")
		}
	}
}

const (
	// snapshotWithin is what a snapshot spends on the records of each namespace, and
	// snapshotAnswer how long it waits for one.
	snapshotWithin = 20 * time.Second
	snapshotAnswer = 2 * time.Second
)
