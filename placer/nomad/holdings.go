// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"maps"
	"slices"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// refresh works out anew who holds which GPU, and what is left of the nodes.
func (v *View) refresh() {
	clear(v.owner)
	free := make([]pal.Resources, len(v.nodes))
	for i, n := range v.nodes {
		free[i] = total(n)
	}
	v.holdAllocs(free)
	for _, k := range slices.SortedFunc(maps.Keys(v.state.Jobs), JobKey.Compare) {
		if slices.Contains(v.without, k) {
			continue
		}
		for _, c := range v.state.claims(v.state.Jobs[k]) {
			v.holdClaim(k, c, free)
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(v.opts.Held), JobKey.Compare) {
		if !slices.Contains(v.without, k) {
			v.hold(k, v.opts.Held[k])
		}
	}
	clear(v.holds)
	for i, k := range v.owner {
		v.Cluster.SetTaken(i, k != JobKey{})
		if k != (JobKey{}) {
			v.holds[k] = append(v.holds[k], i)
		}
	}
	for i, f := range free {
		v.Cluster.SetFree(i, f)
	}
}

// refreshHealth takes over which GPUs are sick or in quarantine.
func (v *View) refreshHealth() {
	for _, d := range v.devices {
		for _, in := range d.Instances {
			v.Cluster.SetHealth(v.Cluster.Find(in.ID), !in.Healthy, v.opts.Quarantined[in.ID])
		}
	}
}

// holdAllocs gives live allocations their GPUs and resources. Oldest first, so
// that an answer does not depend on map order should two claim one GPU.
func (v *View) holdAllocs(free []pal.Resources) {
	for _, a := range v.state.live {
		if slices.Contains(v.without, a.Job) {
			continue
		}
		if i, ok := v.nodeOf[a.Node]; ok {
			free[i] = minus(free[i], a.Used, 1)
		}
		v.hold(a.Job, a.GPUs)
	}
}

// hold makes a job the owner of GPUs; where two hold one GPU, the first by key
// is its owner.
func (v *View) hold(k JobKey, ids []string) {
	for _, id := range ids {
		if i := v.Cluster.Find(id); i >= 0 && (v.owner[i] == JobKey{} || k.Compare(v.owner[i]) < 0) {
			v.owner[i] = k
		}
	}
}

func (v *View) holdClaim(k JobKey, c claim, free []pal.Resources) {
	v.hold(k, c.gpus)
	perNode := map[int]int{}
	for _, id := range c.gpus {
		if i := v.Cluster.Find(id); i >= 0 {
			node, _ := v.Cluster.Group(v.Cluster.GroupOf(i))
			perNode[node]++
		}
	}
	for node, gpus := range perNode {
		free[node] = minus(free[node], c.need, gpus/max(1, c.per))
	}
}

func minus(r, o pal.Resources, times int) pal.Resources {
	return pal.Resources{CPU: r.CPU - times*o.CPU, MemoryMB: r.MemoryMB - times*o.MemoryMB, DiskMB: r.DiskMB - times*o.DiskMB}
}

func total(n *api.Node) pal.Resources {
	r := n.NodeResources
	t := pal.Resources{CPU: int(r.Cpu.CpuShares), MemoryMB: int(r.Memory.MemoryMB), DiskMB: int(r.Disk.DiskMB)}
	if res := n.ReservedResources; res != nil {
		t.CPU -= int(res.Cpu.CpuShares)
		t.MemoryMB -= int(res.Memory.MemoryMB)
		t.DiskMB -= int(res.Disk.DiskMB)
	}
	return t
}

// claim are the GPUs that the pins of one group promise and that its live
// allocations do not hold yet.
type claim struct {
	gpus []string
	need pal.Resources // per member
	per  int           // GPUs per member
}

// claims of a job: none while it is gated (its pins are then those of a gang
// that is being stopped) or ended, or once all members are there.
func (s *State) claims(job *api.Job) []claim {
	pins, ok := rewrite.Pinned(job)
	if !ok || pins.Mode != rewrite.ModeGPU || rewrite.Gated(job) || Ended(job) {
		return nil
	}
	var cs []claim
	for _, g := range job.TaskGroups {
		gp, ok := pins.Of(*g.Name)
		if !ok {
			continue
		}
		c := claim{gpus: gp.GPUs, need: needOf(g)}
		if a, err := askOf(g); err == nil {
			c.per = a.gpus
		}
		members := 0
		for _, a := range s.byJob[KeyOf(job)] {
			if a.Group == *g.Name && (a.Member() || a.FinishedIn(job)) {
				members++
				c.gpus = slices.DeleteFunc(slices.Clone(c.gpus), func(id string) bool { return slices.Contains(a.GPUs, id) })
			}
		}
		if members < *g.Count {
			cs = append(cs, c)
		}
	}
	return cs
}

// Ended says whether nothing of the job runs or will.
func Ended(job *api.Job) bool {
	return (job.Stop != nil && *job.Stop) || (job.Status != nil && *job.Status == "dead")
}

// Holds lists the GPUs that the job holds, ascending.
func (v *View) Holds(k JobKey) []int { return v.holds[k] }

// Owner is who holds GPU i; the zero key where nobody does.
func (v *View) Owner(i int) JobKey { return v.owner[i] }

// Running is the placement of what the request's job holds now: its
// allocations' GPUs and those its pins promise.
func (v *View) Running(r Request, owned []int) pal.Placement {
	perMember := make([]int, len(r.Gang.Shapes))
	for i, s := range r.Gang.Shapes {
		perMember[i] = s.GPUs
	}
	shapeOf := map[string]int{} // GPU id → shape
	for i, s := range r.Gang.Shapes {
		for _, a := range v.state.byJob[r.Key] {
			if a.Group == s.Name && a.Live() {
				for _, id := range a.GPUs {
					shapeOf[id] = i
				}
			}
		}
	}
	pins, _ := rewrite.Pinned(r.Job)
	for i, s := range r.Gang.Shapes {
		if gp, ok := pins.Of(s.Name); ok {
			for _, id := range gp.GPUs {
				shapeOf[id] = i
			}
		}
	}
	// Members of one shape in one device group are alike: deal the GPUs out.
	type where struct{ shape, group int }
	byGroup := map[where][]int{}
	for _, u := range owned {
		w := where{shapeOf[v.Cluster.GPU(u).ID], v.Cluster.GroupOf(u)}
		byGroup[w] = append(byGroup[w], u)
	}
	var ms []pal.Member
	for _, w := range slices.SortedFunc(maps.Keys(byGroup), func(a, b where) int {
		if a.shape != b.shape {
			return a.shape - b.shape
		}
		return a.group - b.group
	}) {
		for chunk := range slices.Chunk(byGroup[w], max(1, perMember[w.shape])) {
			ms = append(ms, pal.Member{Shape: w.shape, Group: w.group, GPUs: chunk})
		}
	}
	if len(ms) == 0 {
		return pal.Placement{PMScore: 1, Penalty: 1}
	}
	return pal.Measure(v.Cluster, r.Gang, ms)
}
