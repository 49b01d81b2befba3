// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package profile

import (
	"fmt"
	"maps"
	"slices"
	"sort"

	"github.com/nomad-pal/nomad-pal/pal"
)

// Consistent removes the GPUs that [Build] would refuse: GPUs with malformed or contradictory
// samples, or with an impossible time. The result `problems` lists the removed GPUs, with the
// reasons.
func Consistent(samples []Sample) (kept []Sample, problems []string) {
	type seen struct {
		model string
		keys  map[pal.AppClass]string
	}
	gpus := map[string]seen{}
	problem := map[string]string{}
	for _, s := range samples {
		if err := s.check(); err != nil {
			problem[s.GPU] = fmt.Sprintf("application %q: %v", s.App, err)
			continue
		}
		g, ok := gpus[s.GPU]
		if !ok {
			g = seen{s.Model, make(map[pal.AppClass]string, pal.NumClasses)}
			gpus[s.GPU] = g
		}
		key, ok := g.keys[s.App]
		switch {
		case g.model != s.Model:
			problem[s.GPU] = fmt.Sprintf("it has two models, %q and %q", g.model, s.Model)
		case ok && key != s.Key:
			problem[s.GPU] = fmt.Sprintf("application %q has the keys %q and %q", s.App, key, s.Key)
		}
		g.keys[s.App] = s.Key
	}
	kept = withoutGPUs(samples, problem)
	dropImplausible(kept, problem)
	kept = withoutGPUs(kept, problem)
	for gpu, why := range problem {
		problems = append(problems, fmt.Sprintf("GPU %q: %s", gpu, why))
	}
	sort.Strings(problems)
	return kept, problems
}

// dropImplausible adds the GPUs with an impossible time to `problem`. Dropping a GPU moves the
// medians of its groups, so dropImplausible checks these groups again.
func dropImplausible(samples []Sample, problem map[string]string) {
	groups, err := groupSamples(samples)
	if err != nil {
		return // not possible: the caller has checked each sample
	}
	in := map[string][]int{} // GPU → its groups
	for i, g := range groups {
		for _, r := range g.readings {
			in[r.gpu] = append(in[r.gpu], i)
		}
	}
	todo := make([]int, len(groups))
	for i := range todo {
		todo[i] = i
	}
	for len(todo) > 0 {
		next := map[int]bool{}
		for _, i := range todo {
			g := &groups[i]
			g.readings = slices.DeleteFunc(g.readings, func(r reading) bool { _, drop := problem[r.gpu]; return drop })
			if len(g.readings) == 0 {
				continue
			}
			for gpu, why := range g.implausible() {
				problem[gpu] = why.Error()
				for _, other := range in[gpu] {
					next[other] = true
				}
			}
		}
		todo = slices.Sorted(maps.Keys(next))
	}
}

// withoutGPUs returns the samples of GPUs without a problem.
func withoutGPUs(samples []Sample, problem map[string]string) (kept []Sample) {
	if len(problem) == 0 {
		return samples
	}
	for _, s := range samples {
		_, drop := problem[s.GPU]
		if !drop {
			kept = append(kept, s)
		}
	}
	return kept
}
