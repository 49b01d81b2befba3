// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package profile

import (
	"sort"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
)

// Lookup returns the entry of a GPU for an application class or a timed application. If the profile
// has no such entry, ok is false, and e is the entry of an unmeasured GPU, with no score and the
// last class.
func (p *Profile) Lookup(gpu string, app pal.AppClass) (e Entry, ok bool) {
	i, found := p.byID[gpu]
	if found {
		entries := p.GPUs[i].Entries
		j := sort.Search(len(entries), func(j int) bool { return entries[j].App >= app })
		if j < len(entries) && entries[j].App == app {
			return entries[j], true
		}
	}
	return unmeasured(app), false
}

// unmeasured returns the entry of an unknown GPU. The entry has the last class, so that a job that
// requires a better class does not get the GPU.
func unmeasured(app pal.AppClass) Entry {
	return Entry{App: app, Class: MaxClass, Unmeasured: true}
}

// Group returns the group of a model, application and key.
func (p *Profile) Group(model string, app pal.AppClass, key string) (g Group, ok bool) {
	i, ok := p.byGroup[groupID{model, app, key}]
	if !ok {
		return Group{}, false
	}
	return p.Groups[i], true
}

// Score computes entries, by application, for a GPU that was measured, or measured again, after the
// profile was built. Times are comparable only within one model and key. If the profile has no
// group for this model and key, or the time is impossibly short, the entry is that of an unmeasured
// GPU. A GPU in the profile keeps its class by the same hysteresis as in [Build].
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
	if score < 1./maxRatio { // a wrong time
		return unmeasured(id.app)
	}
	e := Entry{App: id.app, Key: id.key, Time: time, Score: pal.PMScore(score)}
	e.Outlier = score >= p.Options.Outlier
	e.Class, e.Pending = p.edgeClass(g, score, p.classHeld(gpu, g, time, p.Options))
	e.setValue(g)
	return e
}
