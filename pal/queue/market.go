// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
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
// gangs that came last have on the model, by the GPUs that they ask for. Older gangs fade. The
// prices are those of a Queue that was told of these gangs, running and waiting ones included.
func (q *Queue) price(g pal.Gang) {
	if len(g.Speeds) == 0 {
		return
	}
	was := q.opt.Placement.Market.Prices
	weight := min(1, float64(g.GPUs())/marketMemory)
	if was == nil {
		weight = 1
	}
	now := make(pal.Speeds, len(was))
	for model, p := range was {
		now[model] = p + weight*(g.Speeds.On(model)-p)
	}
	for model, s := range g.Speeds {
		if _, ok := was[model]; !ok {
			now[model] = s
		}
	}
	q.opt.Placement.Market.Prices = now
}

// crowd counts the GPUs that are waited for, over those of the cluster.
func (q *Queue) crowd(c *pal.Cluster) {
	waited := 0
	for _, b := range q.live {
		waited += b.gpus * len(b.es)
	}
	q.waited, q.among = waited, c.NumGPUs()
}

// market is how a gang chooses among GPU models that waits for so many GPUs itself; 0: it does not.
func (q *Queue) market(own int) pal.Market {
	m := q.opt.Placement.Market
	if len(m.Prices) > 0 && q.among > 0 {
		m.Congestion = crowding * float64(max(0, q.waited-own)) / float64(q.among)
	}
	return m
}

// marketOf is the market for a gang of the Queue.
func (q *Queue) marketOf(e *entry) pal.Market {
	if e.state == waiting {
		return q.market(e.whole())
	}
	return q.market(0)
}

// atBest is what a kind of gang would cost on a model if all of ours had ended that ends.
type atBest struct {
	model string
	cost  float64
}

// bestModel is the least total (see [pal.Market]) of the gang over all models, and the least cost:
// each may be on a model of its own. Both are infinite where it would not fit.
func (p *pass) bestModel(e *entry) (total, cost float64) {
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
				k.models = append(k.models, atBest{f.Model(), f.Cost()})
			}
		})
	}
	market := p.marketOf(e)
	total, cost = math.Inf(1), math.Inf(1)
	for _, m := range k.models {
		total, cost = min(total, market.Total(m.model, m.cost)), min(cost, m.cost)
	}
	return total, cost
}

// total is [pal.Market.Total] of a placement of the gang.
func (p *pass) total(e *entry, pl pal.Placement) float64 {
	_, model := p.c.Group(pl.Members[0].Group)
	return p.marketOf(e).Total(model, pl.Cost())
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
