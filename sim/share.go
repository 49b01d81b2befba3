// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package sim

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// Share returns a copy of the nodes in which the given number of jobs can share each GPU. As in the
// placer, each shared GPU is a device group of its own, with an entry for each part.
func Share(nodes []pal.Node, parts int) []pal.Node {
	nodes = slices.Clone(nodes)
	for n := range nodes {
		whole := nodes[n].Groups
		nodes[n].Groups = nil
		for _, g := range whole {
			for _, gpu := range g.GPUs {
				of := pal.DeviceGroup{Name: g.Name, Shared: true, GPUs: slices.Repeat([]pal.GPU{gpu}, parts)}
				for i := range of.GPUs {
					of.GPUs[i].ID = fmt.Sprintf("%s::%d", gpu.ID, i)
				}
				nodes[n].Groups = append(nodes[n].Groups, of)
			}
		}
	}
	return nodes
}

// SharedGangOf is a job's gang on shared GPUs: each member has the given number of parts of one
// GPU, and no two members share a GPU.
func SharedGangOf(j trace.Job, parts int) pal.Gang {
	return pal.Gang{ID: j.ID, Class: j.Class, Speeds: j.Speeds, Sharing: &pal.Sharing{Beside: pal.AnyClass},
		MemberSets: []pal.MemberSet{{Members: j.GPUs, GPUs: parts}}}
}

// recall sets what neighbours cost job i when it enters the queue, from earlier runs of jobs with
// the same name.
func (e *engine) recall(i int) {
	g := &e.jobs[i].gang
	if g.Sharing == nil {
		return
	}
	with := *g.Sharing
	with.Slower, _ = queue.SlowerBeside(g.Class, e.queue.RunsBeside(e.Jobs[i].Name, g.GPUs()))
	g.Sharing = &with
}

// pace is the state of a run when its speed changes: the time worked, the remaining work, and the
// new cost.
type pace struct{ worked, left, cost float64 }

// leftAfter is the work that remains after the run has worked for the given number of seconds.
func (j *simJob) leftAfter(worked float64) float64 {
	p := j.pace[0]
	for _, q := range j.pace[1:] {
		if q.worked <= worked {
			p = q
		}
	}
	return max(0, p.left-(worked-p.worked)/p.cost)
}

// meet updates the speeds when job i starts, because job i and the other jobs on its GPUs slow each
// other.
func (e *engine) meet(i int) {
	if e.on == nil {
		return
	}
	for _, m := range e.jobs[i].placement.Members {
		e.on[m.Group] = append(e.on[m.Group], i)
	}
	e.repaceAround(i)
	e.repace(i)
}

// part updates the speeds of the other jobs when job i leaves its GPUs.
func (e *engine) part(i int) {
	if e.on == nil {
		return
	}
	for _, m := range e.jobs[i].placement.Members {
		at := slices.Index(e.on[m.Group], i)
		e.on[m.Group] = slices.Delete(e.on[m.Group], at, at+1)
	}
	e.repaceAround(i)
}

func (e *engine) repaceAround(i int) {
	for _, m := range e.jobs[i].placement.Members {
		for _, other := range e.on[m.Group] {
			if other != i {
				e.repace(other)
			}
		}
	}
}

// repace computes the new speed of job i after a change of its neighbours.
func (e *engine) repace(i int) {
	j := &e.jobs[i]
	if j.stopping || j.done {
		return
	}
	rate := 1.0
	for _, m := range j.placement.Members {
		rate = min(rate, e.beside(i, m.Group))
	}
	last := &j.pace[len(j.pace)-1]
	cost := j.cost / rate
	if cost == last.cost {
		return
	}
	worked := max(0, (e.now - j.since).Seconds())
	next := pace{worked, j.leftAfter(worked), cost}
	if e.CheckpointS > 0 && worked > last.worked { // keep the history, because a stop can go back to an earlier checkpoint
		j.pace = append(j.pace, next)
	} else {
		*last = next
	}
	e.pushEnd(i, max(e.now, j.since), next.left*cost)
}

// beside is the speed of job i next to the other jobs on the GPU of a device group, relative to its
// speed alone.
func (e *engine) beside(i, group int) float64 {
	others := slices.DeleteFunc(slices.Clone(e.on[group]), func(o int) bool { return o == i })
	if len(others) == 0 {
		return 1
	}
	rate := e.Beside(i, others, group)
	if rate <= 0 {
		e.err = cmp.Or(e.err, fmt.Errorf("job %q does not fit in a GPU's memory beside job %q", e.Jobs[i].ID, e.Jobs[others[0]].ID))
		return 1
	}
	return rate
}

// Beside returns a function for [Config.Beside] from measured pairs.
func Beside(ps trace.Pairs, jobs []trace.Job, c *pal.Cluster) func(i int, others []int, group int) float64 {
	return func(i int, others []int, group int) float64 {
		_, model := c.Group(group)
		apps := make([]string, len(others))
		for n, o := range others {
			apps[n] = trace.AppOf(jobs[o])
		}
		return ps.Rate(trace.ModelName(model), trace.AppOf(jobs[i]), apps)
	}
}

// requestedGPUs is the number of GPUs, or of parts of GPUs, that job i requests.
func (e *engine) requestedGPUs(i int) float64 {
	if e.on != nil {
		return float64(e.jobs[i].gang.GPUs())
	}
	return float64(e.Jobs[i].GPUs)
}

// RandomNeighbours returns a function for [pal.Cluster.SetInterference]. With it, jobs prefer an
// idle GPU, and otherwise get random neighbours.
func RandomNeighbours(seed uint64) func(of, by pal.Occupant) float64 {
	return func(of, by pal.Occupant) float64 {
		h := fnv.New64a()
		fmt.Fprintf(h, "%d\x00%s\x00%s", seed, of.Gang, by.Gang)
		return 1e-6 * (1 + rand.New(rand.NewPCG(h.Sum64(), seed)).Float64())
	}
}
