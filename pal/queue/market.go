// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"maps"
	"math"

	"github.com/nomad-pal/nomad-pal/pal"
)

// marketMemory is the number of recently requested GPUs over which the prices of GPU models are
// averaged, roughly.
const marketMemory = 256

// crowding weighs the queue in the choice of a GPU model: if waiting gangs request as many GPUs as
// the cluster has, the queue counts this many times the gang's own time. Of 0.5, 1, 2 and 4, 4 gave
// the least average JCT on two of Gavel's virtual clusters at 85 % load if nobody is stopped: 2.81,
// 2.72, 2.62 and 2.61 times a lower bound. docs/results/models.md has all clusters.
const crowding = 4

// price updates the prices of GPU models with a new gang. The price of a model is the mean speed
// that recent gangs have on it, weighted by the GPUs that they request; older gangs fade. A gang
// counts only for the models for which it has a speed. Prices are not saved: after a restart of the
// placer, they come from the gangs that are submitted or restored again.
func (ks *gangKinds) price(g pal.Gang) {
	if len(g.Speeds) == 0 {
		return
	}
	was := ks.opt.Placement.Market.Prices
	weight := min(1, float64(g.GPUs())/marketMemory)
	now := pal.Speeds{}
	maps.Copy(now, was)
	for model, s := range g.Speeds {
		if p, ok := was[model]; ok {
			s = p + weight*(s-p)
		}
		now[model] = s
	}
	ks.opt.Placement.Market.Prices = now
}

// crowd computes the congestion of each GPU model. Each waiting gang that could use the model adds
// crowding × the GPUs that the gang requests, divided by the GPUs of all models that it could use.
// So gangs without a choice only crowd their own model.
func (ks *gangKinds) crowd(live []*bucket, c *pal.Cluster) {
	ks.crowds = nil
	if len(ks.opt.Placement.Market.Prices) == 0 { // nobody uses prices
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

// crowdOf returns what a waiting gang adds to the congestion of each model that it could use.
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

// market returns the market in which a gang chooses among GPU models. Only for a waiting gang it
// sets Own; e may be nil.
func (ks *gangKinds) market(e *entry, c *pal.Cluster) pal.Market {
	m := ks.opt.Placement.Market
	m.Congestion = ks.crowds
	if e != nil && e.bucket != nil && len(ks.crowds) > 0 {
		m.Own, _ = ks.crowdOf(e, c)
	}
	return m
}

// atBest is the least cost of a kind of gang on a model; see bestModel.
type atBest struct {
	model string
	cost  float64
}

// bestModel returns the gang's least total (see [pal.Market]) over all models, and its least cost,
// after all gangs that end have ended; for a service, if none of the Queue's gangs runs. The two
// may be on different models. Both are infinite if the gang would not fit.
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
