// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import (
	"math"
	"slices"
	"strings"
)

// Several tasks can share a GPU. Nomad then sees the parts of the GPU as instances. In this
// package, the parts of one GPU are a device group. So all parts of a member are on one GPU. The
// member's neighbours are the other members on this GPU.
//
// A part is as fast as its GPU, except that neighbours slow it down. The gang gets the parts on
// which the gang and its neighbours together lose the least time. The choice of parts comes before
// the choice by bins, because neighbours slow a gang by more than GPUs of one model differ.

// Sharing is how a gang shares GPUs with others. A gang that requests whole GPUs has no Sharing.
type Sharing struct {
	// Beside says which classes of neighbours the gang accepts, by [AppClass.Index].
	Beside [NumClasses]bool
	// Self is set if members of the gang can share a GPU. Replicas can always share a GPU, but are
	// spread as far as possible.
	Self bool
	// Slower is the gang's run time beside a neighbour of each class divided by its run time alone,
	// from earlier runs. 0 means that the table of neighbours applies.
	Slower [NumClasses]float64
	// Stays is set if the gang does not end, or nobody knows when it ends. If Stays is set, the
	// gang is never refused a part, and no other gang is refused a part because of it.
	Stays bool
}

// AnyClass accepts neighbours of all classes.
var AnyClass = [NumClasses]bool{true, true, true, true}

// Occupant is the gang that has a part of a GPU.
type Occupant struct {
	Gang    string
	Class   int // index in AppClasses
	Sharing Sharing
	// Parts is how many parts of the GPU one member has.
	Parts int
}

// beside says how fast a job of one class (row) runs beside a job of another class (column),
// relative to its speed alone on the GPU. The numbers are means of pairs that Gavel (OSDI 2020)
// measured on a V100. ResNet-50 is class A. Transformer, LSTM language models, CycleGAN and A3C are
// class B. An autoencoder for recommendations is class C, and ResNet-18 on small images is class D.
// The numbers do not apply to other GPU models: see docs/results/README.md.
var beside = [NumClasses][NumClasses]float64{
	{0.38, 0.48, 0.51, 0.76},
	{0.32, 0.70, 0.74, 0.63},
	{0.21, 0.66, 0.33, 0.73},
	{0.63, 0.90, 0.96, 0.91},
}

// Interference is what a neighbour costs a job: how much longer the job's work takes than alone on
// the GPU. 0.5 means 50 % longer. The costs of several neighbours add up, as if the jobs took turns
// on the GPU. But nobody has measured more than two jobs together.
func Interference(of, beside AppClass) float64 { return interference(of.Index(), beside.Index()) }

func interference(of, by int) float64 { return 1/beside[of][by] - 1 }

// costOf returns how much longer the work of the first occupant takes beside the second occupant;
// see [Interference].
func costOf(of, by Occupant) float64 {
	slower := of.Sharing.Slower[by.Class]
	if slower > 0 {
		return slower - 1
	}
	return interference(of.Class, by.Class)
}

// presence is an occupant of a device group, and the number of its members in this group.
type presence struct {
	Occupant
	members float64
}

// occupants lists the gangs that have parts of a device group's GPU, in the order of the parts. A
// member with several parts counts once.
func (c *Cluster) occupants(group int32) (on []presence) {
	g := &c.groups[group]
	for u := g.first; u < g.first+g.n; u++ {
		o := c.occupancies[u].now
		if !c.gpus[u].taken || o.Parts == 0 {
			continue
		}
		at := slices.IndexFunc(on, func(p presence) bool { return p.Occupant == o })
		if at < 0 {
			at = len(on)
			on = append(on, presence{Occupant: o})
		}
		on[at].members += 1 / float64(o.Parts)
	}
	return on
}

// occupancy records which occupant has a part. If the occupant is unknown, `now` is the zero
// Occupant. If a search takes the part in a what-if, `before` is the previous occupant, until the
// search releases the part.
type occupancy struct{ now, before Occupant }

