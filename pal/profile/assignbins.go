// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package profile

import (
	"slices"

	"github.com/nomad-pal/nomad-pal/pal"
)

// classify puts the scores of a group into classes by the edges, sets the values of the classes, and
// returns an entry for each reading. Outliers share the last class, but each has a value of its own,
// so that a gang can avoid a very slow GPU without avoiding the whole class.
func (p *Profile) classify(g *Group, rs []reading, scores []float64, prev *Profile) []Entry {
	entries := make([]Entry, len(rs))
	var binned []float64
	var rank []int
	for i, r := range rs {
		e := &entries[i]
		*e = Entry{App: g.App, Key: g.Key, Time: r.time, Score: pal.PMScore(scores[i]), Outlier: scores[i] >= p.Options.Outlier}
		e.Class, e.Pending = p.edgeClass(g, scores[i], prev.classHeld(r.gpu, g, r.time, p.Options))
		if !e.Outlier {
			binned, rank = append(binned, scores[i]), append(rank, e.Class-1)
		}
	}
	g.Values = binMedians(binned, rank, p.classEdges())
	for i := range entries {
		entries[i].setValue(g)
	}
	return entries
}

// setValue sets the value of an entry that has its class.
func (e *Entry) setValue(g *Group) {
	e.Value = pal.PMScore(g.Values[e.Class-1])
	if e.Outlier {
		e.Value = max(e.Value, e.Score)
	}
}

// classEdges returns the edges, padded so that the last class is MaxClass. The additional edges
// begin at the outlier threshold, so the additional classes contain only outliers.
func (p *Profile) classEdges() []float64 {
	edges := append([]float64(nil), p.Options.Edges...)
	for len(edges) < MaxClass-1 {
		edges = append(edges, p.Options.Outlier*(1+0.1*float64(len(edges)-len(p.Options.Edges))))
	}
	return edges
}

// heldClass is the class that a GPU had before this session. The hysteresis depends on this class.
type heldClass struct {
	class, pending int
	// again is set if the class was already computed from the same measured time, so that this is
	// not a new session.
	again bool
}

// classHeld returns the GPU's class in the previous profile p, or the zero value if that class
// cannot be compared with new classes.
func (p *Profile) classHeld(gpu string, g *Group, time float64, o Options) heldClass {
	if p == nil || !slices.Equal(p.Options.Edges, o.Edges) {
		return heldClass{}
	}
	e, ok := p.Lookup(gpu, g.App)
	if !ok {
		return heldClass{}
	}
	if i, ok := p.byGroup[groupID{g.Model, g.App, e.Key}]; !ok || p.Groups[i].SingleClass != g.SingleClass || p.Groups[i].Provisional != g.Provisional {
		return heldClass{}
	}
	return heldClass{class: e.Class, pending: e.Pending, again: e.Time == time && e.Key == g.Key}
}

// edgeClass returns the class of a GPU with this score in the group. A single score outside the
// GPU's present class does not change the class. If the score is beyond the edge by more than the
// hysteresis, the new class is pending. If the scores of two sessions are beyond the hysteresis in
// the same direction, the class changes. Outliers and clearly slow GPUs change class at once.
func (p *Profile) edgeClass(g *Group, score float64, h heldClass) (class, pending int) {
	o := p.Options
	raw := edgeRank(score, o.Edges) + 1
	switch {
	case score >= o.Outlier:
		return MaxClass, 0
	case g.SingleClass && score <= 1+g.noiseFloor():
		return 1, 0
	case g.Provisional:
		raw = min(raw, provisionalMax)
	case score > immediate && raw == len(o.Edges)+1:
		return raw, 0
	}
	switch {
	case h.class == 0 || raw == h.class:
		return raw, 0
	case h.again:
		return h.class, h.pending
	case !beyond(score, h.class, o):
		return h.class, 0
	case h.pending != 0 && (raw > h.class) == (h.pending > h.class):
		return raw, 0
	default:
		return h.class, raw
	}
}

// beyond reports whether the score is outside the class by more than the hysteresis.
func beyond(score float64, class int, o Options) bool {
	if class >= 2 && class-2 < len(o.Edges) && score < o.Edges[class-2]-o.Hysteresis {
		return true
	}
	return class-1 < len(o.Edges) && score > o.Edges[class-1]+o.Hysteresis
}
