// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import (
	"iter"
	"maps"
	"math/bits"
	"slices"

	"github.com/nomad-pal/nomad-pal/pal/reason"
)

// Explain is [Place] with reasons: the candidates, the entries of the L×V matrix that were walked,
// the choice, and the choice of the packed policy. If the gang does not fit, Explain returns the
// reason.
func Explain(c *Cluster, g Gang, p Policy) Decision {
	f, ok := Find(c, g, p)
	d := f.reasons(c, g, p, ok)
	if ok {
		d.placedAt(Describe(c, g, f.Placement))
	}
	return d
}

// ExplainFound explains an existing placement. The result `best` reports whether the policy would
// choose the same GPUs now.
func ExplainFound(c *Cluster, g Gang, p Policy, f Found) (d Decision, best bool) {
	again, ok := Find(c, g, p)
	d = again.reasons(c, g, p, ok)
	d.Reason = reason.Reason{}
	d.placedAt(Describe(c, g, f.Placement))
	return d, ok && again.SameGPUs(f.Placement)
}

// reasons returns the explanation without the choice. ok reports whether the gang fits. If the gang
// does not fit under PAL, Walk contains the whole matrix of the first suitable model.
func (f *Found) reasons(c *Cluster, g Gang, p Policy, ok bool) Decision {
	d := Decision{Gang: g.ID, Class: g.Class, Policy: string(p.Name), Demand: g.GPUs(), Replicas: g.Replicas, Candidates: ask(c, g).candidates(), Models: f.onModels(g)}
	if p.OutlierThreshold > 0 {
		d.Candidates.Outliers = c.FreeOutliersFor(g, p.OutlierThreshold)
		d.Candidates.Free -= d.Candidates.Outliers
	}
	if !ok {
		d.Impossible, d.Reason = ask(c, g).whyNot(p, d.Candidates)
		s := newSearch(c, g, p, modelsFor(c, g)[0])
		if p.Name == PAL && s.n > 1 && !g.Replicas {
			d.Walk, d.WalkOmitted = s.entriesTo(len(s.lvMatrix()))
		}
		return d
	}
	within := g
	if f.prefer >= 0 {
		within = g.preferring(f.prefer)
	}
	s := newSearch(c, within, p, f.model)
	d.Walk, d.WalkOmitted = s.entriesTo(f.trail.walked)
	for i := range d.Walk {
		e := &d.Walk[i]
		e.Taken = i == len(d.Walk)-1
		e.PassedOver = !e.Taken && e.Bin >= f.trail.roomier[e.Tier]
	}
	if packed, ok := s.packedInstead(g); ok {
		d.Packed = Describe(c, g, packed)
	}
	return d
}

// packedInstead returns the placement that the packed policy would choose.
func (s *search) packedInstead(g Gang) (Placement, bool) {
	policy := Policy{Name: Packed}
	if g.preferences() > 0 || g.Sharing != nil || len(modelsFor(s.c, g)) > 1 {
		g.Replicas = false // Place would spread replicas
		pl, ok := Place(s.c, g, policy)
		if !ok {
			return pl, false
		}
		return Predict(s.c, g, pl.Members), true
	}
	packed := newSearch(s.c, g, policy, s.model)
	packed.listed = s.listed
	members := packed.place()
	if members == nil {
		return Placement{}, false
	}
	return Predict(s.c, g, members), true
}

