// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package profile

import (
	"math"
	"sort"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
)

// Lookup gives the entry of a GPU for an application class or a timed
// application. If the profile holds none, ok is false and the entry is the
// one of an unmeasured GPU: no score, the last class.
func (p *Profile) Lookup(gpu string, app pal.AppClass) (e Entry, ok bool) {
	if i, found := p.byID[gpu]; found {
		entries := p.GPUs[i].Entries
		j := sort.Search(len(entries), func(j int) bool { return entries[j].App >= app })
		if j < len(entries) && entries[j].App == app {
			return entries[j], true
		}
	}
	return unmeasured(app), false
}

// unmeasured is the entry of an unknown GPU. It is in the last class,
// so that no job which asks for better ones gets it.
func unmeasured(app pal.AppClass) Entry {
	return Entry{App: app, Class: MaxClass, Bin: MaxClass, Unmeasured: true}
}

// Group gives the group of a model, application and key.
func (p *Profile) Group(model string, app pal.AppClass, key string) (g Group, ok bool) {
	i, ok := p.byGroup[groupID{model, app, key}]
	if !ok {
		return Group{}, false
	}
	return p.Groups[i], true
}

// Score rates raw times against the profile, by application: for GPUs measured
// after it was built, or again. A time is comparable only under the same model
// and key; without such a group the entry is an unmeasured one. A GPU that the
// profile holds keeps its class by the same hysteresis as in [Build].
func (p *Profile) Score(model string, m attr.Measurement) map[pal.AppClass]Entry {
	out := make(map[pal.AppClass]Entry, len(m.Times))
	for app, time := range m.Times {
		out[app] = p.score(groupID{model, app, m.Key}, m.GPU, time)
	}
	return out
}

func (p *Profile) score(id groupID, gpu string, time float64) Entry {
	i, ok := p.byGroup[id]
	if !ok || !positive(time) {
		return unmeasured(id.app)
	}
	g := &p.Groups[i]
	score := pmScore(time, g.Reference)
	e := Entry{App: id.app, Key: id.key, Time: time, Score: pal.PMScore(score)}
	e.Outlier = score >= p.Options.Outlier
	if len(g.Centers) > 0 {
		e.Bin = nearest(g.Centers, score) + 1
		e.Class = min(e.Bin, MaxClass)
		if e.Outlier {
			e.Class = MaxClass
		}
		e.Value = pal.PMScore(g.Values[e.Bin-1])
	} else {
		e.Class, e.Pending = p.edgeClass(g, score, p.classHeld(gpu, g, time, p.Options))
		e.Bin = e.Class
		e.setValue(g)
	}
	return e
}

// nearest is the index of the center nearest to x, the lower on ties.
func nearest(centers []float64, x float64) int {
	best := 0
	for i, c := range centers {
		if math.Abs(c-x) < math.Abs(centers[best]-x) {
			best = i
		}
	}
	return best
}
