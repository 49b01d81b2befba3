// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package request

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"
	"github.com/ryanuber/go-glob"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// nodeFits reports whether the node lacks nothing that [eachLack] checks.
func nodeFits(job *api.Job, g *api.TaskGroup, n *api.Node) bool {
	fits := true
	eachLack(job, g, n, func(Lack) bool { fits = false; return false })
	return fits
}

// nodeCould reports whether the node lacks nothing that [eachLack] checks, except what can end by
// itself ([Lack.passes]).
func nodeCould(job *api.Job, g *api.TaskGroup, n *api.Node) bool {
	could := true
	eachLack(job, g, n, func(l Lack) bool { could = l.passes(); return could })
	return could
}

func inDatacenters(patterns []string, dc string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return glob.Glob(p, dc) })
}

func hasDriver(n *api.Node, name string) bool {
	if d, ok := n.Drivers[name]; ok {
		return d.Detected && d.Healthy
	}
	v := n.Attributes["driver."+name]
	return v == "1" || v == "true"
}

// requestMatches reports whether the name in a device request matches the device group. The name is
// type, vendor/type or vendor/type/name.
func requestMatches(request string, d *api.NodeDeviceResource) bool {
	switch parts := strings.SplitN(request, "/", 3); len(parts) {
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

// gpuRequestOf reads a group's GPU requests. gpus is 0 if the group has none. The error explains
// why the placer cannot serve the group.
func gpuRequestOf(g *api.TaskGroup) (gpuRequest, error) {
	a := gpuRequest{group: g}
	for _, t := range g.Tasks {
		rs := rewrite.GPURequests(t)
		if len(rs) > 1 {
			return a, severalBlocks(g, t, rs)
		}
		for _, r := range rs {
			if len(a.requests) > 0 && a.requests[0].Name != r.Name {
				return a, fmt.Errorf("group %q requests %q and %q: all GPU tasks of a group must request the same device", *g.Name, a.requests[0].Name, r.Name)
			}
			a.requests = append(a.requests, r)
		}
	}
	a.gpus = rewrite.GPUsPerMember(g)
	return a, nil
}

// severalBlocks returns the error for a task with several device blocks for GPUs.
func severalBlocks(g *api.TaskGroup, t *api.Task, rs []*api.RequestedDevice) error {
	what := fmt.Sprintf("task %q of group %q has %d GPU device blocks: Nomad gives the task the last one's GPUs only", t.Name, *g.Name, len(rs))
	all := 0
	for _, r := range rs {
		if all += rewrite.GPUs(r); r.Name != rs[0].Name {
			return fmt.Errorf("%s; for %q and %q write two groups, each with a task and a block of its own", what, rs[0].Name, r.Name)
		}
	}
	return fmt.Errorf("%s; use one block with count = %d", what, all)
}

// serves reports whether the device group meets the request.
func (a gpuRequest) serves(d *api.NodeDeviceResource) bool {
	return !slices.ContainsFunc(a.requests, func(r *api.RequestedDevice) bool { return !deviceServes(r, d) })
}

// Forbids reports whether the job, as its author wrote it, excludes a node or GPU that one of the
// members uses. Constraints, datacenters, the node pool, drivers and devices can exclude it.
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
