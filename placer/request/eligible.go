// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package request

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/constraint"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// nodeFits reports whether [eachLack] finds no lacks on the node.
func nodeFits(job *api.Job, g *api.TaskGroup, n *api.Node) bool {
	fits := true
	eachLack(job, g, n, func(palapi.Lack) bool { fits = false; return false })
	return fits
}

// nodeCould reports whether all lacks that [eachLack] finds on the node can end by themselves
// ([passes]).
func nodeCould(job *api.Job, g *api.TaskGroup, n *api.Node) bool {
	could := true
	eachLack(job, g, n, func(l palapi.Lack) bool { could = passes(l); return could })
	return could
}

func inDatacenters(patterns []string, dc string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, _ := path.Match(p, dc) // a malformed pattern matches nothing
		return ok || p == "*"
	})
}

func hasDriver(n *api.Node, name string) bool {
	if d, ok := n.Drivers[name]; ok {
		return d.Detected && d.Healthy
	}
	v := n.Attributes["driver."+name]
	return v == "1" || v == "true"
}

// requestMatches reports whether the name in a device request matches the device group. A request's
// name has the form type, vendor/type or vendor/type/name.
func requestMatches(request string, d *api.NodeDeviceResource) bool {
	parts := strings.SplitN(request, "/", 3)
	switch len(parts) {
	case 1:
		return parts[0] == d.Type
	case 2:
		return parts[0] == d.Vendor && parts[1] == d.Type
	default:
		return parts[0] == d.Vendor && parts[1] == d.Type && parts[2] == d.Name
	}
}

// deviceServes reports whether the device group meets the request. A constraint that excludes one
// instance of a device group excludes the whole group, because the core chooses among all instances
// of a group.
func deviceServes(r *api.RequestedDevice, d *api.NodeDeviceResource) bool {
	return requestMatches(r.Name, d) && meetsAll(r.Constraints, d)
}

// gpuRequest is what one allocation of a task group requests. One device group must provide all
// GPUs of the allocation.
type gpuRequest struct {
	group    *api.TaskGroup
	requests []*api.RequestedDevice
	gpus     int
}

// gpuRequestOf reads a group's GPU requests. gpus is 0 if the group requests none. The error
// explains why the placer cannot serve the group.
func gpuRequestOf(g *api.TaskGroup) (gpuRequest, error) {
	a := gpuRequest{group: g}
	for _, t := range g.Tasks {
		rs := rewrite.GPURequests(t)
		if len(rs) > 1 {
			return a, severalBlocks(g, t, rs)
		}
		for _, r := range rs {
			if len(a.requests) > 0 && a.requests[0].Name != r.Name {
				return a, fmt.Errorf("group %q requests %q and %q, but all GPU tasks of a group must request the same device", *g.Name, a.requests[0].Name, r.Name)
			}
			a.requests = append(a.requests, r)
		}
	}
	a.gpus = rewrite.GPUsPerMember(g)
	return a, nil
}

// severalBlocks returns the error for a task with several device blocks for GPUs.
func severalBlocks(g *api.TaskGroup, t *api.Task, rs []*api.RequestedDevice) error {
	what := fmt.Sprintf("task %q of group %q has %d GPU device blocks, but Nomad gives the task only the GPUs of the last block", t.Name, *g.Name, len(rs))
	all := 0
	for _, r := range rs {
		all += rewrite.GPUs(r)
		if r.Name != rs[0].Name {
			return fmt.Errorf("%s; for %q and %q write two groups, each with a task and a block of its own", what, rs[0].Name, r.Name)
		}
	}
	return fmt.Errorf("%s; use one block with count = %d", what, all)
}

// serves reports whether the device group meets the request.
func (a gpuRequest) serves(d *api.NodeDeviceResource) bool {
	return !slices.ContainsFunc(a.requests, func(r *api.RequestedDevice) bool { return !deviceServes(r, d) })
}

// Forbids reports whether the author's job excludes a node or GPU that one of the members uses.
// Forbids ignores nodes and GPUs that the cluster no longer has.
func (v *View) Forbids(job *api.Job, members []*cluster.Alloc) bool {
	author := rewrite.Author(job)
	return slices.ContainsFunc(members, func(m *cluster.Alloc) bool {
		i, known := v.NodeOf[m.Node]
		g := slices.IndexFunc(author.TaskGroups, func(g *api.TaskGroup) bool { return *g.Name == m.Group })
		if !known || g < 0 {
			return false
		}
		if !nodeFits(author, author.TaskGroups[g], v.Nodes[i]) {
			return true
		}
		a, err := gpuRequestOf(author.TaskGroups[g])
		return err == nil && slices.ContainsFunc(cluster.GPUDevices(v.Nodes[i]), func(d *api.NodeDeviceResource) bool {
			return !a.serves(d) && slices.ContainsFunc(d.Instances, func(gpu *api.NodeDevice) bool { return slices.Contains(m.GPUs, gpu.ID) })
		})
	})
}

// eligibility is the result of checking all device groups against a request. may marks the device
// groups that may serve the request now. could marks the device groups that could serve the request
// if all nodes were back. prefer contains the preferences: see [View.preferred]. values caches, by
// attribute, the values that spreads use. few is set if a distinct_property has too few values for
// the members; no group can then serve the request.
type eligibility struct {
	may    []bool
	could  []bool
	few    *palapi.Lack
	prefer [][]bool
	values map[string]attributeValues
	models []string // the models of could
}

