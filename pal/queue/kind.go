// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

// fitKind caches properties that all gangs of one kind share. Gangs are of one kind if they fit an
// empty cluster in the same way. The properties are valid until [Queue.Changed].
type fitKind struct {
	changes       uint64 // gangKinds.changes when it was created
	room          room
	needsOutliers answer  // the gang would not fit without outliers; see [finder.needsOutliers]
	picky         answer  // see [finder.picky]
	leastCost     float64 // see [finder.leastCost]; 0: not known
}

// room contains two cached answers for one kind of gang. The field `ever` reports whether the gang
// would fit if none of the Queue's gangs ran. The field onceEnded reports whether it would fit if
// only gangs that never end kept their GPUs.
type room struct{ ever, onceEnded answer }

// answer is yes, no, or not known yet.
type answer uint8

const (
	unknown answer = iota
	no
	yes
)

// of returns the answer. If the answer is not known yet, the method calls `ask` and stores the
// result.
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
	changes uint64 // number of calls of Changed
}

// kindOf returns the gang's kind.
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

// oncePerKind wraps `compute` so that it is called only once for each kind of gang.
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

// empty returns the gang's signature without the parts that do not matter on an empty cluster.
// Examples of such parts are the tenant, the user and whether the gang can be stopped. The result
// is the key of the cache of kinds.
func (e *entry) empty() signature {
	k := e.sig
	k.tenant, k.user, k.anywhere, k.preemptible, k.migratable, k.admitted, k.array = "", "", false, false, false, "", ""
	k.least, k.claimed = 0, false
	return k
}
