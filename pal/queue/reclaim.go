// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

// freedGPUs contains, for each tenant, the number of GPUs that would be freed for a gang, in
// addition to the GPUs that are already being freed.
type freedGPUs map[*tenant]float64

func (f freedGPUs) add(v *entry, gpus float64) {
	for t := v.of.tenant; t != nil; t = t.parent {
		f[t] += gpus
	}
}

// countFreeing counts the GPUs of a gang that is being stopped or shrunk as being freed, for each of
// the gang's tenants.
func (ts *tenancy) countFreeing(v *entry) {
	for t := v.of.tenant; t != nil; t = t.parent {
		t.freeing += v.amount(v.gpus - len(v.target.GPUs()))
	}
}

// quotas compares the tenants of a waiting gang e and a running gang v at the level below their
// common parent. The result `within` reports whether e's branch stays within its quota if e starts.
// The result `over` reports whether v's branch is above its quota, even without the GPUs that are
// being freed or would be freed.
func (ts *tenancy) quotas(e, v *entry, freed freedGPUs) (within, over bool) {
	if !ts.tree.quotas {
		return false, true
	}
	own, others := apart(e.of.tenant, v.of.tenant)
	within = own != nil && own.gpus+own.promised+e.amount(e.gpus) <= float64(own.Quota)
	return within, others == nil || others.gpus-others.freeing-freed[others] > float64(others.Quota)
}

// outranks reports whether a waiting gang e can take the GPUs of a running gang v. Two of three
// conditions must hold: e's level is better than v's (parameter `better`), e's tenant stays within
// its quota, v's tenant is above its quota. So a tenant has a right to its quota, even against gangs of
// better levels (Kueue's reclaimWithinCohort). A gang stops as a whole, so stopping the last victim can
// take its tenant below its quota.
func (ts *tenancy) outranks(better bool, v, e *entry, freed freedGPUs) bool {
	within, over := ts.quotas(e, v, freed)
	return better && (within || over) || within && over
}

// apart returns the two branches at which the paths of two tenants in the tree first differ. For
// research/vision and research/speech, the branches are the two tenants. For research/vision and
// sales/web, the branches are research and sales. If one tenant contains the other, the branch of
// the containing tenant is nil. For equal tenants, both are nil.
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