// eligible checks for each device group whether Nomad may use it for the request. If the request
// names no model, and a whole GPU, free or allocated, could serve the request, eligible excludes
// MIG instances.
func (v *View) eligible(job *api.Job, a gpuRequest) eligibility {
	key := eligibilityKey(job, a)
	if e, ok := v.eligibility[key]; ok {
		return e
	}
	if len(v.eligibility) >= eligibilityKept { // most entries are of jobs that no longer exist
		clear(v.eligibility)
		clear(v.avoiding) // the keys of avoiding are addresses of eligibility's slices
	}
	e := eligibility{may: make([]bool, len(v.Devices)), could: make([]bool, len(v.Devices)), values: map[string]attributeValues{}}
	sliced := a.leavesModelOpen() && v.wholeGPU(job, a)
	for i, d := range v.Devices {
		n := v.GroupNode(i)
		e.could[i] = a.serves(d) && nodeCould(job, a.group, n) && !(sliced && cluster.IsMIG(d))
		e.may[i] = e.could[i] && cluster.NotReady(n) == "" && nodeFits(job, a.group, n)
	}
	e.few = v.fewValues(job, a, e.could)
	if e.few != nil {
		clear(e.may)
		clear(e.could)
	}
	e.prefer, e.models = v.preferred(job, a, e.may), v.namesOf(e.could)
	v.eligibility[key] = e
	return e
}

// wholeGPU reports whether some whole GPU could serve the request if its node were ready.
func (v *View) wholeGPU(job *api.Job, a gpuRequest) bool {
	for i, d := range v.Devices {
		if !cluster.IsMIG(d) && a.serves(d) && nodeCould(job, a.group, v.GroupNode(i)) {
			return true
		}
	}
	return false
}

// leastMembers returns the number of members that the group needs to start.
func leastMembers(job *api.Job, g *api.TaskGroup) int {
	is, elastic := rewrite.ElasticOf(job)
	if elastic {
		return is.Least
	}
	return rewrite.Members(g)
}

// fewValues returns a lack if a distinct_property of the job has too few values for the group's
// members. fewValues counts the values on all nodes that could serve the group.
func (v *View) fewValues(job *api.Job, a gpuRequest, could []bool) *palapi.Lack {
	members := leastMembers(job, a.group)
	for _, c := range distinctProperties(job, a.group) {
		values := map[string]bool{}
		for i := range could {
			if value, ok := constraint.NodeTarget(c.LTarget, v.GroupNode(i)); ok && could[i] {
				values[value] = true
			}
		}
		each, err := strconv.Atoi(cmp.Or(c.RTarget, "1"))
		if err == nil && len(values) > 0 && len(values)*each < members {
			return &palapi.Lack{Kind: LackProperty, Attribute: c.LTarget, Operator: c.Operand, Value: strconv.Itoa(len(values)), Need: members}
		}
	}
	return nil
}

// distinctProperties returns the distinct_property constraints that apply to the group.
func distinctProperties(job *api.Job, g *api.TaskGroup) []*api.Constraint {
	return slices.DeleteFunc(constraintsOn(job, g), func(c *api.Constraint) bool { return c.Operand != api.ConstraintDistinctProperty })
}

// constraintsOn returns all constraints that a node must meet for a group's member: those of the
// job, of the group and of the group's tasks.
func constraintsOn(job *api.Job, g *api.TaskGroup) []*api.Constraint {
	all := slices.Concat(job.Constraints, g.Constraints)
	for _, t := range g.Tasks {
		all = append(all, t.Constraints...)
	}
	return all
}

// Ever returns the smallest gang that satisfies the request. It may use all nodes that could serve
// the request, including nodes that are away.
func (v *View) Ever(r Request) pal.Gang {
	g, author := r.Least(), rewrite.Author(r.Job)
	g.MemberSets = slices.Clone(g.MemberSets)
	for i, set := range g.MemberSets {
		of := author.LookupTaskGroup(set.Name)
		if set.Members > 0 && of != nil {
			if a, err := gpuRequestOf(of); err == nil {
				g.MemberSets[i].Eligible = v.eligible(author, a).could
			}
		}
	}
	return g
}

// eligibilityKept is the maximum number of entries in the cache. An author who changes a constraint
// every second creates a new entry each time.
const eligibilityKept = 10_000

// eligibilityKey returns a key for the parts of a job that decide its eligibility: constraints,
// affinities, spreads, drivers, volumes, static ports, cores, datacenters, pool and devices. Jobs
// with equal parts share one entry of the cache, so most jobs need no pass over all device groups.
func eligibilityKey(job *api.Job, a gpuRequest) string {
	all := []any{job.Datacenters, cluster.PoolOf(job), job.Constraints, job.Affinities, a.group.Constraints, a.group.Affinities, job.Spreads, a.group.Spreads, a.group.Volumes, staticPorts(a.group)}
	if len(a.group.Volumes) > 0 || len(distinctProperties(job, a.group)) > 0 { // there may be one volume or value for each member
		all = append(all, a.group.Count, leastMembers(job, a.group))
	}
	for _, t := range a.group.Tasks {
		all = append(all, t.Driver, t.Constraints, t.Affinities)
		r := t.Resources
		if r != nil {
			all = append(all, r.Cores)
			for _, d := range r.Devices {
				if d != nil && !rewrite.IsGPU(d.Name) {
					all = append(all, d.Name, d.Count, d.Constraints)
				}
			}
		}
	}
	for _, r := range a.requests {
		all = append(all, r.Name, r.Constraints, r.Affinities)
	}
	sum := sha256.New() // a hash, because authors may write texts of any length
	if err := json.NewEncoder(sum).Encode(all); err != nil {
		panic(err) // cannot fail, because all contains only texts and numbers
	}
	return string(sum.Sum(nil))
}
