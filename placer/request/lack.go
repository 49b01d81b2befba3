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
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/constraint"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// LackKind is the kind of a [Lack].
type LackKind string

// The kinds of lacks.
const (
	LackDatacenter LackKind = "datacenter"
	LackNodePool   LackKind = "node-pool"
	LackConstraint LackKind = "constraint"        // a constraint of the job, the group or a task
	LackGPUMeets   LackKind = "device-constraint" // a constraint of a request for GPUs
	LackDriver     LackKind = "driver"
	LackHostVolume LackKind = "host-volume"
	LackWritable   LackKind = "writable-volume"
	LackCSI        LackKind = "csi-plugin"
	LackDevice     LackKind = "device"
	LackGPUs       LackKind = "gpus"  // GPUs of one model
	LackParts      LackKind = "parts" // parts of one shared GPU
	LackResource   LackKind = "resource"
	LackPort       LackKind = "port"  // reserved by the node's configuration
	LackNomad      LackKind = "nomad" // Nomad's own message
	LackProperty   LackKind = "distinct-property"
	LackReady      LackKind = "ready"
	LackHealth     LackKind = "health" // a driver or device is unhealthy
	LackFree       LackKind = "free-resource"
	LackFreeGPUs   LackKind = "free-gpus"
	LackFreePort   LackKind = "free-port"
)

// Lack is one thing that a node lacks for a group of a job.
type Lack struct {
	Kind LackKind `json:"kind"` // the kind of missing thing, such as driver or free-gpus
	// Task is the task that needs the missing thing, if only one task does.
	Task string `json:"task,omitempty"`
	// Name is the node's datacenter or pool; the driver, volume, device, resource or port that the
	// job requests; or Nomad's message.
	Name string `json:"name,omitempty"`
	// Attribute, Operator and Value are the parts of a constraint.
	Attribute string `json:"attribute,omitempty"`
	Operator  string `json:"operator,omitempty"`
	Value     string `json:"value,omitempty"`
	// Need is how much a member needs of the missing thing. For a port, Need is the port's number.
	// For a distinct_property, Need is the number of members that need different values. Have is
	// how many GPUs of one model the node has, or how many parts the node's GPUs have.
	Need int `json:"need,omitempty"`
	Have int `json:"have,omitempty"`
	// Threshold is the PM score above which GPUs do not count; 0 if outliers count, too.
	Threshold float64 `json:"threshold,omitempty"`
}