// SetOccupant sets who has a part of a GPU while the part is taken. For gangs, [Cluster.Take] does
// this.
func (c *Cluster) SetOccupant(gpu int, o Occupant) {
	if !c.Shared(gpu) {
		return
	}
	t := &c.occupancies[gpu]
	if c.gpus[gpu].taken {
		c.stateHash ^= hashOfOccupant(gpu, t.now) ^ hashOfOccupant(gpu, o)
	}
	*t = occupancy{now: o}
}

// occupant returns the gang as an occupant of a GPU that has this number of parts.
func (g *Gang) occupant(parts int) Occupant {
	o := Occupant{Gang: g.ID, Class: g.class(), Parts: parts}
	if g.Sharing != nil {
		o.Sharing = *g.Sharing
	}
	return o
}

// setTaken takes or releases one part of a GPU for a member that has `parts` parts of this GPU.
func (c *Cluster) setTaken(gpu int, taken bool, g *Gang, parts int) {
	if !c.Shared(gpu) {
		c.SetTaken(gpu, taken)
		return
	}
	t := &c.occupancies[gpu]
	if taken {
		*t = occupancy{now: g.occupant(parts), before: t.now}
	}
	c.SetTaken(gpu, taken)
	if !taken {
		*t = occupancy{now: t.before}
	}
}

// Shared reports whether GPU i is a part of a GPU.
func (c *Cluster) Shared(i int) bool { return c.occupancies != nil && c.groups[c.gpus[i].group].shared }

// shareIn returns the size of each instance of the group, as a fraction of a whole GPU. For parts,
// the fraction is less than 1. The fraction is rounded down to a multiple of 2^-20, so that sums
// are exact and the parts of a GPU never add up to more than 1.
func (c *Cluster) shareIn(group int32) float64 {
	const grain = 1 << 20
	g := &c.groups[group]
	if g.shared {
		return math.Floor(grain/float64(g.n)) / grain
	}
	return 1
}

// Amount returns the size of these GPUs in whole GPUs: a part of a shared GPU counts as a fraction
// of a GPU.
func (c *Cluster) Amount(gpus ...int) (n float64) {
	for _, u := range gpus {
		n += c.shareIn(c.gpus[u].group)
	}
	return n
}

// AllAmount returns [Cluster.Amount] of all GPUs of the cluster.
func (c *Cluster) AllAmount() (n float64) {
	if c.occupancies == nil {
		return float64(len(c.gpus))
	}
	for i := range c.groups {
		n += float64(c.groups[i].n) * c.shareIn(int32(i))
	}
	return n
}

// LargestShare returns the size of the largest instance in the given device groups, as a fraction
// of a whole GPU. If `of` is nil, all groups count. A gang that could get parts of different sizes
// counts as if it got the largest parts. If `of` contains no group, the result is 0.
func (c *Cluster) LargestShare(of []bool) (most float64) {
	for i := range c.groups {
		if of == nil || of[i] {
			most = max(most, c.shareIn(int32(i)))
		}
	}
	return most
}

// Neighbour sums up the members of other gangs that share a GPU, for one application class.
type Neighbour struct {
	Class   AppClass `json:"class"`   // application class of the neighbours
	Members int      `json:"members"` // how many members of other gangs of this class share the GPU
	// Costs is how much longer the gang's work takes because of the neighbours. CostsThem is how
	// much longer the neighbours' work takes because of the gang, summed over members. 0.5 means 50
	// % longer.
	Costs     float64 `json:"costs"`
	CostsThem float64 `json:"costs_them"`
}

// neighbours lists the neighbours of a member that has, or would get, a part in the group. The list
// has one entry for each class. Members of the same gang do not count as neighbours.
func (r *request) neighbours(group int32) (all []Neighbour) {
	var of [NumClasses]struct{ members, costs, theirs float64 }
	self := r.g.occupant(0)
	for _, o := range r.c.occupants(group) {
		n := &of[o.Class]
		if o.Gang != r.g.ID {
			n.members += o.members
			n.costs += o.members * costOf(self, o.Occupant)
			n.theirs += o.members * costOf(o.Occupant, self)
		}
	}
	for k, class := range AppClasses() {
		n := of[k]
		if n.members > 0 {
			all = append(all, Neighbour{class, int(math.Round(n.members)), n.costs, n.theirs})
		}
	}
	return all
}

