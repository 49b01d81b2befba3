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

// LackKind is a kind of thing that a node may lack for a group of a job.
type LackKind string

// The kinds.
const (
	LackDatacenter LackKind = "datacenter"
	LackNodePool   LackKind = "node-pool"
	LackConstraint LackKind = "constraint"        // of the job, the group or a task
	LackGPUMeets   LackKind = "device-constraint" // of a request for GPUs
	LackDriver     LackKind = "driver"
	LackHostVolume LackKind = "host-volume"
	LackWritable   LackKind = "writable-volume"
	LackCSI        LackKind = "csi-plugin"
	LackDevice     LackKind = "device"
	LackGPUs       LackKind = "gpus" // of one model
	LackResource   LackKind = "resource"
	LackPort       LackKind = "port"  // the node keeps it for itself
	LackNomad      LackKind = "nomad" // what Nomad itself says, in its words
	LackProperty   LackKind = "distinct-property"
	LackReady      LackKind = "ready"
	LackHealth     LackKind = "health" // of a driver or device
	LackFree       LackKind = "free-resource"
	LackFreeGPUs   LackKind = "free-gpus"
	LackFreePort   LackKind = "free-port"
)

// Lack is one thing that a node lacks for a group of a job.
type Lack struct {
	Kind LackKind `json:"kind"`
	// Task is the task that needs it, if only one does.
	Task string `json:"task,omitempty"`
	// Name is that of the node's datacenter or pool, and of the driver, volume, device, resource
	// or port that the job asks for; else what Nomad says.
	Name string `json:"name,omitempty"`
	// Attribute, Operator and Value are those of a constraint.
	Attribute string `json:"attribute,omitempty"`
	Operator  string `json:"operator,omitempty"`
	Value     string `json:"value,omitempty"`
	// Need is how many or how much of it a member needs, and Have how many GPUs of one model the node has.
	Need int `json:"need,omitempty"`
	Have int `json:"have,omitempty"`
	// Threshold is the PM score above which GPUs do not count, if outliers are left out.
	Threshold float64 `json:"threshold,omitempty"`
}

// String is the lack in words: as nomad job plan says it, where that says it.
func (l Lack) String() string {
	switch l.Kind {
	case LackDatacenter:
		return fmt.Sprintf("datacenter %q is not among the job's", l.Name)
	case LackNodePool:
		return fmt.Sprintf("node pool %q is not the job's", l.Name)
	case LackConstraint:
		return "constraint " + l.condition().String()
	case LackGPUMeets:
		return "device constraint " + l.condition().String()
	case LackDriver:
		return "missing drivers: " + l.Name
	case LackHostVolume:
		return "missing host volume: " + l.Name
	case LackWritable:
		return fmt.Sprintf("host volume %s is read-only", l.Name)
	case LackCSI:
		return "no CSI plugin to mount volume " + l.Name
	case LackDevice:
		return "missing devices: " + l.ofDevices()
	case LackGPUs:
		return fmt.Sprintf("only %d GPUs of one model", l.Have)
	case LackResource:
		return fmt.Sprintf("nodes have less than %d %s", l.Need, l.Name)
	case LackPort:
		return fmt.Sprintf("the node keeps port %d (%s) for itself", l.Need, l.Name)
	case LackProperty:
		return fmt.Sprintf("distinct_property %s: %d members, and too few values for them: %s", l.Attribute, l.Need, l.Value)
	case LackHealth:
		return l.Name + " is not healthy"
	case LackFree:
		return fmt.Sprintf("less than %d %s are free", l.Need, l.Name)
	case LackFreeGPUs:
		return l.freeGPUs()
	case LackFreePort:
		return fmt.Sprintf("static port %d (%s) is in use", l.Need, l.Name)
	}
	return l.Name
}

func (l Lack) ofDevices() string {
	if l.Need > 1 {
		return fmt.Sprintf("%d × %s", l.Need, l.Name)
	}
	return l.Name
}

func (l Lack) freeGPUs() string {
	text := fmt.Sprintf("fewer than %d matching GPUs are free", l.Need)
	if l.Need == 1 {
		text = "no matching GPUs are free"
	}
	if l.Threshold != 0 {
		text += fmt.Sprintf(" that are no outliers (outlier_threshold %g)", l.Threshold)
	}
	return text
}

