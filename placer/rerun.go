// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"context"
	"fmt"
	"slices"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// reapply serves a job whose author ran the same file again, gate and all,
// while its gang runs: it gets the pins it had, so that what runs stays. A
// gang of another size is placed anew as a whole, which Nomad turns into one
// update.
func (p *Placer) reapply(ctx context.Context, t *tracked) error {
	had, err := p.before(ctx, t)
	if err != nil || had == nil {
		return err
	}
	pins, pinned := rewrite.Pinned(had)
	log := p.log.With("job", t.Key.ID, "namespace", t.Key.Namespace)
	if !pinned {
		log.Info("gated while it runs unpinned: left to Nomad")
		return p.register(ctx, t, rewrite.Open(t.Job))
	}
	if sameAsks(had, t.Job) {
		job, err := p.view.Pin(t.Job, pins)
		if err != nil {
			return err
		}
		log.Info("run again: its gang keeps its GPUs")
		return p.register(ctx, t, job)
	}
	return p.replaceWhole(ctx, t)
}

// before is the version of the job that its newest member runs; nil where
// Nomad does not know any more.
func (p *Placer) before(ctx context.Context, t *tracked) (*api.Job, error) {
	as, err := p.nomad.JobAllocs(ctx, t.Key)
	if err != nil {
		return nil, err
	}
	versions, err := p.nomad.Versions(ctx, t.Key)
	if err != nil {
		return nil, err
	}
	var newest *api.Job
	for _, a := range as {
		live := slices.ContainsFunc(t.Members, func(m *nomad.Alloc) bool { return m.ID == a.ID })
		if v := versions[*a.Version]; live && v != nil && (newest == nil || *v.Version > *newest.Version) {
			newest = v
		}
	}
	if newest == nil {
		return nil, fmt.Errorf("none of the job's versions that Nomad keeps is what its allocations run")
	}
	return newest, nil
}

// sameAsks says whether two versions want the same members with the same GPUs.
func sameAsks(a, b *api.Job) bool { return slices.Equal(asks(a), asks(b)) }

func asks(job *api.Job) []string {
	var out []string
	for _, g := range rewrite.Author(job).TaskGroups {
		for _, t := range g.Tasks {
			for _, d := range rewrite.GPURequests(t) {
				out = append(out, fmt.Sprintf("%s %d %s %s %d", *g.Name, rewrite.Members(g), t.Name, d.Name, rewrite.GPUs(d)))
			}
		}
	}
	return out
}

// replaceWhole places a running gang that changed its size, on a view in which
// what it holds is free.
func (p *Placer) replaceWhole(ctx context.Context, t *tracked) error {
	v, err := p.state.View(p.viewOptions(p.now), t.Key)
	if err != nil {
		return err
	}
	r, err := v.Request(t.Job)
	if err != nil {
		return err
	}
	d := pal.Explain(v.Cluster, r.Gang, p.cfg.policy())
	pl, ok := pal.Place(v.Cluster, r.Gang, p.cfg.policy())
	if !ok {
		t.lastFail = "the new size does not fit, the old gang runs on: " + d.Reason
		return nil
	}
	job, err := v.Pin(t.Job, v.Pins(r, pl))
	if err != nil {
		return err
	}
	if err := p.register(ctx, t, job); err != nil {
		return err
	}
	p.state.Own(t.Key, v.Pins(r, pl).GPUs())
	rec := Record{
		Namespace: t.Key.Namespace, Job: t.Key.ID, Submitted: t.submitted(), Decided: p.now,
		JobModifyIndex: *t.Job.JobModifyIndex, Mode: r.Mode, Decision: d, Note: "changed its size while running",
	}
	t.record = &rec
	return WriteRecord(ctx, p.nomad, rec)
}