// request is a gang that asks for GPUs of a cluster.
type request struct {
	c *Cluster
	g Gang
}

func ask(c *Cluster, g Gang) *request { return &request{c, g} }

// Company says who shares GPUs with a gang. A Company is the index of the neighbours' class, or
// [Alone], or [Several].
type Company int8

const (
	Alone   Company = NumClasses + iota // the gang shares its GPUs with nobody
	Several                             // at least two members of other gangs are on the GPU of one member
)

// Company returns who shares GPUs with a gang that has parts. If each member has at most one
// neighbour, the result is the class of the neighbour that costs most according to the table.
func (c *Cluster) Company(g Gang, p Placement) Company {
	with, most := Alone, math.Inf(-1)
	for _, m := range p.Members {
		beside, others := 0, 0.0
		for _, o := range c.occupants(int32(m.Group)) {
			if o.Gang != g.ID {
				beside, others = o.Class, others+o.members
			}
		}
		if others > 1.5 {
			return Several
		}
		cost := interference(g.class(), beside)
		if others > 0 && cost > most {
			with, most = Company(beside), cost
		}
	}
	return with
}

// takes reports whether the gang and all gangs in the group accept each other as neighbours.
func (r *request) takes(group int32) bool {
	if r.g.Sharing == nil || !r.c.groups[group].shared {
		return true
	}
	for _, o := range r.c.occupants(group) {
		own := o.Gang == r.g.ID
		switch {
		case own && r.g.StaysApart():
			return false
		case !own && (!r.g.Sharing.Beside[o.Class] || !o.Sharing.Beside[r.g.class()]):
			return false
		}
	}
	return true
}

// together returns the cost of placing a member of the gang on a part of the group's GPU, next to
// the jobs on its other parts. The cost is the run time of the member on this part plus the time
// that these neighbours lose. The unit of the cost is the run time of the member alone on the
// median GPU.
func (r *request) together(group int32) float64 {
	self := r.g.occupant(0)
	first := r.c.gpus[r.c.groups[group].first].GPU
	longer, theirs := 1.0, 0.0
	for _, o := range r.c.occupants(group) {
		longer += o.members * costOf(self, o.Occupant)
		theirs += o.members * costOf(o.Occupant, self)
	}
	return float64(binValue(first, self.Class))*longer + theirs
}

// tableModel is a part of the name of each GPU model for which the table of neighbours is valid.
const tableModel = "V100"

// asTurns is the cost of a neighbour if both gangs take turns on the GPU. Unknown costs are assumed
// to be asTurns.
const asTurns = 1

// knownCost returns the cost that the occupant `by` causes for the occupant `of`, as known from
// earlier runs or measurements. If the cost is unknown, it returns asTurns.
func (r *request) knownCost(group int32, of, by Occupant) float64 {
	tabled := strings.Contains(r.c.models[r.c.groups[group].model].name, tableModel)
	if !tabled && of.Sharing.Slower[by.Class] == 0 {
		return asTurns
	}
	return costOf(of, by)
}

// pays reports whether the GPU of the group would do at least as much work with a member of the
// gang as without the member. A member is worth its part if it does at least as much work as the
// other occupants lose.
func (r *request) pays(group int32) bool {
	self := r.g.occupant(0)
	if self.Sharing.Stays {
		return true
	}
	on := r.c.occupants(group)
	longer, lost := 1.0, 0.0
	for _, o := range on {
		if o.Gang == r.g.ID { // the author lets members of this gang share a GPU
			continue
		}
		longer += o.members * r.knownCost(group, self, o.Occupant)
		if o.Sharing.Stays {
			continue
		}
		before := 1.0
		for _, by := range on {
			others := by.members
			if by != o || others > 1.5 {
				if by == o {
					others--
				}
				before += others * r.knownCost(group, o.Occupant, by.Occupant)
			}
		}
		lost += o.members * (1/before - 1/(before+r.knownCost(group, o.Occupant, self)))
	}
	const rounding = 1e-9
	return 1/longer >= lost-rounding
}

