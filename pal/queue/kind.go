// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

// fitKind caches properties shared by all gangs that fit an empty cluster in the same way, until
// [Queue.Changed].
type fitKind struct {
	changes       uint64 // gangKinds.changes when it was created
	room          room
	needsOutliers answer  // it would not fit without outliers
	picky         answer  // see [finder.picky]
	leastCost     float64 // see [finder.leastCost]; 0: not known
	models        []atBest
	usable        map[string]int // see [pal.Cluster.Usable]; nil: not known
}

// room answers whether a kind of gang would fit: ever, if none of the Queue's gangs ran; onceEnded,
// after all gangs that end have ended.
type room struct{ ever, onceEnded answer }

// answer is yes, no, or not known yet.
type answer uint8

const (
	unknown answer = iota
	no
	yes
)

// of returns the answer, and calls ask the first time.
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

// gangKinds caches properties of the kinds of gangs, until Changed.
type gangKinds struct {
	opt     *Options
	kinds   map[signature]*fitKind
	changes uint64             // how often the caches were dropped
	crowds  map[string]float64 // congestion by GPU model; see crowd
}

// kindOf returns the gang's kind. The look-up by signature is slow, so an entry keeps its kind
// until it is signed again or the cluster changes.
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

// oncePerKind returns the function with a cache: it computes once for all gangs of a kind.
func oncePerKind[T any](q *Queue, compute func(*entry) T) func(*entry) T {
	known := map[*fitKind]T{}
	return func(e *entry) T {
		k := q.kindOf(e)
		v, ok := known[k]
		if !ok {
			v = compute(e)
			known[k] = v
		}
		return v
	}
}

// empty returns the gang's signature without the parts that do not matter on an empty cluster, such
// as the owner and the permissions. It is the key of the cache of kinds.
func (e *entry) empty() signature {
	k := e.sig
	k.tenant, k.user, k.localityWait, k.anywhere, k.preemptible, k.migratable, k.admitted, k.array = "", "", 0, false, false, false, 0, ""
	k.least, k.efficiency, k.claimed = 0, 0, false
	return k
}