// SameGPUs reports whether two placements hold the same GPUs.
func (p Placement) SameGPUs(o Placement) bool {
	a, b := p.GPUs(), o.GPUs()
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

// Describe returns a placement with names instead of indices.
func Describe(c *Cluster, g Gang, pl Placement) *Choice {
	ch := &Choice{Tier: pl.Tier, PMScore: pl.PMScore, Penalty: pl.Penalty, Cost: pl.Cost()}
	k := g.Class.Index()
	ch.Members = slices.Grow(ch.Members, len(pl.Members))
	nodes := make([]int32, 0, len(pl.Members))
	for _, m := range pl.Members {
		gs := &c.groups[m.Group]
		n := &c.nodes[gs.node]
		nodes = append(nodes, gs.node)
		cm := ChosenMember{Group: g.MemberSets[m.MemberSet].Name, Node: n.Name, NodeID: n.ID, Device: c.models[gs.model].name, GPUs: slices.Grow([]ChosenGPU(nil), len(m.GPUs))}
		if gs.shared {
			cm.Neighbours = ask(c, g).neighbours(int32(m.Group))
		}
		for _, u := range m.GPUs {
			cm.GPUs = append(cm.GPUs, ChosenGPU{c.gpus[u].ID, c.gpus[u].Scores[k], c.gpus[u].Classes[k], c.gpus[u].Degraded})
		}
		ch.Members = append(ch.Members, cm)
	}
	slices.Sort(nodes)
	ch.Nodes = len(slices.Compact(nodes))
	return ch
}

// entriesTo returns the first n entries of the matrix, each with its number of free GPUs. If there
// are more than [walkShown] entries, entriesTo omits those in the middle.
func (s *search) entriesTo(n int) (es []Entry, omitted int) {
	if n == 0 {
		return nil, 0
	}
	omitted = max(0, n-walkShown)
	free := s.freeUpTo()
	es = make([]Entry, 0, n-omitted)
	for i, e := range s.lvMatrix()[:n] {
		if omitted > 0 && i >= walkShown/2 && i < n-walkShown/2 {
			continue
		}
		in := s.scoresIn(e.v)
		es = append(es, Entry{Bin: s.values[e.v], Lowest: in.lowest, Highest: in.highest, Tier: e.tier, Product: e.product, Free: free[e.v]})
	}
	return es, omitted
}

// scoresIn returns the range of PM scores in a bin, over all models searched.
func (s *search) scoresIn(v int) (all scores) {
	for m, to := range s.toValue {
		if b, ok := slices.BinarySearch(to, v); ok {
			of := s.c.models[m].scores[s.k][b]
			all = all.with(of.lowest).with(of.highest)
		}
	}
	return all
}

// freeUpTo counts, for each bin value, the available GPUs up to this value that can serve at least
// one member set.
func (s *search) freeUpTo() []int {
	free := zeros(&s.c.scratch.gpusUpTo, len(s.values))
	for _, g := range s.groups() {
		below := 0
		for b, n := range s.counts(g) {
			free[s.toValue[s.c.groups[g].model][b]] += int(n) - below
			below = int(n)
		}
	}
	for v := 1; v < len(free); v++ {
		free[v] += free[v-1]
	}
	return free
}

// FreeFor counts the free GPUs on which at least one member could run.
func FreeFor(c *Cluster, g Gang) (n int) {
	for gi := range c.groups {
		if g.MayUse(gi) {
			n += int(c.avail[gi])
		}
	}
	return n
}

// MayUse reports whether at least one member could run on GPUs of the group.
func (g *Gang) MayUse(group int) bool {
	for i := range g.MemberSets {
		may := g.MemberSets[i].Eligible
		if may == nil || may[group] {
			return true
		}
	}
	return false
}

// candidates counts the cluster's GPUs: those that can be chosen, and the others by the reason why
// they cannot be chosen. GPUs that are neither free nor out of use count as allocated.
func (r *request) candidates() Candidates {
	n := Candidates{Total: len(r.c.gpus)}
	for gi := range r.c.groups {
		if r.g.MayUse(gi) {
			n.Free += int(r.c.avail[gi])
		} else {
			n.Ineligible += int(r.c.size[gi])
		}
	}
	for w, word := range r.c.unhealthy {
		for ; word != 0; word &= word - 1 {
			gi := 64*w + bits.TrailingZeros64(word)
			if r.g.MayUse(gi) {
				n.add(r.c.gpus[r.c.groups[gi].first:][:r.c.groups[gi].n])
			}
		}
	}
	n.Allocated = n.Total - n.Ineligible - n.Free - n.Unhealthy - n.Quarantined - n.Unavailable
	return n
}

// add counts the GPUs that are out of use. A GPU that is out of use for several reasons counts
// under the reason that operators must fix first.
func (n *Candidates) add(gpus []gpuState) {
	for i := range gpus {
		u := &gpus[i].Health
		switch {
		case u.Unhealthy:
			n.Unhealthy++
		case u.Quarantined:
			n.Quarantined++
		case u.Unavailable:
			n.Unavailable++
		}
	}
}

// Used returns the numbers of GPUs that match the gang's request but cannot be chosen.
func (n Candidates) Used() *reason.Used {
	return &reason.Used{Allocated: n.Allocated, Unhealthy: n.Unhealthy, Quarantined: n.Quarantined, Unavailable: n.Unavailable, Outliers: n.Outliers}
}

// FreeOutliersFor counts the free GPUs that the gang could use if their PM scores were lower.
func (c *Cluster) FreeOutliersFor(g Gang, above float64) (n int) {
	c.countOutliers(above)
	r := ask(c, g)
	k := g.class()
	if c.outliers.free[k] == 0 {
		return 0
	}
	for gi := range c.groups {
		if g.MayUse(gi) {
			n += int(c.avail[gi]) - r.freeInliers(gi, k)
		}
	}
	return n
}

// freeInliers counts the available GPUs of a group that are not outliers for the class, by the
// latest threshold.
func (r *request) freeInliers(group, class int) int {
	from := r.c.bins.inliers[class][group]
	if from == r.c.bins.offset[class][group] {
		return int(r.c.avail[group])
	}
	bins := r.c.bins.offset[class][group+1] - r.c.bins.offset[class][group]
	return int(r.c.bins.upTo[class][from+bins-1])
}

// WhyNot returns why the gang does not fit now. impossible is true if the gang would not fit even
// if all GPUs were free and healthy.
func WhyNot(c *Cluster, g Gang) (impossible bool, why reason.Reason) {
	return ask(c, g).whyNot(Policy{}, ask(c, g).candidates())
}

// CountGPUs writes a number of GPUs as text: "1 GPU", "2 GPUs".
func CountGPUs(n int) string { return reason.Count(n) }

// whyNot returns the first reason that applies. Reasons that waiting cannot remove come first, and
// temporary reasons come last.
func (r *request) whyNot(p Policy, n Candidates) (impossible bool, why reason.Reason) {
	match := n.Total - n.Ineligible
	demand := r.g.GPUs()
	why = reason.Reason{Needs: demand, Match: match}
	switch {
	case demand == 0:
		return true, reason.Reason{Kind: reason.NoGPUs}
	case match < demand:
		why.Kind = reason.TooFew
		return true, why
	}
	large := r.tooLarge()
	if !large.IsZero() {
		if r.g.StaysApart() && ask(r.c, r.g.together()).tooLarge().IsZero() {
			large = large.Over(reason.Reason{Kind: reason.MembersApart})
		}
		limit := r.g.limitOf(large.Group)
		if !limit.IsZero() && ask(r.c, r.g.unlimited()).tooLarge().IsZero() {
			large = large.Over(limit)
		}
		return true, large
	}
	why.Free, why.Used = n.Free, n.Used()
	switch {
	case n.Free < demand:
		why.Kind = reason.GPUs
	case r.refused(p):
		why.Kind = reason.Refused
	case r.g.MaxTier != 0:
		why.Kind, why.Tier = reason.Apart, r.g.MaxTier.String()
	default:
		why.Kind = reason.Scattered
		why = why.Over(Unusable(r.c, r.g))
	}
	return false, why
}

// Unusable returns why the gang cannot use the free GPUs although enough are free: the GPUs are of
// several models, members of the gang must not share a GPU, or the gang and its neighbours on shared
// GPUs do not accept each other. If the cause is another, Unusable returns the zero reason.
func Unusable(c *Cluster, g Gang) reason.Reason {
	r := ask(c, g)
	demand := g.GPUs()
	most := r.mostOfOneModel()
	if most < demand {
		return reason.Reason{Kind: reason.SeveralModels, Free: most}
	}
	limit := r.limited()
	if !limit.IsZero() {
		return limit
	}
	switch {
	case g.Sharing == nil || r.takesFree() >= demand:
		return reason.Reason{}
	case ask(c, g.together()).takesFree() >= demand:
		return reason.Reason{Kind: reason.MembersApart}
	}
	return reason.Reason{Kind: reason.Neighbours}
}

// limited returns the limit on the members per node because of which a member set does not fit on
// the free GPUs. If no limit is the cause, limited returns the zero reason.
func (r *request) limited() reason.Reason {
	for _, set := range r.g.MemberSets {
		if set.Need.PerNode == 0 {
			continue
		}
		within, free := 0, 0
		for gi := range r.c.groups {
			if set.Eligible == nil || set.Eligible[gi] {
				n := r.mostOf(int32(gi), int(r.c.avail[gi]))
				within, free = within+set.in(n), free+n
			}
		}
		if within < set.Members && free >= set.Members*set.GPUs {
			return r.g.limitOf(set.Name)
		}
	}
	return reason.Reason{}
}

// limitOf returns what limits the members per node of a set, or the zero reason.
func (g *Gang) limitOf(set string) reason.Reason {
	i := slices.IndexFunc(g.MemberSets, func(s MemberSet) bool { return s.Name == set && s.Limit != "" })
	if i < 0 {
		return reason.Reason{}
	}
	return reason.Reason{Kind: reason.PerNode, Cause: g.MemberSets[i].Limit, Members: g.MemberSets[i].Need.PerNode}
}

// unlimited returns the gang without limits on the members per node.
func (g *Gang) unlimited() Gang {
	free := *g
	free.MemberSets = slices.Clone(g.MemberSets)
	for i := range free.MemberSets {
		free.MemberSets[i].Need.PerNode = 0
	}
	return free
}

// mostOfOneModel returns the largest number of free GPUs of one model that the gang could use. For
// a gang that may use several models, it returns all free GPUs that the gang could use.
func (r *request) mostOfOneModel() int {
	if r.g.Replicas || len(r.g.MemberSets) > 1 {
		return FreeFor(r.c, r.g)
	}
	free := make([]int, len(r.c.models))
	for gi := range r.c.groups {
		if r.g.MayUse(gi) {
			free[r.c.groups[gi].model] += int(r.c.avail[gi])
		}
	}
	return slices.Max(free)
}

// tooLarge returns why the gang would not fit into the cluster even if all GPUs were free and
// healthy. If the gang would fit, tooLarge returns the zero reason.
func (r *request) tooLarge() reason.Reason {
	return r.tooWide().Or(r.tooFar())
}

// tooWide returns the reason for the first member set for which even an idle, healthy cluster has
// too few GPUs. If every set has enough GPUs, tooWide returns the zero reason. tooWide checks each
// member set alone.
func (r *request) tooWide() reason.Reason {
	for i := range r.g.MemberSets {
		set, capacity := &r.g.MemberSets[i], make([]int, len(r.c.models))
		for gi := range r.c.groups {
			gs := &r.c.groups[gi]
			if set.Eligible == nil || set.Eligible[gi] {
				capacity[gs.model] += set.in(r.mostOf(int32(gi), int(gs.n)))
			}
		}
		most, kind := slices.Max(capacity), reason.TooWide
		if r.g.Replicas { // replicas can mix models
			most, kind = 0, reason.TooMany
			for _, n := range capacity {
				most += n
			}
		}
		if most == 0 && r.g.Sharing != nil {
			kind = reason.ManyParts
		}
		if most < set.Members {
			return reason.Reason{Kind: kind, Group: set.Name, Members: set.Members, Each: set.GPUs, Room: most}
		}
	}
	return reason.Reason{}
}

// The method `in` returns how many members of the set fit on this number of GPUs of one device
// group.
func (s *MemberSet) in(gpus int) int {
	if s.GPUs == 0 {
		return 0
	}
	n := gpus / s.GPUs
	if s.Need.PerNode > 0 {
		n = min(n, s.Need.PerNode)
	}
	return n
}

// tooFar returns the reason for the first member set that fits nowhere within the gang's locality
// limit, even if all GPUs are free and healthy. If every set fits, tooFar returns the zero reason.
// tooFar checks each set alone, as tooWide does.
func (r *request) tooFar() reason.Reason {
	if r.g.MaxTier == 0 {
		return reason.Reason{}
	}
	for _, set := range r.g.MemberSets {
		most := r.mostWithin(set)
		if most < set.Members {
			rackless := r.g.MaxTier == TierRack && !slices.ContainsFunc(r.c.nodes, func(n nodeState) bool { return n.Rack != "" })
			return reason.Reason{Kind: reason.TooFar, Group: set.Name, Members: set.Members, Each: set.GPUs, Room: most, Tier: r.g.MaxTier.String(), Rackless: rackless}
		}
	}
	return reason.Reason{}
}

// mostWithin returns how many members of a set fit into an idle place within the gang's locality
// limit.
func (r *request) mostWithin(set MemberSet) (most int) {
	for t := TierIsland; t <= r.g.MaxTier; t++ {
		if t != r.g.MaxTier && !slices.Contains(r.c.locality.Tiers(), t) {
			continue
		}
		most = max(most, r.roomAt(set, t, func(_, gpus int) int { return gpus }))
		if most >= set.Members {
			return most
		}
	}
	return most
}

// FreeWithin returns the largest number of members of the gang's first set that fit into one place
// of the tier (a node or wider). Only available GPUs whose PM score is at most `above` count. If
// `above` is 0, all available GPUs count. FreeWithin ignores CPU and memory.
func (c *Cluster) FreeWithin(g Gang, above float64, t Tier) (most int) {
	c.countOutliers(above)
	r := ask(c, g)
	return r.roomAt(g.MemberSets[0], t, func(group, _ int) int { return r.freeInliers(group, g.class()) })
}

// roomAt returns the largest number of members of a set that fit into one place of the tier. The
// function `counted` returns how many of a group's GPUs in a place count.
func (r *request) roomAt(set MemberSet, t Tier, counted func(group, gpus int) int) (most int) {
	room := map[place]int{}
	for gi := range r.c.groups {
		if set.Eligible != nil && !set.Eligible[gi] {
			continue
		}
		for at, gpus := range r.places(gi, t) {
			room[at] += set.in(r.mostOf(int32(gi), counted(gi, gpus)))
			most = max(most, room[at])
			if most >= set.Members {
				return most
			}
		}
	}
	return most
}

// A place is a domain of a tier, for example a node or a rack, and contains GPUs of one model.
type place struct{ model, at, sub int32 }

// places yields the domains of the tier that contain GPUs of the group, each with the number of
// these GPUs.
func (r *request) places(group int, t Tier) iter.Seq2[place, int] {
	gs := &r.c.groups[group]
	n := &r.c.nodes[gs.node]
	switch t {
	case TierIsland, TierNUMA:
		in := map[place]int{}
		for i := gs.first; i < gs.first+gs.n; i++ {
			sub := subdomainOf(r.c.gpus[i].GPU, t)
			if sub != 0 {
				in[place{gs.model, int32(group), int32(sub)}]++
			}
		}
		return maps.All(in)
	}
	return func(yield func(place, int) bool) { yield(place{gs.model, n.at[t], 0}, int(gs.n)) }
}
