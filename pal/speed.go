// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Speeds are how fast one application runs on each GPU model, by the name of the device group
// (vendor/type/name). The application's fastest model has speed 1. On a model with speed 0.5, the
// work takes twice as long. PM scores compare GPUs of one model; speeds compare models. If Speeds
// is empty, all models count as equally fast.
//
// Speeds are replaced, but never changed in place, so that gangs and placements can share them.
type Speeds map[string]float64

// SpeedsOf computes speeds from rates: work per second, in the same unit for all models. To compute
// speeds from run times, pass the inverse of each run time. SpeedsOf ignores rates that are not
// positive.
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

// ParseSpeeds reads the speeds that a job's author wrote: "NVIDIA A100-SXM4-80GB=1, Tesla T4=0.2",
// in any unit. The name of a model is the last part of the device's name in Nomad.
func ParseSpeeds(s string) (map[string]float64, error) {
	said := map[string]float64{}
	for part := range strings.SplitSeq(s, ",") {
		model, value, ok := strings.Cut(part, "=")
		model = strings.TrimSpace(model)
		speed, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		switch {
		case !ok || model == "":
			return nil, fmt.Errorf("%q is not MODEL=SPEED; example: NVIDIA A100-SXM4-80GB=1, Tesla T4=0.2", strings.TrimSpace(part))
		case err != nil || !(speed > 0) || math.IsInf(speed, 0) || speed < 1e-6 || speed > 1e6:
			return nil, fmt.Errorf("%s is not a valid speed of %s: speeds are numbers from 0.000001 to 1000000, such as 0.2", strings.TrimSpace(value), model)
		}
		_, twice := said[model]
		if twice {
			return nil, fmt.Errorf("%s is listed twice", model)
		}
		said[model] = speed
	}
	if len(said) < 2 {
		return nil, fmt.Errorf("only one model is named, but speeds compare at least two models")
	}
	return said, nil
}

// On returns the speed on a model; 0 if no speed is known. A model without a known speed counts as
// the slowest known model, so the gang uses it only if nothing better is free.
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

// text lists the speeds in the order of the models' names; "" if there are none.
func (s Speeds) text() string {
	var b strings.Builder
	for _, model := range slices.Sorted(maps.Keys(s)) {
		fmt.Fprintf(&b, "@%s=%v;", model, s[model])
	}
	return b.String()
}

// Usable returns the number of GPUs of each model, free or not, that the gang can use. Unless the
// gang requests several models at once, models with too few GPUs for the whole gang are left out.
func (c *Cluster) Usable(g Gang) map[string]int {
	models := slices.Clone(modelsFor(c, g))
	several := len(models) == 1 && models[0] == anyModel
	usable := map[string]int{}
	for i := range c.groups {
		m := int(c.groups[i].model)
		if (several || slices.Contains(models, m)) && g.MayUse(i) {
			usable[c.models[m].name] += int(c.size[i])
		}
	}
	if !several {
		maps.DeleteFunc(usable, func(_ string, n int) bool { return n < g.GPUs() })
	}
	return usable
}

// onModels lists what the gang would get on each model whose speed is known.
func (f *Found) onModels(g Gang) (all []OnModel) {
	if len(g.Speeds) < 2 {
		return nil
	}
	found := map[string]Found{}
	for _, of := range f.each { // no placement exists on the other models
		found[of.Model] = of
	}
	for model, speed := range g.Speeds {
		m := OnModel{Device: model, Speed: speed}
		if f, ok := found[model]; ok {
			m.Fits, m.Cost = true, f.Cost()
		}
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b OnModel) int {
		return cmp.Or(cmp.Compare(b.Speed, a.Speed), cmp.Compare(a.Device, b.Device))
	})
	return all
}

// placedAt sets the choice, and marks the GPU models of the choice.
func (d *Decision) placedAt(choice *Choice) {
	d.Placed, d.Chosen = true, choice
	for i := range d.Models {
		m := &d.Models[i]
		m.Chosen = slices.ContainsFunc(d.Chosen.Members, func(on ChosenMember) bool { return on.Device == m.Device })
	}
}
