// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package request

import (
	"fmt"
	"maps"
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

// The kinds of lacks.
const (
	LackDatacenter palapi.LackKind = "datacenter"
	LackNodePool   palapi.LackKind = "node-pool"
	LackConstraint palapi.LackKind = "constraint"        // a constraint of the job, the group or a task
	LackGPUMeets   palapi.LackKind = "device-constraint" // a constraint of a request for GPUs
	LackDriver     palapi.LackKind = "driver"
	LackHostVolume palapi.LackKind = "host-volume"
	LackWritable   palapi.LackKind = "writable-volume"
	LackCSI        palapi.LackKind = "csi-plugin"
	LackDevice     palapi.LackKind = "device"
	LackGPUs       palapi.LackKind = "gpus"  // GPUs of one model
	LackParts      palapi.LackKind = "parts" // parts of one shared GPU
	LackResource   palapi.LackKind = "resource"
	LackPort       palapi.LackKind = "port"  // reserved by the node's configuration
	LackNomad      palapi.LackKind = "nomad" // Nomad's own message
	LackProperty   palapi.LackKind = "distinct-property"
	LackReady      palapi.LackKind = "ready"
	LackHealth     palapi.LackKind = "health" // a driver or device is unhealthy
	LackFree       palapi.LackKind = "free-resource"
	LackFreeGPUs   palapi.LackKind = "free-gpus"
	LackFreePort   palapi.LackKind = "free-port"
)

// textOf describes the lack, if possible in the words of nomad job plan.
func textOf(l palapi.Lack) string {
	switch l.Kind {
	case LackDatacenter:
		return fmt.Sprintf("datacenter %q is not one of the job's datacenters", l.Name)
	case LackNodePool:
		return fmt.Sprintf("node pool %q is not the job's node pool", l.Name)
	case LackConstraint:
		return "constraint " + condition(l).String()
	case LackGPUMeets:
		return "device constraint " + condition(l).String()
	case LackDriver:
		return "missing drivers: " + l.Name
	case LackHostVolume:
		return "missing host volume: " + l.Name
	case LackWritable:
		return fmt.Sprintf("host volume %s is read-only", l.Name)
	case LackCSI:
		return "no CSI plugin to mount volume " + l.Name
	case LackDevice:
		return "missing devices: " + ofDevices(l)
	case LackGPUs:
		return fmt.Sprintf("only %d GPUs of one model", l.Have)
	case LackParts:
		return fmt.Sprintf("a GPU has only %d parts", l.Have)
	case LackResource:
		return fmt.Sprintf("nodes have less than %d %s", l.Need, l.Name)
	case LackPort:
		return fmt.Sprintf("the node's configuration reserves port %d (%s)", l.Need, l.Name)
	case LackProperty:
		return fmt.Sprintf("distinct_property %s has too few values for %d members: %s", l.Attribute, l.Need, l.Value)
	case LackHealth:
		return l.Name + " is not healthy"
	case LackFree:
		return fmt.Sprintf("less than %d %s are free", l.Need, l.Name)
	case LackFreeGPUs:
		return freeGPUs(l)
	case LackFreePort:
		return fmt.Sprintf("static port %d (%s) is in use", l.Need, l.Name)
	}
	return l.Name
}

func ofDevices(l palapi.Lack) string {
	if l.Need > 1 {
		return fmt.Sprintf("%d × %s", l.Need, l.Name)
	}
	return l.Name
}

func freeGPUs(l palapi.Lack) string {
	text := fmt.Sprintf("fewer than %d matching GPUs are free", l.Need)
	if l.Need == 1 {
		text = "no matching GPUs are free"
	}
	if l.Threshold != 0 {
		text += fmt.Sprintf(", not counting outliers (outlier_threshold %g)", l.Threshold)
	}
	return text
}

// passes reports whether the lack can end by itself, when jobs end or nodes come back.
func passes(l palapi.Lack) bool {
	switch l.Kind {
	case LackReady, LackHealth, LackFree, LackFreeGPUs, LackFreePort:
		return true
	}
	return false
}

// isAway reports whether the lack ends when nodes, drivers or devices come back, without the end of
// any job.
func isAway(l palapi.Lack) bool { return l.Kind == LackReady || l.Kind == LackHealth }

func condition(l palapi.Lack) constraint.Condition {
	return constraint.Condition{Attribute: l.Attribute, Operator: l.Operator, Value: l.Value}
}

// unmet returns the lack for an unmet constraint.
func unmet(kind palapi.LackKind, task string, c *api.Constraint) palapi.Lack {
	return palapi.Lack{Kind: kind, Task: task, Attribute: c.LTarget, Operator: c.Operand, Value: c.RTarget}
}

// eachLack calls found for each thing that keeps an allocation of the group off the node, until
// found returns false. GPUs, free resources and the node's readiness do not count. job must be in
// its author's form, without the placer's constraints. Some lacks, for example of CSI volumes and
// of client networks, are found only by Nomad's dry run.
func eachLack(job *api.Job, g *api.TaskGroup, n *api.Node, found func(palapi.Lack) bool) {
	if !inDatacenters(job.Datacenters, n.Datacenter) && !found(palapi.Lack{Kind: LackDatacenter, Name: n.Datacenter}) {
		return
	}
	p := cluster.PoolOf(job)
	if p != cluster.PoolAll && p != n.NodePool && !found(palapi.Lack{Kind: LackNodePool, Name: n.NodePool}) {
		return
	}
	constraints := func(task string, cs []*api.Constraint) bool {
		for _, c := range cs {
			if !constraint.NodeMeets(c, n) && !found(unmet(LackConstraint, task, c)) {
				return false
			}
		}
		return true
	}
	if !constraints("", job.Constraints) || !constraints("", g.Constraints) {
		return
	}
	for _, t := range g.Tasks {
		if !constraints(t.Name, t.Constraints) {
			return
		}
		l, is := missingDriver(t, n)
		if is && !found(l) {
			return
		}
	}
	for _, more := range []func(*api.TaskGroup, *api.Node) (palapi.Lack, bool){missingVolume, missingDevice, tooFewCores, keptPort} {
		l, is := more(g, n)
		if is && !found(l) {
			return
		}
	}
}

// missingDriver returns a lack if the node has no working driver for the task.
func missingDriver(t *api.Task, n *api.Node) (palapi.Lack, bool) {
	d := n.Drivers[t.Driver]
	switch {
	case hasDriver(n, t.Driver):
		return palapi.Lack{}, false
	case d != nil && d.Detected:
		return palapi.Lack{Kind: LackHealth, Task: t.Name, Name: "driver " + t.Driver}, true
	}
	return palapi.Lack{Kind: LackDriver, Task: t.Name, Name: t.Driver}, true
}

// missingVolume returns a lack if the node does not have a host volume of the group. For a CSI
// volume, missingVolume checks only whether the node can mount any CSI volume. Nomad's dry run
// checks the rest.
func missingVolume(g *api.TaskGroup, n *api.Node) (palapi.Lack, bool) {
	for _, name := range slices.Sorted(maps.Keys(g.Volumes)) {
		vol := g.Volumes[name]
		switch {
		case vol == nil:
			continue
		case vol.Type == "csi" && len(n.CSINodePlugins) == 0:
			return palapi.Lack{Kind: LackCSI, Name: vol.Source}, true
		case vol.Type != "host":
			continue
		}
		has := hostVolume(vol, g, n)
		switch {
		case has == nil && vol.PerAlloc:
			return palapi.Lack{Kind: LackHostVolume, Name: vol.Source + "[0] and so on"}, true
		case has == nil:
			return palapi.Lack{Kind: LackHostVolume, Name: vol.Source}, true
		case has.ReadOnly && !vol.ReadOnly:
			return palapi.Lack{Kind: LackWritable, Name: vol.Source}, true
		}
	}
	return palapi.Lack{}, false
}

// hostVolume returns the node's volume for some member of the group, or nil if the node has none.
func hostVolume(vol *api.VolumeRequest, g *api.TaskGroup, n *api.Node) *api.HostVolumeInfo {
	if !vol.PerAlloc {
		return n.HostVolumes[vol.Source]
	}
	for name, has := range n.HostVolumes {
		number, ok := strings.CutPrefix(name, vol.Source+"[")
		i, err := strconv.Atoi(strings.TrimSuffix(number, "]"))
		if ok && err == nil && i >= 0 && i < rewrite.Members(g) {
			return has
		}
	}
	return nil
}

// missingDevice returns a lack if the node has too few healthy devices for all of the group's
// tasks. missingDevice checks only devices that are not the placer's GPUs and, like Nomad, also
// counts devices in use.
func missingDevice(g *api.TaskGroup, n *api.Node) (palapi.Lack, bool) {
	l, is := tooFewDevices(g, n, func(in *api.NodeDevice) bool { return in.Healthy })
	if is {
		_, lasting := tooFewDevices(g, n, func(*api.NodeDevice) bool { return true })
		if !lasting {
			return palapi.Lack{Kind: LackHealth, Task: l.Task, Name: "device " + l.Name}, true
		}
	}
	return l, is
}

func tooFewDevices(g *api.TaskGroup, n *api.Node, counts func(*api.NodeDevice) bool) (palapi.Lack, bool) {
	var left map[*api.NodeDeviceResource]int
	for _, t := range g.Tasks {
		if t.Resources == nil {
			continue
		}
		for _, r := range t.Resources.Devices {
			if r == nil || rewrite.IsGPU(r.Name) {
				continue
			}
			if left == nil {
				left = countDevices(n, counts)
			}
			need := rewrite.GPUs(r)
			for _, d := range cluster.DevicesOf(n) {
				if deviceServes(r, d) {
					taken := min(need, left[d])
					need, left[d] = need-taken, left[d]-taken
				}
			}
			if need > 0 {
				return palapi.Lack{Kind: LackDevice, Task: t.Name, Name: r.Name, Need: rewrite.GPUs(r)}, true
			}
		}
	}
	return palapi.Lack{}, false
}

// countDevices returns, for each of the node's device groups, the number of instances for which the
// function counts returns true.
func countDevices(n *api.Node, counts func(*api.NodeDevice) bool) map[*api.NodeDeviceResource]int {
	of := map[*api.NodeDeviceResource]int{}
	for _, d := range cluster.DevicesOf(n) {
		for _, in := range d.Instances {
			if in != nil && counts(in) {
				of[d]++
			}
		}
	}
	return of
}

// tooFewCores returns a lack if the node has fewer reservable cores than one member requests (key
// cores). A node that does not report its cores counts as having enough.
func tooFewCores(g *api.TaskGroup, n *api.Node) (palapi.Lack, bool) {
	need := 0
	for _, t := range g.Tasks {
		if t.Resources != nil {
			need += cluster.Amount(t.Resources.Cores)
		}
	}
	if need == 0 || n.NodeResources == nil || n.NodeResources.Cpu.TotalCpuCores == 0 || need <= len(n.NodeResources.Cpu.ReservableCpuCores) {
		return palapi.Lack{}, false
	}
	return palapi.Lack{Kind: LackResource, Name: "reservable cores", Need: need}, true
}

// keptPort returns a lack if the node's own configuration reserves a static port of the group.
func keptPort(g *api.TaskGroup, n *api.Node) (palapi.Lack, bool) {
	kept := cluster.KeptPorts(n)
	if kept == "" {
		return palapi.Lack{}, false
	}
	return firstPort(LackPort, staticPorts(g), func(port int) bool { return inPorts(kept, port) })
}

// inPorts reports whether a list such as "22,8000-8100" contains the port.
func inPorts(list string, port int) bool {
	for part := range strings.SplitSeq(list, ",") {
		from, to, is := strings.Cut(strings.TrimSpace(part), "-")
		low, err1 := strconv.Atoi(strings.TrimSpace(from))
		high, err2 := strconv.Atoi(strings.TrimSpace(to))
		if !is {
			high, err2 = low, err1
		}
		if err1 == nil && err2 == nil && low <= port && port <= high {
			return true
		}
	}
	return false
}

// tooLittle returns a lack for the first resource of which there is less than needed.
func tooLittle(kind palapi.LackKind, need, have pal.Resources) (palapi.Lack, bool) {
	for _, r := range []struct {
		name       string
		need, have int
	}{{"MHz of CPU", need.CPU, have.CPU}, {"MB of memory", need.MemoryMB, have.MemoryMB}, {"MB of disk", need.DiskMB, have.DiskMB}} {
		if r.need > r.have {
			return palapi.Lack{Kind: kind, Name: r.name, Need: r.need}, true
		}
	}
	return palapi.Lack{}, false
}

// meetsAll reports whether the device group meets the constraints.
func meetsAll(cs []*api.Constraint, d *api.NodeDeviceResource) bool {
	return !slices.ContainsFunc(cs, func(c *api.Constraint) bool { return !constraint.DeviceMeets(c, d) })
}

// fault returns what the nodes have instead of what a constraint demands; "" if l is not about a
// constraint.
func (v *View) fault(a gpuRequest, l palapi.Lack) string {
	c := &api.Constraint{LTarget: l.Attribute, Operand: l.Operator, RTarget: l.Value}
	switch l.Kind {
	case LackConstraint:
		return constraint.NodeFault(c, v.Nodes)
	case LackGPUMeets:
		named := slices.DeleteFunc(slices.Clone(v.Devices), func(d *api.NodeDeviceResource) bool {
			return slices.ContainsFunc(a.requests, func(r *api.RequestedDevice) bool { return !requestMatches(r.Name, d) })
		})
		return constraint.DeviceFault(c, named)
	}
	return ""
}