// textOf describes the lack, if possible in the words of nomad job plan.
func textOf(l Lack) string {
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

func ofDevices(l Lack) string {
	if l.Need > 1 {
		return fmt.Sprintf("%d × %s", l.Need, l.Name)
	}
	return l.Name
}

func freeGPUs(l Lack) string {
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
func passes(l Lack) bool {
	switch l.Kind {
	case LackReady, LackHealth, LackFree, LackFreeGPUs, LackFreePort:
		return true
	}
	return false
}

// isAway reports whether the lack ends when nodes, drivers or devices come back, without the end of
// any job.
func isAway(l Lack) bool { return l.Kind == LackReady || l.Kind == LackHealth }

func condition(l Lack) constraint.Condition {
	return constraint.Condition{Attribute: l.Attribute, Operator: l.Operator, Value: l.Value}
}

// unmet returns the lack for an unmet constraint.
func unmet(kind LackKind, task string, c *api.Constraint) Lack {
	return Lack{Kind: kind, Task: task, Attribute: c.LTarget, Operator: c.Operand, Value: c.RTarget}
}

// eachLack calls found for each thing that keeps Nomad from placing an allocation of the group on
// the node, until found returns false. eachLack ignores GPUs, free resources and whether the node
// is ready. job must be in its author's form, without the placer's constraints. Some lacks, for
// example of CSI volumes and of client networks, are found only by Nomad's dry run.
func eachLack(job *api.Job, g *api.TaskGroup, n *api.Node, found func(Lack) bool) {
	if !inDatacenters(job.Datacenters, n.Datacenter) && !found(Lack{Kind: LackDatacenter, Name: n.Datacenter}) {
		return
	}
	p := cluster.PoolOf(job)
	if p != cluster.PoolAll && p != n.NodePool && !found(Lack{Kind: LackNodePool, Name: n.NodePool}) {
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
	for _, more := range []func(*api.TaskGroup, *api.Node) (Lack, bool){missingVolume, missingDevice, tooFewCores, keptPort} {
		l, is := more(g, n)
		if is && !found(l) {
			return
		}
	}
}

// missingDriver returns a lack if the node has no working driver for the task.
func missingDriver(t *api.Task, n *api.Node) (Lack, bool) {
	d := n.Drivers[t.Driver]
	switch {
	case hasDriver(n, t.Driver):
		return Lack{}, false
	case d != nil && d.Detected:
		return Lack{Kind: LackHealth, Task: t.Name, Name: "driver " + t.Driver}, true
	}
	return Lack{Kind: LackDriver, Task: t.Name, Name: t.Driver}, true
}

// missingVolume returns a lack if the node does not have a host volume of the group. For a CSI
// volume, missingVolume checks only whether the node can mount any CSI volume. Nomad's dry run
// checks the rest.
func missingVolume(g *api.TaskGroup, n *api.Node) (Lack, bool) {
	for _, name := range slices.Sorted(maps.Keys(g.Volumes)) {
		vol := g.Volumes[name]
		switch {
		case vol == nil:
			continue
		case vol.Type == "csi" && len(n.CSINodePlugins) == 0:
			return Lack{Kind: LackCSI, Name: vol.Source}, true
		case vol.Type != "host":
			continue
		}
		has := hostVolume(vol, g, n)
		switch {
		case has == nil && vol.PerAlloc:
			return Lack{Kind: LackHostVolume, Name: vol.Source + "[0] and so on"}, true
		case has == nil:
			return Lack{Kind: LackHostVolume, Name: vol.Source}, true
		case has.ReadOnly && !vol.ReadOnly:
			return Lack{Kind: LackWritable, Name: vol.Source}, true
		}
	}
	return Lack{}, false
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
func missingDevice(g *api.TaskGroup, n *api.Node) (Lack, bool) {
	l, is := tooFewDevices(g, n, func(in *api.NodeDevice) bool { return in.Healthy })
	if is {
		_, lasting := tooFewDevices(g, n, func(*api.NodeDevice) bool { return true })
		if !lasting {
			return Lack{Kind: LackHealth, Task: l.Task, Name: "device " + l.Name}, true
		}
	}
	return l, is
}

func tooFewDevices(g *api.TaskGroup, n *api.Node, counts func(*api.NodeDevice) bool) (Lack, bool) {
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
				return Lack{Kind: LackDevice, Task: t.Name, Name: r.Name, Need: rewrite.GPUs(r)}, true
			}
		}
	}
	return Lack{}, false
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
func tooFewCores(g *api.TaskGroup, n *api.Node) (Lack, bool) {
	need := 0
	for _, t := range g.Tasks {
		if t.Resources != nil {
			need += cluster.Amount(t.Resources.Cores)
		}
	}
	if need == 0 || n.NodeResources == nil || n.NodeResources.Cpu.TotalCpuCores == 0 || need <= len(n.NodeResources.Cpu.ReservableCpuCores) {
		return Lack{}, false
	}
	return Lack{Kind: LackResource, Name: "reservable cores", Need: need}, true
}

// keptPort returns a lack if the node's own configuration reserves a static port of the group.
func keptPort(g *api.TaskGroup, n *api.Node) (Lack, bool) {
	kept := cluster.KeptPorts(n)
	if kept == "" {
		return Lack{}, false
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
func tooLittle(kind LackKind, need, have pal.Resources) (Lack, bool) {
	for _, r := range []struct {
		name       string
		need, have int
	}{{"MHz of CPU", need.CPU, have.CPU}, {"MB of memory", need.MemoryMB, have.MemoryMB}, {"MB of disk", need.DiskMB, have.DiskMB}} {
		if r.need > r.have {
			return Lack{Kind: kind, Name: r.name, Need: r.need}, true
		}
	}
	return Lack{}, false
}

// meetsAll reports whether the device group meets the constraints.
func meetsAll(cs []*api.Constraint, d *api.NodeDeviceResource) bool {
	return !slices.ContainsFunc(cs, func(c *api.Constraint) bool { return !constraint.DeviceMeets(c, d) })
}

// fault returns what the nodes have instead of what a constraint demands; "" if l is not about a
// constraint.
func (v *View) fault(a gpuRequest, l Lack) string {
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
