// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"maps"
	"math"

	"github.com/nomad-pal/nomad-pal/pal"
)

// marketMemory is roughly the number of requested GPUs over which the price of a model is averaged.
const marketMemory = 256

// crowding is the weight of the queue in the choice of a GPU model. If waiting gangs request as
// many GPUs as the cluster has, the queue weighs `crowding` times as much as the gang's own time.
// The value was chosen on two of Gavel's virtual clusters at 85 % load without preemption. On the
// two clusters, the average JCT was 2.81, 2.72, 2.62 and 2.61 times a lower bound if crowding was
// 0.5, 1, 2 and 4.
const crowding = 4

// price updates the prices of GPU models when a gang is submitted or restored. The price of a model
// is the mean speed of recent gangs on the model, weighted by the GPUs that they request. The older
// a gang, the smaller its weight. A gang counts only for the models for which it has a speed.
// Prices are not saved.
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

// crowd computes the congestion of each GPU model. Each waiting gang that can use the model adds
// crowding × R / U to the congestion. R is the number of GPUs that the gang requests, and U is the
// number of GPUs that it can use, over all models.
func (ks *gangKinds) crowd(live []*bucket, c *pal.Cluster) {
	ks.crowds = nil
	if len(ks.opt.Placement.Market.Prices) == 0 { // no gang has speeds, so no gang uses prices
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

// crowdOf returns how much a waiting gang adds to the congestion of each model that it can use
// (share). For each of these models, it also returns the number of usable GPUs.
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

// market returns the market in which a gang chooses among GPU models. Own is set only for a waiting
// gang. The entry e can be nil.
func (ks *gangKinds) market(e *entry, c *pal.Cluster) pal.Market {
	m := ks.opt.Placement.Market
	m.Congestion = ks.crowds
	if e != nil && e.bucket != nil && len(ks.crowds) > 0 {
		m.Own, _ = ks.crowdOf(e, c)
	}
	return m
}

// atBest is the least cost that gangs of one kind have on one GPU model; see bestModel.
type atBest struct {
	model string
	cost  float64
}

// bestModel returns the gang's least total (see [pal.Market]) and the gang's least cost, over all
// models. Only gangs that never end are assumed to run. For a service, no gang of the Queue is
// assumed to run. Both results are infinite if the gang would not fit.
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

// total returns [pal.Market.Total] of a placement of the gang.
func (p *finder) total(e *entry, pl pal.Placement) float64 {
	return p.market(e, p.c).Total(pl.Model, pl.Cost())
}
