// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

// fitKind is what gangs have in common that fit the empty cluster alike: what is known of one of
// them holds for all, until [Queue.Changed].
type fitKind struct {
	changes       uint64 // of the Queue, when it was made
	room          room
	needsOutliers answer  // it would not fit without GPUs that are avoided
	leastCost     float64 // see [finder.leastCost]; 0: not known
	models        []atBest
	usable        map[string]int // see [pal.Cluster.Usable]; nil: not known
}

// room is whether there is room for gangs of a kind: if nothing of ours ran, and once all has ended
// that ends.
type room struct{ ever, onceEnded answer }

// answer is yes or no, once it is known.
type answer uint8

const (
	unknown answer = iota
	no
	yes
)

// of is the answer; the first time ask works it out.
func (a *answer) of(ask func() bool) bool {
	if *a == unknown {
		if ask() {
			*a = yes
		} else {
			*a = no
		}
	}
	return *a == yes
}

// gangKinds is what is known of the kinds of gangs that were asked for since Changed.
type gangKinds struct {
	opt     *Options
	kinds   map[signature]*fitKind
	changes uint64             // how often what was known was forgotten
	crowds  map[string]float64 // congestion by model, see crowd
}

// kindOf is the gang's kind. To look it up by signature takes longer than most of what it is
// asked for, so that a gang keeps it, until it is signed again or Changed.
func (ks *gangKinds) kindOf(e *entry) *fitKind {
	if e.kind == nil || e.kind.changes != ks.changes {
		sig := e.empty()
		k := ks.kinds[sig]
		if k == nil {
			k = &fitKind{changes: ks.changes}
			ks.kinds[sig] = k
		}
		e.kind = k
	}
	return e.kind
}

// empty is the signature by which gangs fit the empty cluster or not: without whose they
// are and what they are allowed.
func (e *entry) empty() signature {
	k := e.sig
	k.tenant, k.user, k.localityWait, k.anywhere, k.preemptible, k.migratable, k.admitted, k.array = "", "", 0, false, false, false, 0, ""
	k.least, k.efficiency, k.claimed = 0, 0, false
	return k
}
