// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package ledger

import (
	"maps"
	"slices"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// Ledger.wants has a holding for each job that holds GPUs or to which GPUs are promised. If only
// one job claims a GPU, that job owns the GPU. If several jobs claim the GPU (Ledger.rivals),
// [Ledger.first] chooses the owner. Ledger.holds lists the GPUs that each job owns. The method
// refresh computes the holdings and owners of all jobs from the state, and the method refreshJobs
// only those of changed jobs. A test checks that refresh and refreshJobs give the same result.

// holding lists the GPUs and the resources of nodes that one job holds or that are promised to the
// job. The GPUs are in ascending order.
type holding struct {
	gpus []int
	uses []use
	// pinned lists, in ascending order, the GPUs that are promised to the job only by the job's
	// pins.
	pinned []int
}

// strong reports whether the job's claim to the GPU is based on more than pins: the job has the
// GPU, or a decision has just given the GPU to the job.
func (h *holding) strong(gpu int) bool {
	_, weak := slices.BinarySearch(h.pinned, gpu)
	return !weak
}

type use struct {
	node int
	pal.Resources
}

// refresh uses the state to compute which job holds which GPU, and which resources of the nodes are
// free.
func (v *Ledger) refresh() {
	_, v.seen, _ = v.State.Touched(cluster.Mark{})
	clear(v.owner)
	v.wants = map[cluster.JobKey]holding{}
	v.rivals = map[int][]cluster.JobKey{}
	v.free = make([]pal.Resources, len(v.Nodes))
	for u := range v.owner {
		v.Cluster.SetTaken(u, false)
	}
	for i, n := range v.Nodes {
		v.free[i] = cluster.Capacity(n)
		v.Cluster.SetFree(i, v.free[i])
	}
	keys := slices.AppendSeq(slices.Collect(maps.Keys(v.holds)), maps.Keys(v.State.ByJob))
	v.refreshJobs(slices.AppendSeq(keys, maps.Keys(v.State.Jobs)), Options{})
}

// refreshJobs updates the holdings of jobs that have changed, and of jobs whose reserved or ending
// GPUs differ between the earlier and the present options.
func (v *Ledger) refreshJobs(keys []cluster.JobKey, before Options) {
	changed := make(map[cluster.JobKey]bool, len(keys))
	for _, k := range keys {
		changed[k] = true
	}
	for _, m := range []map[cluster.JobKey][]string{before.Reserved, v.opts.Reserved, before.Ending, v.opts.Ending} {
		for k := range m {
			if !slices.Equal(before.Reserved[k], v.opts.Reserved[k]) || !slices.Equal(before.Ending[k], v.opts.Ending[k]) {
				changed[k] = true
			}
		}
	}
	var gpus, nodes []int // may contain duplicates
	for _, pl := range v.moved {
		for _, u := range pl.GPUs() {
			node, _ := v.Cluster.Group(v.Cluster.GroupOf(u))
			gpus, nodes = append(gpus, u), append(nodes, node)
		}
	}
	v.moved = nil
	for k := range changed {
		h := v.holdingOf(k)
		for _, h := range []holding{v.wants[k], h} {
			gpus = append(gpus, h.gpus...)
			for _, u := range h.uses {
				nodes = append(nodes, u.node)
			}
		}
		v.replace(k, h)
	}
	if len(changed) > 0 || len(gpus) > 0 {
		v.changes++
	}
	for _, u := range gpus {
		for _, k := range v.rivals[u] {
			changed[k] = true
		}
		changed[v.owner[u]] = true // the job that owns the GPU now
		v.setTaken(u)
	}
	for k := range changed {
		v.own(k)
	}
	for _, n := range nodes {
		v.Cluster.SetFree(n, v.free[n])
	}
}

// setTaken records in the cluster whether a job holds a GPU. For a part of a shared GPU, setTaken
// also records which job holds the part.
func (v *Ledger) setTaken(u int) {
	k := v.owner[u]
	taken := k != cluster.JobKey{}
	if v.Cluster.Shared(u) {
		var o pal.Occupant
		if taken && v.opts.Occupant != nil {
			o = v.opts.Occupant(k)
		}
		v.Cluster.SetOccupant(u, o)
	}
	v.Cluster.SetTaken(u, taken)
}

// own updates the list of GPUs that a job owns.
func (v *Ledger) own(k cluster.JobKey) {
	mine := slices.DeleteFunc(slices.Clone(v.wants[k].gpus), func(u int) bool { return v.owner[u] != k })
	if !slices.Equal(mine, v.holds[k]) {
		v.shifted = append(v.shifted, k)
	}
	if len(mine) == 0 {
		delete(v.holds, k)
	} else {
		v.holds[k] = mine
	}
}

// replace replaces a job's holding, and updates the owners of the GPUs and the free resources of
// the nodes.
func (v *Ledger) replace(k cluster.JobKey, h holding) {
	old := v.wants[k]
	for _, u := range old.gpus {
		v.leave(u, k)
	}
	for _, u := range old.uses {
		v.free[u.node] = v.free[u.node].Minus(u.Resources, -1)
	}
	if len(h.gpus) == 0 && len(h.uses) == 0 {
		delete(v.wants, k)
	} else {
		v.wants[k] = h
	}
	for _, u := range h.gpus {
		v.enter(u, k)
	}
	for _, u := range h.uses {
		v.free[u.node] = v.free[u.node].Minus(u.Resources, 1)
	}
}

// enter adds a job to the jobs that claim a GPU. If several jobs claim the GPU, a job that has the
// GPU takes precedence over a job that only has pins to the GPU. If none of them has the GPU, the
// job with the lowest key takes precedence.
func (v *Ledger) enter(u int, k cluster.JobKey) {
	owner := v.owner[u]
	if owner == (cluster.JobKey{}) {
		v.owner[u] = k
		return
	}
	if v.rivals[u] == nil {
		v.rivals[u] = []cluster.JobKey{owner}
	}
	v.rivals[u] = append(v.rivals[u], k)
	v.owner[u] = v.first(u, v.rivals[u])
}

// first returns the owner among the jobs that claim a GPU.
func (v *Ledger) first(u int, rivals []cluster.JobKey) cluster.JobKey {
	return slices.MinFunc(rivals, func(a, b cluster.JobKey) int {
		x, y := v.wants[a], v.wants[b]
		if x, y := x.strong(u), y.strong(u); x != y {
			if x {
				return -1
			}
			return 1
		}
		return a.Compare(b)
	})
}

// leave removes a job from the jobs that claim a GPU. The next rival, if any, then owns the GPU.
func (v *Ledger) leave(u int, k cluster.JobKey) {
	rest := slices.DeleteFunc(slices.Clone(v.rivals[u]), func(o cluster.JobKey) bool { return o == k })
	v.owner[u] = cluster.JobKey{}
	if len(rest) > 0 {
		v.owner[u] = v.first(u, rest)
	}
	v.rivals[u] = rest
	if len(rest) < 2 {
		delete(v.rivals, u)
	}
}

// holdingOf computes a job's holding from the job's live allocations, the unused part of its pins,
// and the GPUs that are reserved for the job. A claim from pins alone is weaker than a claim from
// an allocation, because pins may be stale.
func (v *Ledger) holdingOf(k cluster.JobKey) holding {
	var h holding
	if slices.Contains(v.without, k) {
		return h
	}
	for _, a := range v.State.ByJob[k] {
		if !a.Live() || v.State.LeftBehind(a) {
			continue
		}
		if i, ok := v.NodeOf[a.Node]; ok {
			h.uses = append(h.uses, use{i, a.Used})
		}
		v.hold(&h, v.State.OwnGPUs(a))
	}
	v.hold(&h, v.opts.Reserved[k])
	v.hold(&h, v.opts.Ending[k])
	strong := slices.Sorted(slices.Values(h.gpus))
	job := v.State.Jobs[k]
	if job != nil {
		for _, c := range promises(v.State, job) {
			v.holdPromised(&h, c)
		}
	}
	for _, u := range h.gpus {
		_, has := slices.BinarySearch(strong, u)
		if !has {
			h.pinned = append(h.pinned, u)
		}
	}
	slices.Sort(h.pinned)
	slices.Sort(h.gpus)
	h.gpus = slices.Compact(h.gpus)
	return h
}

// Without frees the GPUs and resources that a job holds, except GPUs that other jobs also claim.
// back gives everything back to the job. Callers use Without to find out on which other GPUs the
// job could run. owned lists the freed GPUs.
func (v *Ledger) Without(k cluster.JobKey) (owned []int, back func()) {
	owned = slices.DeleteFunc(slices.Clone(v.holds[k]), func(u int) bool { return len(v.rivals[u]) > 0 || !v.Cluster.Taken(u) })
	for _, u := range owned {
		v.Cluster.SetTaken(u, false)
	}
	uses := v.wants[k].uses
	for _, u := range uses {
		v.Cluster.SetFree(u.node, v.Cluster.Free(u.node).Minus(u.Resources, -1))
	}
	return owned, func() {
		for _, u := range uses {
			v.Cluster.SetFree(u.node, v.Cluster.Free(u.node).Minus(u.Resources, 1))
		}
		for _, u := range owned {
			v.Cluster.SetTaken(u, true)
		}
	}
}

// Take marks the GPUs of a placement as allocated until the next [Ledger.Update], which computes
// all allocated GPUs from the state again. Release undoes Take.
func (v *Ledger) Take(g pal.Gang, p pal.Placement) {
	v.Cluster.Take(g, p)
	v.moved = append(v.moved, p)
}

// Release undoes [Ledger.Take].
func (v *Ledger) Release(g pal.Gang, p pal.Placement) {
	v.Cluster.Release(g, p)
	v.moved = append(v.moved, p)
}

// Keep marks the free GPUs of a placement as allocated until the next [Ledger.Update].
func (v *Ledger) Keep(p pal.Placement) {
	for _, u := range p.GPUs() {
		if v.Cluster.Available(u) {
			v.Cluster.SetTaken(u, true)
		}
	}
	v.moved = append(v.moved, p)
}

// Epoch returns a number that grows whenever the set of nodes that can serve some job changes.
func (v *Ledger) Epoch() uint64 { return v.epoch }

// Changes returns a number that grows whenever the holder of a GPU or of resources changes, or the
// set of usable GPUs changes. Temporary changes, made to test whether a gang would fit, do not
// count.
func (v *Ledger) Changes() uint64 { return v.changes }

// hold adds the GPUs with these ids to a holding. hold skips GPUs that no node lists.
func (v *Ledger) hold(h *holding, ids []string) {
	for _, id := range ids {
		i := v.Cluster.Find(id)
		if i >= 0 {
			h.gpus = append(h.gpus, i)
		}
	}
}

// holdPromised adds what a group's pins promise and no allocation uses yet to a holding: GPUs on
// the pinned nodes, and the CPU, memory and disk of the members that will use these GPUs.
func (v *Ledger) holdPromised(h *holding, c promise) {
	perNode := map[int]int{}
	for _, id := range c.gpus {
		i := v.Cluster.Find(id)
		if i < 0 {
			continue
		}
		node, _ := v.Cluster.Group(v.Cluster.GroupOf(i))
		_, there := slices.BinarySearch(c.nodes, v.Nodes[node].ID)
		if there {
			h.gpus = append(h.gpus, i)
			perNode[node]++
		}
	}
	for node, gpus := range perNode {
		h.uses = append(h.uses, use{node, pal.Resources{}.Minus(c.need, -gpus/max(1, c.per))})
	}
}

// promise is the part of a group's pins that the group's live allocations do not use yet.
type promise struct {
	gpus  []string
	nodes []string      // the nodes with these GPUs, sorted
	need  pal.Resources // per member
	per   int           // GPUs per member
}

// promises returns the GPUs in a job's pins that no member holds yet. Pins to classes promise
// nothing. Nor do pins that somebody else may have written, and pins of a job that has ended, that
// is complete, or that is being stopped (it has its gate).
func promises(s *cluster.State, job *api.Job) []promise {
	pins, ok := rewrite.Pinned(job)
	if !ok || pins.Mode != rewrite.ModeGPU || rewrite.Gated(job) || cluster.Ended(job) || !s.TrustsPins(cluster.KeyOf(job), pins) {
		return nil
	}
	var cs []promise
	for _, g := range job.TaskGroups {
		gp, ok := pins.Of(*g.Name)
		if !ok {
			continue
		}
		per := rewrite.GPUsPerMember(g)
		if per <= 0 || *g.Count <= 0 || (len(gp.GPUs)-1)/per >= *g.Count {
			continue // the pins name more GPUs than the members need, so they promise nothing
		}
		c := promise{gpus: gp.GPUs, nodes: slices.Sorted(slices.Values(gp.Nodes)), need: cluster.Need(g), per: per}
		members, held := map[string]bool{}, map[string]bool{}
		for _, a := range s.ByJob[cluster.KeyOf(job)] {
			if a.Group == *g.Name && (a.Member() && !a.LeftBehind(job) || a.FinishedIn(job)) {
				members[a.Name] = true
				for _, id := range a.GPUs {
					held[id] = true
				}
			}
		}
		if len(members) < rewrite.Members(g) {
			c.gpus = slices.DeleteFunc(slices.Clone(c.gpus), func(id string) bool { return held[id] })
			cs = append(cs, c)
		}
	}
	return cs
}

// Holds returns the GPUs that the job holds, in ascending order.
func (v *Ledger) Holds(k cluster.JobKey) []int { return v.holds[k] }

// Holders returns the jobs that hold GPUs, in the order of their keys.
func (v *Ledger) Holders() []cluster.JobKey {
	return slices.SortedFunc(maps.Keys(v.holds), cluster.JobKey.Compare)
}

// TakeShifted returns the jobs whose GPUs have changed since the previous call. A job's GPUs can
// change even if the job does not. For example, a decision can reserve GPUs for the job, or other
// jobs can claim the job's GPUs.
func (v *Ledger) TakeShifted() []cluster.JobKey {
	keys := v.shifted
	v.shifted = nil
	return keys
}

// Reserved reports whether a current decision has given GPUs to the job.
func (v *Ledger) Reserved(k cluster.JobKey) bool { return len(v.opts.Reserved[k]) > 0 }

// Owner returns the job that holds GPU i, or the zero key if no job holds GPU i.
func (v *Ledger) Owner(i int) cluster.JobKey { return v.owner[i] }
