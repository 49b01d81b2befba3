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

// Consistent leaves out what [Build] would refuse: samples that say nothing, all
// samples of a GPU that contradict each other, as when a card was moved and the
// node that had it still says so, and those of a GPU with a time that no GPU has. One such GPU must not keep a cluster from
// being calibrated. problems names what was left out, by GPU.
func Consistent(samples []Sample) (kept []Sample, problems []string) {
	type seen struct {
		model string
		keys  map[pal.AppClass]string
	}
	gpus := map[string]seen{}
	bad := map[string]string{}
	for _, s := range samples {
		if err := s.check(); err != nil {
			bad[s.GPU] = fmt.Sprintf("application %q: %v", s.App, err)
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
			bad[s.GPU] = fmt.Sprintf("it is a %q and a %q", g.model, s.Model)
		case ok && key != s.Key:
			bad[s.GPU] = fmt.Sprintf("application %q has the keys %q and %q", s.App, key, s.Key)
		}
		g.keys[s.App] = s.Key
	}
	kept = leftOut(samples, bad)
	leaveOutFar(kept, bad)
	kept = leftOut(kept, bad)
	for gpu, why := range bad {
		problems = append(problems, fmt.Sprintf("GPU %q: %s", gpu, why))
	}
	sort.Strings(problems)
	return kept, problems
}

// leaveOutFar adds the GPUs that have a time which no GPU has. Without one, another
// may stand out: so the groups that lost one are looked at again, and only those,
// as a node can publish times that stand out one after the other.
func leaveOutFar(samples []Sample, bad map[string]string) {
	groups, err := collect(samples)
	if err != nil {
		return // each was checked before
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
			g.readings = slices.DeleteFunc(g.readings, func(r reading) bool { _, drop := bad[r.gpu]; return drop })
			if len(g.readings) == 0 {
				continue
			}
			for gpu, why := range g.far() {
				bad[gpu] = why.Error()
				for _, other := range in[gpu] {
					next[other] = true
				}
			}
		}
		todo = slices.Sorted(maps.Keys(next))
	}
}

func leftOut(samples []Sample, bad map[string]string) (kept []Sample) {
	for _, s := range samples {
		if _, drop := bad[s.GPU]; !drop {
			kept = append(kept, s)
		}
	}
	return kept
}
