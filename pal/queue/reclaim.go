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
	freed := p.freed()
	var vs []*entry
	all := p.above(math.MinInt)
	for v := all.next(); v != nil; v = all.next() {
		if within, over := p.quotas(e, v, freed); within && over {
			vs = append(vs, v)
			freed.add(v)
		}
	}
	slices.Reverse(vs) // victims are taken from the end
	return len(vs) > 0 && p.stopEnough(e, &victims{p: p, left: vs})
}

// freedGPUs are GPUs of gangs that are being stopped, or would be, by tenant.
type freedGPUs map[*tenant]int

func (f freedGPUs) add(v *entry) {
	for t := v.of.tenant; t != nil; t = t.parent {
		f[t] += v.gpus
	}
}

// freed are those of gangs that are being stopped.
func (p *pass) freed() freedGPUs {
	f := freedGPUs{}
	for _, c := range p.Queue.claims {
		for _, v := range c.victims {
			f.add(v)
		}
	}
	for _, v := range p.leaving {
		f.add(v)
	}
	return f
}

// quotas compares a waiting gang's tenant with that of one that runs where their ways up
// the tree meet: within says whether the first part stays within its quota with the gang,
// over whether the second is above its own without what is freed.
func (p *pass) quotas(e, v *entry, freed freedGPUs) (within, over bool) {
	if !p.tree.quotas {
		return false, true
	}
	own, others := apart(e.of.tenant, v.of.tenant)
	within = own != nil && own.gpus+own.promised+e.gpus <= own.Quota
	return within, others == nil || others.gpus-freed[others] > others.Quota
}

// spared says whether a gang must not be stopped, or made smaller, for a waiting one: its
// tenant is within its quota, or would be without what is freed, and that of the waiting one
// would borrow. It would only take the GPUs back.
func (p *pass) spared(v, e *entry, freed freedGPUs) bool {
	within, over := p.quotas(e, v, freed)
	return !within && !over
}

// reclaims says whether a waiting gang e would only take GPUs back that its tenant lent
// to v's.
func (p *pass) reclaims(v, e *entry) bool {
	within, over := p.quotas(e, v, nil)
	return within && over
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
