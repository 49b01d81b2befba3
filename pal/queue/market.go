// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import "github.com/nomad-pal/nomad-pal/pal"

// marketMemory is about how many GPUs of gangs that came last make the prices of GPU models.
const marketMemory = 256

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
