// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"math"
	"slices"
)

// reclaim stops gangs of tenants that borrow, the worst level first, for one whose
// tenant stays within its quota with it: the quota is its own, whatever the others'
// gangs are worth (Kueue's reclaimWithinCohort). Only gangs that may be stopped are.
//
// Two tenants are compared where their ways up the tree meet: the part with the gang must
// be within its quota there, and the part with the victim above its own, also without
// what is being stopped already. A gang stops whole, so the last one may take its
// tenant below its quota by less than that gang's size.
func (p *pass) reclaim(e *entry) bool {
	if !p.tree.quotas || p.claimOf(e) == 0 {
		return false
	}
	freed := freedGPUs{}
	var vs []*entry
	all := p.above(math.MinInt)
	for v := all.next(); v != nil; v = all.next() {
		if within, over := p.quotas(e, v, freed); within && over {
			vs = append(vs, v)
			freed.add(v, v.gpus)
		}
	}
	slices.Reverse(vs) // victims are taken from the end
	return len(vs) > 0 && p.stopEnough(e, &victims{p: &p.planner, left: vs})
}

// freedGPUs are GPUs by tenant that would be freed for a gang, beside those that are being freed already.
type freedGPUs map[*tenant]int

func (f freedGPUs) add(v *entry, gpus int) {
	for t := v.of.tenant; t != nil; t = t.parent {
		f[t] += gpus
	}
}

// countFreeing counts with its tenants what a gang gives up that is being stopped, or made smaller; of
// others that is nothing.
func (v *entry) countFreeing() {
	gpus := 0
	if v.state == stopping {
		gpus = v.gpus - len(v.target.GPUs())
	}
	for t := v.of.tenant; t != nil; t = t.parent {
		t.freeing += gpus - v.freeing
	}
	v.freeing = gpus
}

// quotas compares a waiting gang's tenant with that of one that runs where their ways up
// the tree meet: within reports whether the first part stays within its quota with the gang,
// over whether the second is above its own without what is being freed, or would be.
func (ts *tenancy) quotas(e, v *entry, freed freedGPUs) (within, over bool) {
	if !ts.tree.quotas {
		return false, true
	}
	own, others := apart(e.of.tenant, v.of.tenant)
	within = own != nil && own.gpus+own.promised+e.gpus <= own.Quota
	return within, others == nil || others.gpus-others.freeing-freed[others] > others.Quota
}

// outranks reports whether GPUs of a gang that runs may go to a waiting one, where levels say so or not. One
// tenant's quota may say so instead, and must not say no: who borrowed GPUs of another tenant that is
// within its quota would only have them taken back.
func (ts *tenancy) outranks(better bool, v, e *entry, freed freedGPUs) bool {
	within, over := ts.quotas(e, v, freed)
	return better && (within || over) || within && over
}

// apart is where two tenants' ways down the tree part. Of research/vision and
// research/speech it is these two, of research/vision and sales/web it is research and
// sales. It is nil for a tenant that the other is a part of; nil and nil for the same.
func apart(a, b *tenant) (ofA, ofB *tenant) {
	i := 0
	for i < min(len(a.chain), len(b.chain)) && a.chain[i] == b.chain[i] {
		i++
	}
	if i < len(a.chain) {
		ofA = a.chain[i]
	}
	if i < len(b.chain) {
		ofB = b.chain[i]
	}
	return ofA, ofB
}
