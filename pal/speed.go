// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Speeds are how fast one application runs on each GPU model, by the name of the device group
// (vendor/type/name). They have no unit: 1 is the application's fastest model, 0.5 takes twice as
// long. PM scores tell one GPU from another of its model, and speeds one model from another. Empty:
// nothing is known, and all models count as equally fast.
//
// Speeds are replaced and never changed, so that gangs and placements may share them.
type Speeds map[string]float64

// SpeedsOf are the speeds by rates: work a second, in the same unit for all models. Run times come
// in as their inverse. Rates that are not positive are left out.
func SpeedsOf(rates map[string]float64) Speeds {
	best := 0.0
	for _, r := range rates {
		best = max(best, r)
	}
	s := make(Speeds, len(rates))
	for model, r := range rates {
		if r > 0 {
			s[model] = r / best
		}
	}
	return s
}

// On is the speed on a model; 0 where nothing is known of any. A model of which nothing is known
// counts as the slowest that is known: it is used where nothing better is free.
func (s Speeds) On(model string) float64 {
	if v, ok := s[model]; ok {
		return v
	}
	slowest := 0.0
	for _, v := range s {
		if slowest == 0 || v < slowest {
			slowest = v
		}
	}
	return slowest
}

// text names the speeds in order; "" for none.
func (s Speeds) text() string {
	var b strings.Builder
	for _, model := range slices.Sorted(maps.Keys(s)) {
		fmt.Fprintf(&b, "@%s=%v;", model, s[model])
	}
	return b.String()
}

// Market is what GPUs of each model are worth, for gangs whose speeds are known.
type Market struct {
	// Prices are what an hour of a GPU costs, by model: the mean speed that the last gangs have
	// there. A gang that gains less by a fast model than the others do finds it dear. A model
	// without a price costs 1.
	Prices Speeds
	// Tolerance is how much longer than on the model where it ends first a gang may take on a
	// cheaper one: 0.1 is 10 %.
	Tolerance float64
}

// price of running on the placement until the end, per unit of work.
func (m Market) price(model string, cost float64) float64 {
	if p, ok := m.Prices[model]; ok {
		return p * cost
	}
	return cost
}

// choose is the placement that the gang takes of those found, at most one a model: among those
// that end within the tolerance of the first end, the cheapest; on ties the one that ends first,
// then the one whose model comes first in the cluster.
func (m Market) choose(c *Cluster, found []Found) Found {
	first := found[0].Cost()
	for i := range found {
		first = min(first, found[i].Cost())
	}
	best, least := -1, 0.0
	for i := range found {
		f := &found[i]
		if f.Cost() > first*(1+m.Tolerance) {
			continue
		}
		price := m.price(c.modelName(f.model), f.Cost())
		if best < 0 || price < least || price == least && f.Cost() < found[best].Cost() {
			best, least = i, price
		}
	}
	return found[best]
}

// modelName is the name of a model; "" for [anyModel].
func (c *Cluster) modelName(m int) string {
	if m == anyModel {
		return ""
	}
	return c.models[m].name
}

// speed is that of the slowest model that the members are on; 0 where nothing is known.
func (s *search) speed(members []Member) (slowest float64) {
	if len(s.g.Speeds) == 0 {
		return 0
	}
	for i, m := range members {
		if v := s.g.Speeds.On(s.c.models[s.c.groups[m.Group].model].name); i == 0 || v < slowest {
			slowest = v
		}
	}
	return slowest
}