// passes reports whether nodes may have it as jobs end and nodes come back.
func (l Lack) passes() bool {
	switch l.Kind {
	case LackReady, LackHealth, LackFree, LackFreeGPUs, LackFreePort:
		return true
	}
	return false
}

// away reports whether it passes once nodes, or what is on them, are back, whatever other jobs do.
func (l Lack) away() bool { return l.Kind == LackReady || l.Kind == LackHealth }

func (l Lack) condition() constraint.Condition {
	return constraint.Condition{Attribute: l.Attribute, Operator: l.Operator, Value: l.Value}
}

// unmet is the lack of a constraint.
func unmet(kind LackKind, task string, c *api.Constraint) Lack {
	return Lack{Kind: kind, Task: task, Attribute: c.LTarget, Operator: c.Operand, Value: c.RTarget}
}

// eachLack has found told, until that returns false, of all that keeps Nomad from placing an
// allocation of the group on the node when it is ready, GPUs and free resources apart. Author's
// form of the job: our own constraints are not looked at. What only Nomad's dry run knows, as of
// CSI volumes and of a client's networks, it does not tell.
func eachLack(job *api.Job, g *api.TaskGroup, n *api.Node, found func(Lack) bool) {
	if !inDatacenters(job.Datacenters, n.Datacenter) && !found(Lack{Kind: LackDatacenter, Name: n.Datacenter}) {
		return
	}
	if p := cluster.PoolOf(job); p != cluster.PoolAll && p != n.NodePool && !found(Lack{Kind: LackNodePool, Name: n.NodePool}) {
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
		if l, is := missingDriver(t, n); is && !found(l) {
			return
		}
	}
	for _, more := range []func(*api.TaskGroup, *api.Node) (Lack, bool){missingVolume, missingDevice, tooFewCores, keptPort} {
		if l, is := more(g, n); is && !found(l) {
			return
		}
	}
}

// missingDriver is the task's driver, if the node has none that works.
func missingDriver(t *api.Task, n *api.Node) (Lack, bool) {
	switch d := n.Drivers[t.Driver]; {
	case hasDriver(n, t.Driver):
		return Lack{}, false
	case d != nil && d.Detected:
		return Lack{Kind: LackHealth, Task: t.Name, Name: "driver " + t.Driver}, true
	}
	return Lack{Kind: LackDriver, Task: t.Name, Name: t.Driver}, true
}

// missingVolume is a host volume that the group wants and the node does not have. Of a CSI
// volume it tells only whether the node could mount any: the rest Nomad's dry run knows.
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
		switch has := hostVolume(vol, g, n); {
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

// hostVolume is the node's volume for some member of the group; nil if it has none.
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

// missingDevice is a device other than GPUs of the placer's that a task asks for and the node does
// not have in sufficient number, healthy, for all of the group's tasks: as Nomad counts, free or not.
func missingDevice(g *api.TaskGroup, n *api.Node) (Lack, bool) {
	l, is := tooFewDevices(g, n, func(in *api.NodeDevice) bool { return in.Healthy })
	if is {
		if _, lasting := tooFewDevices(g, n, func(*api.NodeDevice) bool { return true }); !lasting {
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
				if requestMatches(r.Name, d) && meetsAll(r.Constraints, d) {
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

// countDevices counts the instances of each of the node's device groups that count.
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

// tooFewCores is that the node has fewer cores than one member reserves (cores), if it says how many.
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
	return Lack{Kind: LackResource, Name: "cores to reserve", Need: need}, true
}

// keptPort is a static port of the group that the node's own configuration reserves.
func keptPort(g *api.TaskGroup, n *api.Node) (Lack, bool) {
	kept := cluster.KeptPorts(n)
	if kept == "" {
		return Lack{}, false
	}
	ports := staticPorts(g)
	for _, label := range slices.Sorted(maps.Keys(ports)) {
		if inPorts(kept, ports[label]) {
			return Lack{Kind: LackPort, Name: label, Need: ports[label]}, true
		}
	}
	return Lack{}, false
}

// inPorts reports whether a list such as "22,8000-8100" has the port.
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

// tooLittle is the first resource that a node has too little of.
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

// fault is why no node can have what a constraint asks for; nil of other lacks.
func (v *View) fault(a gpuRequest, l Lack) *constraint.Fault {
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
	return nil
}
