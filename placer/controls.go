// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/attr"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/failure"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// Controls are orders that people give about jobs without changing the jobspecs, such as a hold.
// Controls are stored in Nomad's variables, one for each namespace
// (nomad-pal/controls/<namespace>), so they survive restarts of the placer and new versions of jobs.
// The active agent writes such a variable, and then tells its placer to read the variables again.
// The placer starts no job before it has read the controls, because a job may be on hold. If the
// variables cannot be read, the placer waits for at most controlsWithin.

// controlsWithin is how long a placer tries to read the controls before it makes decisions without
// them. The placer reads the controls when it starts and after each change.
const controlsWithin = 3 * time.Second

// Controlled is the answer to an order about a job.
type Controlled struct {
	gang.Control // the orders in force
	// Starting is true if the placer had already sent the job's start to Nomad, so the order came too
	// late to stop the start.
	Starting bool `json:"starting,omitempty"`
}

// Control changes the controls of a job, and tells the placer to read the controls again. Control
// also deletes the controls of jobs of the same namespace that are gone. A start that the placer has
// not sent to Nomad yet obeys a hold at once.
func (p *Placer) Control(ctx context.Context, k cluster.JobKey, change func(*gang.Control)) (Controlled, error) {
	kept := store.In(p.nomad).ControlsOf(k.Namespace)
	is, err := kept.Read(ctx)
	if err != nil && !store.Unreadable(err) {
		return Controlled{}, err
	}
	picture := p.Picture()
	if err != nil && picture != nil {
		is.Of = storedControls(picture.Model().Controls)[k.Namespace]
	}
	gone := p.gone(ctx, is.Of)
	var of gang.Control
	_, err = kept.Change(ctx, is, func(is store.Value[map[string]gang.Control]) (map[string]gang.Control, error) {
		all := map[string]gang.Control{}
		maps.Copy(all, is.Of)
		maps.DeleteFunc(all, func(id string, _ gang.Control) bool { return gone[id] && id != k.String() })
		of = all[k.String()]
		if change(&of); of == (gang.Control{}) {
			delete(all, k.String())
		} else {
			all[k.String()] = of
		}
		return all, nil
	})
	defer p.Reread() // also after an error, because Nomad may have written the order
	if err != nil {
		return Controlled{}, fmt.Errorf("storing the hold, requeue or priority of job %q: %w", k.ID, err)
	}
	return Controlled{of, announce(p, k)}, nil
}

// gone returns the ids of jobs that have controls but are no longer in Nomad. gone asks Nomad about
// each job that the snapshot lacks, because a snapshot lacks new jobs and, after a lost connection,
// most jobs.
func (p *Placer) gone(ctx context.Context, told map[string]gang.Control) map[string]bool {
	gone, picture := map[string]bool{}, p.Picture()
	for id := range told {
		k := model.KeyOf(id)
		if picture != nil && picture.Model().State.Jobs[k] == nil {
			job, err := p.nomad.Job(ctx, k)
			gone[id] = err == nil && job == nil
		}
	}
	return gone
}

// Reread tells the placer to read the data that commands change, which are the controls and the
// quarantine.
func (p *Placer) Reread() {
	p.orders.announced.Add(1)
	p.nudge()
}

// announce announces that orders about a job were written. sent reports whether they came too late:
// the placer has already sent a start of the job to Nomad.
func announce(p *Placer, k cluster.JobKey) (sent bool) {
	p.meanwhile.mu.Lock()
	defer p.meanwhile.mu.Unlock()
	p.orders.announced.Add(1)
	return p.meanwhile.sent[k]
}

// ordersForbid returns the reason why people's orders forbid an addition, or "" if they do not. If
// orders were announced that the cycle has not read, ordersForbid reads the hold of the job and the
// quarantine. Several starts can call ordersForbid at a time.
func ordersForbid(ctx context.Context, p *Placer, a addition, known uint64) string {
	if known == p.orders.read {
		return ""
	}
	controls, err := store.In(p.nomad).ControlsOf(a.job.Namespace).Read(ctx)
	if err != nil && !store.Unreadable(err) {
		return "new orders about the job cannot be read: " + err.Error()
	}
	if controls.Of[a.job.String()].Held != nil && !a.runs {
		return "somebody has put the job on hold in the meantime"
	}
	quarantine, err := store.In(p.nomad).Quarantine().Read(ctx)
	if err != nil && !store.Unreadable(err) {
		return "the new quarantine cannot be read: " + err.Error()
	}
	in := failure.QuarantinedGPUs(quarantine.Of, p.m.Time)
	for _, id := range a.gpus {
		if in[attr.GPUOf(id)] {
			return fmt.Sprintf("GPU %s has been put in quarantine in the meantime", id)
		}
	}
	return ""
}

