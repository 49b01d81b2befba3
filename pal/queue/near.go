// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// place chooses GPUs for the gang. GPUs that are outliers for its class are
// left out unless it could never run on the others.
func (p *pass) place(e *entry) (pal.Placement, bool) {
	bad := p.outliersFor(e.job.Gang.Class.Index(), p.c)
	if len(bad) == 0 || e.gpus > p.c.NumGPUs()-len(bad) {
		return pal.Place(p.c, e.job.Gang, p.opt.Placement)
	}
	var held []int
	for _, u := range bad {
		if p.c.Available(u) {
			p.c.SetTaken(u, true)
			held = append(held, u)
		}
	}
	pl, ok := pal.Place(p.c, e.job.Gang, p.opt.Placement)
	for _, u := range held {
		p.c.SetTaken(u, false)
	}
	return pl, ok
}

// outliers are the GPUs of a cluster that gangs of each class avoid.
type outliers struct {
	of   *pal.Cluster
	gpus [pal.NumClasses][]int
}

func (l *Line) outliersFor(class int, c *pal.Cluster) []int {
	if l.opt.Avoid == 0 {
		return nil
	}
	if l.avoided.of != c {
		l.avoided = outliers{of: c}
		for u := range c.NumGPUs() {
			for k, score := range c.GPU(u).Scores {
				if float64(score) > l.opt.Avoid {
					l.avoided.gpus[k] = append(l.avoided.gpus[k], u)
				}
			}
		}
	}
	return l.avoided.gpus[class]
}

// muchFarther is how much worse than possible a placement's cost must be for a
// gang to wait for a better one.
const muchFarther = 1.2

// waitsForNear says whether the gang should rather wait for GPUs closer
// together than start on the placement. It never waits beyond Pass.
func (p *pass) waitsForNear(e *entry, pl pal.Placement) bool {
	if e.overdue || !p.opt.Near && e.job.NearWait == 0 {
		return false
	}
	best := p.leastCost(e)
	if pl.Cost() < muchFarther*best {
		return false
	}
	limit := e.job.NearWait
	if limit == 0 {
		limit = time.Duration(float64(p.remaining(e, p.now)) * (pl.Cost() - best))
		if p.opt.Migrate && e.job.Migratable {
			limit /= 4
		}
	}
	until := e.waitingSince + limit
	if until > p.now && (p.nearUntil <= p.now || until < p.nearUntil) {
		p.nearUntil = until
	}
	return until > p.now
}

// leastCost is the cost that the gang would have if nothing of ours ran; it is
// worked out once per kind of gang.
func (p *pass) leastCost(e *entry) float64 {
	kind := e.kind()
	c, ok := p.leastCosts[kind]
	if !ok {
		p.withoutRunning(func() {
			pl, _ := p.place(e)
			c = pl.Cost()
		})
		p.leastCosts[kind] = c
	}
	return c
}

// withoutRunning calls f while the GPUs of everything that runs, or was decided
// to, are free.
func (p *pass) withoutRunning(f func()) {
	for _, es := range [][]*entry{p.running, p.started} {
		for _, e := range es {
			defer p.vacate(e)()
		}
	}
	for _, u := range p.kept {
		p.c.SetTaken(u, false)
		defer p.c.SetTaken(u, true)
	}
	f()
}
