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
	freed := map[*tenant]int{} // GPUs of gangs that are being stopped, or would be
	free := func(v *entry) {
		for t := v.of.tenant; t != nil; t = t.parent {
			freed[t] += v.gpus
		}
	}
	for _, c := range p.Queue.claims {
		for _, v := range c.victims {
			free(v)
		}
	}
	var vs []*entry
	all := p.above(math.MinInt)
	for v := all.next(); v != nil; v = all.next() {
		own, others := apart(e.of.tenant, v.of.tenant)
		if own == nil || own.Quota == 0 || own.gpus+p.promised(own)+e.gpus > own.Quota {
			continue
		}
		if others == nil || others.gpus-freed[others] > others.Quota {
			vs = append(vs, v)
			free(v)
		}
	}
	slices.Reverse(vs) // victims are taken from the end
	return len(vs) > 0 && p.stopEnough(e, &victims{p: p, left: vs})
}

// unprotected leaves out of the victims of a gang those that must not be stopped for
// it: a gang within its tenant's quota is not stopped for one of a tenant that would
// borrow: its tenant would only take the GPUs back.
func (p *pass) unprotected(e *entry, vs *victims) *victims {
	if !p.tree.quotas {
		return vs
	}
	vs.spare = func(v *entry) bool { return p.spared(v, e) }
	return vs
}

// spared says whether a gang must not be stopped, or made smaller, for a waiting one: its
// tenant is within its quota, and that of the waiting one would not be.
func (p *pass) spared(v, e *entry) bool {
	if !p.tree.quotas {
		return false
	}
	own, others := apart(e.of.tenant, v.of.tenant)
	if others == nil || others.gpus > others.Quota {
		return false
	}
	return own == nil || own.gpus+p.promised(own)+e.gpus > own.Quota
}

// reclaims says whether a waiting gang e would only take GPUs back that its tenant lent
// to v's.
func (p *pass) reclaims(v, e *entry) bool {
	if !p.tree.quotas {
		return false
	}
	own, others := apart(e.of.tenant, v.of.tenant)
	return own != nil && own.Quota > 0 && own.gpus+p.promised(own)+e.gpus <= own.Quota && (others == nil || others.gpus > others.Quota)
}

// apart is where two tenants' ways down the tree part. Of research/vision and
// research/speech it is these two, of research/vision and sales/web it is research and
// sales. It is nil for a tenant that the other is a part of; nil and nil for the same.
func apart(a, b *tenant) (ofA, ofB *tenant) {
	chainA, chainB := a.chain, b.chain
	for i := 0; ; i++ {
		switch {
		case i < len(chainA) && i < len(chainB) && chainA[i] == chainB[i]:
			continue
		case i < len(chainA):
			ofA = chainA[i]
		}
		if i < len(chainB) {
			ofB = chainB[i]
		}
		return ofA, ofB
	}
}