// readControls reads the controls if they may have changed, and reports whether the placer may make
// decisions. The placer may make decisions if it knows the controls or controlsWithin has passed.
func (p *Placer) readControls(ctx context.Context, now time.Time) bool {
	ordered := p.orders.announced.Load()
	if ordered != p.orders.read {
		p.orders.read = ordered
		if !p.orders.stale && p.m.Controls != nil {
			p.orders.since = now
		}
		p.orders.stale = true
		p.failureLog.stale = true
		p.changed = true
	}
	if p.orders.since.IsZero() {
		p.orders.since = now
	}
	known := p.m.Controls != nil && !p.orders.stale || now.Sub(p.orders.since) >= controlsWithin
	if !p.orders.stale && p.m.Controls != nil || p.backsOff(readingControls, now) {
		return known
	}
	is, err := store.In(p.nomad).Controls().ReadOrRefused(ctx)
	if store.Unreadable(err) && p.m.Controls != nil {
		p.log.Warn("the stored holds and priorities of jobs were damaged; storing the last known ones again", "error", err)
		is, err = restoreControls(ctx, store.In(p.nomad), p.m.Controls)
	}
	if store.Unreadable(err) || nomad.Refused(err) {
		p.log.Warn("cannot read the holds and priorities of jobs; continuing without them", "error", err)
		err = nil
	}
	if p.report(readingControls, err); err != nil {
		return known
	}
	p.orders.stale, p.m.Controls = false, map[cluster.JobKey]gang.Control{}
	for id, c := range is {
		p.m.Controls[model.KeyOf(id)] = c
	}
	for _, t := range p.m.Sorted() {
		c := p.m.Controls[t.Key]
		if c != t.Control {
			t.Controlled(c)
			t.Idle = false
		}
	}
	return true
}

// restoreControls writes the last known controls again in place of variables that cannot be read,
// and reads all controls again.
func restoreControls(ctx context.Context, in store.Store, controls map[cluster.JobKey]gang.Control) (map[string]gang.Control, error) {
	known := storedControls(controls)
	for _, namespace := range slices.Sorted(maps.Keys(known)) {
		v := in.ControlsOf(namespace)
		if is, err := v.Read(ctx); store.Unreadable(err) {
			if _, err := v.Replace(ctx, is.Index, known[namespace]); err != nil {
				return nil, err
			}
		}
	}
	return in.Controls().ReadOrRefused(ctx)
}

// storedControls returns controls by namespace, in the form in which they are stored.
func storedControls(controls map[cluster.JobKey]gang.Control) map[string]map[string]gang.Control {
	out := map[string]map[string]gang.Control{}
	for k, c := range controls {
		if out[k.Namespace] == nil {
			out[k.Namespace] = map[string]gang.Control{}
		}
		out[k.Namespace][k.String()] = c
	}
	return out
}

// forgetReleaseAfter is how long an order to release a job stays at least. A new order can be older
// than the placer's data about the job.
const forgetReleaseAfter = 10 * time.Second

// forgetReleases deletes orders to release jobs for which the placer is not responsible any more.
// Otherwise, a job that its author runs again with the gate would be released again.
func (p *Placer) forgetReleases(ctx context.Context) {
	if p.backsOff(forgettingReleases, p.m.Time) {
		return
	}
	for k, c := range p.m.Controls {
		if c.Release == nil || p.m.Jobs[k] != nil || p.m.Time.Sub(c.Release.At) < forgetReleaseAfter {
			continue
		}
		_, err := p.Control(ctx, k, func(c *gang.Control) { c.Release = nil })
		p.report(forgettingReleases, err)
	}
}

// holdJobs keeps jobs that are on hold out of the queue.
func (p *core) holdJobs() {
	for _, t := range p.m.Sorted() {
		held := t.Control.Hold()
		if held.IsZero() || t.Nomad != palapi.Waiting || t.Refused != nil {
			continue
		}
		t.After, t.Idle = &held, false
	}
}
