// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"maps"
	"math"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// marketMemory is about how many GPUs of gangs that came last make the prices of GPU models.
const marketMemory = 256

// crowding is how much a queue as long as the cluster is wide weighs in the choice of GPU models:
// so many times the gang's own time. Of 0.5, 1, 2 and 4, 4 gave the least average JCT on two of
// Gavel's virtual clusters at 85 % load if nobody is stopped: 2.81, 2.72, 2.62 and 2.61 times a
// lower bound. What it gives on all of them: docs/results/models.md.
const crowding = 4

// price takes a gang that comes into the prices of GPU models: each is the mean speed that the
// gangs that came last have on the model, by the GPUs that they ask for. Older gangs fade. A gang
// counts for the models that its speeds name: those that it may use. The prices are those of a Queue that was told of these gangs, running and waiting ones included.
func (ks *gangKinds) price(g pal.Gang) {
	if len(g.Speeds) == 0 {
		return
	}
	was := ks.opt.Placement.Market.Prices
	weight := min(1, float64(g.GPUs())/marketMemory)
	now := maps.Clone(was)
	if now == nil {
		now = pal.Speeds{}
	}
	for model, s := range g.Speeds {
		if p, ok := was[model]; ok {
			s = p + weight*(s-p)
		}
		now[model] = s
	}
	ks.opt.Placement.Market.Prices = now
}

// crowd works out the congestion of each GPU model: the GPUs that are waited for by gangs that could
// use it, each over the GPUs of all models that the gang could use. So gangs that have no choice
// crowd their own model alone.
func (ks *gangKinds) crowd(live []*bucket, c *pal.Cluster) {
	ks.crowds = nil
	if len(ks.opt.Placement.Market.Prices) == 0 { // nobody asks
		return
	}
	ks.crowds = map[string]float64{}
	for _, b := range live {
		share, usable := ks.crowdOf(b.es[0].e, c)
		for model := range usable {
			ks.crowds[model] += share * float64(len(b.es))
		}
	}
}

// crowdOf is the part of a waiting gang in the congestion of each model that it could use.
func (ks *gangKinds) crowdOf(e *entry, c *pal.Cluster) (share float64, usable map[string]int) {
	k := ks.kindOf(e)
	if k.usable == nil {
		k.usable = c.Usable(e.job.Gang)
	}
	all := 0
	for _, n := range k.usable {
		all += n
	}
	return crowding * float64(e.whole()) / float64(max(1, all)), k.usable
}

// market is how a gang of the Queue chooses among GPU models; nil: one that does not wait.
func (ks *gangKinds) market(e *entry, c *pal.Cluster) pal.Market {
	m := ks.opt.Placement.Market
	m.Congestion = ks.crowds
	if e != nil && e.bucket != nil && len(ks.crowds) > 0 {
		m.Own, _ = ks.crowdOf(e, c)
	}
	return m
}

// atBest is what a kind of gang would cost on a model if all of ours had ended that ends.
type atBest struct {
	model string
	cost  float64
}

// bestModel is the least total (see [pal.Market]) of the gang over all models, and the least cost:
// each may be on a model of its own. Both are infinite where it would not fit.
func (p *finder) bestModel(e *entry) (total, cost float64) {
	k, without := p.kindOf(e), p.withoutEnding
	if e.job.Endless {
		without = p.withoutRunning
	}
	if k.models == nil {
		defer p.withoutWindows()()
		without(func() {
			by := p.opt.Placement
			by.OutlierThreshold = p.opt.OutlierThreshold
			each := pal.FindEach(p.c, e.job.Gang, by)
			if by.OutlierThreshold > 0 && len(each) == 0 {
				by.OutlierThreshold = 0
				each = pal.FindEach(p.c, e.job.Gang, by)
			}
			for _, f := range each {
				k.models = append(k.models, atBest{f.Model, f.Cost()})
			}
		})
	}
	market := p.market(e, p.c)
	total, cost = math.Inf(1), math.Inf(1)
	for _, m := range k.models {
		total, cost = min(total, market.Total(m.model, m.cost)), min(cost, m.cost)
	}
	return total, cost
}

// total is [pal.Market.Total] of a placement of the gang.
func (p *finder) total(e *entry, pl pal.Placement) float64 {
	return p.market(e, p.c).Total(pl.Model, pl.Cost())
}

// offeredFrom is since when a gang is offered GPUs that it does not take: one whose speeds are known
// waits from then on, as in a long queue its own time is soon over, and it would take any model.
func (e *entry) offeredFrom(now time.Duration) time.Duration {
	switch {
	case len(e.job.Gang.Speeds) == 0:
		return e.waitingSince
	case e.offered < 0:
		return now
	}
	return e.offered
}