// refused reports whether a gang that does not fit would fit without [Policy.RefuseBad].
func (r *request) refused(p Policy) bool {
	if r.g.Sharing == nil || !p.RefuseBad {
		return false
	}
	p.RefuseBad = false
	_, fits := Place(r.c, r.g, p)
	return fits
}

// placeBeside does the same as place, for gangs that share GPUs. GPUs on which the least time is
// lost are tried first.
func (s *search) placeBeside() []Member {
	if s.g.Sharing == nil {
		return s.place()
	}
	r := ask(s.c, s.g)
	cost, levels := make([]float64, len(s.c.groups)), []float64{}
	groups := slices.Clone(s.groups()) // the searches below overwrite the list
	s.listed = nil
	for _, g := range groups {
		cost[g] = math.Inf(1)
		if r.takes(g) && (!s.p.RefuseBad || r.pays(g)) {
			cost[g] = r.together(g)
			levels = append(levels, cost[g])
		}
	}
	slices.Sort(levels)
	for _, level := range slices.Compact(levels) {
		g := s.g
		g.MemberSets = slices.Clone(g.MemberSets)
		for i := range g.MemberSets {
			may := make([]bool, len(cost))
			for _, on := range groups {
				may[on] = cost[on] <= level && s.eligible(i, on)
			}
			g.MemberSets[i].Eligible = may
		}
		in := newSearch(s.c, g, s.p, s.model)
		members := in.place()
		if members != nil {
			s.trail = in.trail
			return members
		}
	}
	return nil
}

// StaysApart reports whether members of the gang must not share a GPU.
func (g *Gang) StaysApart() bool { return g.Sharing != nil && !g.Sharing.Self && !g.Replicas }

// together returns the gang as if its members were allowed to share a GPU.
func (g Gang) together() Gang {
	if g.Sharing != nil {
		with := *g.Sharing
		with.Self = true
		g.Sharing = &with
	}
	return g
}

// mostOf returns how many of n GPUs of a group the gang can get. If the gang's members must not
// share a GPU, the gang gets only as many parts of each shared GPU as one member needs.
func (r *request) mostOf(group int32, n int) int {
	if !r.c.groups[group].shared || !r.g.StaysApart() {
		return n
	}
	most := 0
	for _, set := range r.g.MemberSets {
		if set.Eligible == nil || set.Eligible[group] {
			most = max(most, set.GPUs)
		}
	}
	return min(n, most)
}

// apart hides parts from searches until `back` is called. Each GPU then shows only as many parts as
// the gang can get. The earlier occupant of a hidden part does not count as a neighbour.
func (r *request) apart() (back func()) {
	c := r.c
	if r.g.Sharing == nil {
		return func() {}
	}
	type part struct {
		at int
		of occupancy
	}
	var hidden []part
	for i := range c.groups {
		gs := &c.groups[i]
		most := r.mostOf(int32(i), int(c.avail[i]))
		if most == int(c.avail[i]) {
			continue
		}
		shown := 0
		for u := int(gs.first); u < int(gs.first+gs.n); u++ {
			if !c.gpus[u].available {
				continue
			}
			shown++
			if shown > most {
				hidden = append(hidden, part{u, c.occupancies[u]})
				c.gpus[u].taken, c.occupancies[u] = true, occupancy{}
				c.refresh(u)
			}
		}
	}
	return func() {
		for _, p := range hidden {
			c.gpus[p.at].taken, c.occupancies[p.at] = false, p.of
			c.refresh(p.at)
		}
	}
}

// takesFree counts the free GPUs on which members of the gang could run beside the present
// neighbours. If the members must not share a GPU, takesFree counts at most one member's parts per
// shared GPU.
func (r *request) takesFree() (n int) {
	for gi := range r.c.groups {
		if r.g.MayUse(gi) && r.takes(int32(gi)) {
			n += r.mostOf(int32(gi), int(r.c.avail[gi]))
		}
	}
	return n
}
