// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomadtest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/attr"
)

// node is a machine with a Nomad client.
type node struct {
	*api.Node
	// cut is true if the node has no network connection. The tasks of a node without connection
	// keep running, unless dead is true.
	cut bool
	// dead is true if the tasks of the node no longer exist.
	dead bool
	// times counts how often the node has gone away and come back.
	times int
}

// AddNode registers a node. If the node exists, AddNode registers it again with the new contents.
// The node must have an ID. Other fields that are missing get the values of a small machine.
func (s *Server) AddNode(n *api.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := *n
	setNodeDefaults(&own)
	own.CreateIndex = s.index + 1
	if old := s.nodes[n.ID]; old != nil {
		own.CreateIndex = old.CreateIndex
	}
	s.updateNode(&own, "NodeRegistration")
	s.capacityChanged()
}

func setNodeDefaults(n *api.Node) {
	n.Name, n.Datacenter, n.NodePool = cmp.Or(n.Name, n.ID), cmp.Or(n.Datacenter, "dc1"), cmp.Or(n.NodePool, "default")
	n.Status, n.SchedulingEligibility = cmp.Or(n.Status, api.NodeStatusReady), cmp.Or(n.SchedulingEligibility, api.NodeSchedulingEligible)
	if n.Attributes == nil {
		n.Attributes = map[string]string{"driver.raw_exec": "1", "nomad.version": "1.11.3", "kernel.name": "linux"}
	}
	if n.Drivers == nil {
		n.Drivers = map[string]*api.DriverInfo{"raw_exec": {Detected: true, Healthy: true}}
	}
	r := *cmp.Or(n.NodeResources, &api.NodeResources{})
	r.Cpu.CpuShares, r.Memory.MemoryMB, r.Disk.DiskMB = cmp.Or(r.Cpu.CpuShares, 100_000), cmp.Or(r.Memory.MemoryMB, 1<<20), cmp.Or(r.Disk.DiskMB, 1<<20)
	n.NodeResources = &r
}

// updateNode stores a node and publishes the change.
func (s *Server) updateNode(n *api.Node, event string) {
	n.ModifyIndex = s.nextIndex("nodes")
	n.StatusUpdatedAt = s.now().Unix()
	if old := s.nodes[n.ID]; old != nil {
		if old.Status == n.Status {
			n.StatusUpdatedAt = old.StatusUpdatedAt
		}
		old.Node = n
	} else {
		s.nodes[n.ID] = &node{Node: n}
	}
	s.publish(event, "Node", n.ID, "", map[string]any{"Node": n})
}

// editNode copies a node, changes the copy, and stores it.
func (s *Server) editNode(id, event string, change func(*api.Node)) error {
	n := s.nodes[id]
	if n == nil {
		return fmt.Errorf("no node %q", id)
	}
	own := *n.Node
	change(&own)
	s.updateNode(&own, event)
	return nil
}

func (s *Server) must(err error) {
	if err != nil {
		panic(err)
	}
}

// CrashNode crashes a machine. All tasks on the machine end. Nomad notices the crash when
// heartbeats are missing.
func (s *Server) CrashNode(id string) { s.disconnectNode(id, true) }

// CutNode breaks the network connection of a machine. The tasks on the machine keep running. Nomad
// counts the node as disconnected if an allocation on it has a disconnect block, and as down
// otherwise.
func (s *Server) CutNode(id string) { s.disconnectNode(id, false) }

func (s *Server) disconnectNode(id string, dead bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[id]
	if n == nil || n.cut {
		return
	}
	n.cut, n.dead, n.times = true, n.dead || dead, n.times+1
	if dead {
		for _, a := range s.sortedAllocs() {
			if a.node == id {
				a.run++
				s.releaseGPUs(a)
			}
		}
	}
	s.stopAlone(id)
	s.missHeartbeats(n, n.times)
}

// missHeartbeats lets Nomad notice that a node is away.
func (s *Server) missHeartbeats(n *node, times int) {
	id, wait := n.ID, time.Second
	if n.Status == api.NodeStatusDisconnected {
		wait = 10 * time.Second // the node is still away
	}
	s.afterJitter(wait, "heartbeats of "+id+" are missed", func() {
		n := s.nodes[id]
		if n == nil || n.times != times || n.Status == api.NodeStatusDown {
			return
		}
		status := api.NodeStatusDown
		if n.Status != api.NodeStatusInit && s.mayBeBack(id) {
			status = api.NodeStatusDisconnected
			defer s.missHeartbeats(n, times)
		}
		if n.Status != status {
			s.must(s.editNode(id, "NodeEvent", func(n *api.Node) { n.Status = status }))
			s.evaluateNode(id)
		}
	})
}

// RecoverNode brings a machine back. If the machine had no connection, its client learns a moment
// later which allocations it must stop. If the machine crashed, its client starts the allocations
// again that should keep running.
func (s *Server) RecoverNode(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[id]
	if n == nil || !n.cut {
		return
	}
	n.cut, n.times = false, n.times+1
	if n.Status != api.NodeStatusDisconnected {
		s.nodeReady(n, true)
		return
	}
	times := n.times
	s.hearOfUnknown(n)
	s.must(s.editNode(id, "NodeEvent", func(n *api.Node) { n.Status = api.NodeStatusInit }))
	s.evaluateNode(id)
	s.afterJitter(s.opts.Client, "client of "+id+" tells what it runs", func() {
		if n := s.nodes[id]; n != nil && n.times == times {
			s.reconnectAllocs(n)
			s.afterJitter(s.opts.Client, id+" is ready again", func() {
				if n := s.nodes[id]; n != nil && n.times == times {
					s.nodeReady(n, false)
				}
			})
		}
	})
}

// nodeReady marks a node as ready, so that Nomad uses it again. If tell is true, the client of the
// node reports its allocations now.
func (s *Server) nodeReady(n *node, tell bool) {
	s.must(s.editNode(n.ID, "NodeRegistration", func(n *api.Node) { n.Status = api.NodeStatusReady }))
	if tell {
		s.reconnectAllocs(n)
	}
	s.evaluateNode(n.ID)
	s.capacityChanged()
}

func (s *Server) reconnectAllocs(n *node) {
	for _, a := range s.sortedAllocs() {
		if a.node == n.ID {
			s.reconnectAlloc(a, n.dead)
		}
	}
	n.dead = false
}

// SetHealth marks GPUs as healthy or unhealthy, as if the device plugin had reported the change.
// Nomad does not stop the allocations on unhealthy GPUs.
func (s *Server) SetHealth(healthy bool, gpus ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range s.sortedNodes() {
		if changed := withHealth(s.nodes[id].Node, healthy, gpus); changed != nil {
			s.updateNode(changed, "NodeRegistration")
		}
	}
	for _, n := range s.forgotten {
		n.Node = cmp.Or(withHealth(n.Node, healthy, gpus), n.Node)
	}
	if healthy {
		s.capacityChanged()
	}
}

// withHealth returns the node with the new health of the GPUs, or nil if nothing changes.
func withHealth(n *api.Node, healthy bool, gpus []string) *api.Node {
	out, found := *n, false
	res := *n.NodeResources
	res.Devices = slices.Clone(res.Devices)
	for i, d := range res.Devices {
		dev := *d
		dev.Instances = slices.Clone(d.Instances)
		for k, in := range dev.Instances {
			if slices.Contains(gpus, in.ID) && in.Healthy != healthy {
				own := *in
				own.Healthy, own.HealthDescription, found = healthy, "", true
				if !healthy {
					own.HealthDescription = "XID 79"
				}
				dev.Instances[k] = &own
			}
		}
		dev.Attributes = maps.Clone(d.Attributes)
		res.Devices[i] = &dev
	}
	if !found {
		return nil
	}
	out.NodeResources = &res
	return &out
}

// TakeAway removes GPUs from their nodes, as if the device plugin had been configured without these
// GPUs.
func (s *Server) TakeAway(gpus ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range s.sortedNodes() {
		s.must(s.editNode(id, "NodeRegistration", func(n *api.Node) {
			res := *n.NodeResources
			res.Devices = slices.Clone(res.Devices)
			for i, d := range res.Devices {
				dev := *d
				dev.Instances = slices.DeleteFunc(slices.Clone(d.Instances), func(in *api.NodeDevice) bool { return slices.Contains(gpus, in.ID) })
				res.Devices[i] = &dev
			}
			n.NodeResources = &res
		}))
	}
}

// PurgeNode deletes a node from Nomad. The machine of the node never comes back. Nomad publishes no
// event about the purge (seen on 1.11.3).
func (s *Server) PurgeNode(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.purgeNode(id, 0)
}

// purgeNode removes a node. The scheduler evaluates the jobs on the node after the given time.
func (s *Server) purgeNode(id string, after time.Duration) {
	s.nextIndex("nodes")
	delete(s.nodes, id)
	s.after(after, "jobs on the purged "+id+" are evaluated", func() { s.evaluateNode(id) })
}

// ForgetNode deletes a node from Nomad, but the machine of the node still runs. The tasks on the
// machine keep running, but Nomad counts them as lost. At its next heartbeat, the client notices
// the deletion and registers the node again with the same id (scenarios "node purged" and "node
// purged without other room"). heartbeat is the minimum time until the next heartbeat; the maximum
// is twice as long. scheduler is the time until Nomad evaluates the jobs of the node. An allocation
// that is back by then is not lost.
func (s *Server) ForgetNode(id string, heartbeat, scheduler time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[id]
	if n == nil || n.cut {
		return
	}
	n.times++
	s.purgeNode(id, scheduler)
	s.forgotten[id] = n
	s.afterJitter(heartbeat, "client of "+id+" registers again", func() {
		delete(s.forgotten, id)
		if s.nodes[id] != nil {
			return
		}
		own := *n.Node
		own.Status, own.CreateIndex, own.SchedulingEligibility, own.Drain, own.DrainStrategy = api.NodeStatusInit, s.index+1, api.NodeSchedulingEligible, false, nil
		s.updateNode(&own, "NodeRegistration")
		again := s.nodes[id]
		again.times = n.times
		s.afterJitter(s.opts.Client, id+" is ready again", func() {
			if s.nodes[id] == again && again.times == n.times && !again.cut {
				s.nodeReady(again, true)
				for _, a := range s.sortedAllocs() {
					if a.node == id {
						s.killUnknown(a)
					}
				}
			}
		})
	})
}

// HasNode reports whether Nomad knows a node.
func (s *Server) HasNode(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes[id] != nil
}

// SetEligible makes a node eligible or ineligible. Making the node eligible ends a drain of the
// node.
func (s *Server) SetEligible(id string, eligible bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.must(s.editNode(id, "NodeEligibility", func(n *api.Node) {
		n.SchedulingEligibility = api.NodeSchedulingIneligible
		if eligible {
			n.SchedulingEligibility, n.Drain, n.DrainStrategy = api.NodeSchedulingEligible, false, nil
		}
	}))
	if eligible {
		s.capacityChanged()
	}
}

func (s *Server) sortedNodes() []string { return slices.Sorted(maps.Keys(s.nodes)) }

// ShareGPU adds a shared GPU with the given number of parts to a node. The parts are named
// "GPU-s-<node>::0" and so on.
func ShareGPU(n *api.Node, parts int) *api.Node {
	d := &api.NodeDeviceResource{Vendor: attr.Vendor, Type: attr.SharedType, Name: "Tesla V100-SXM2-16GB" + attr.SharedSuffix, Attributes: map[string]*api.Attribute{}}
	for k := range parts {
		d.Instances = append(d.Instances, &api.NodeDevice{ID: attr.PartID("GPU-s-"+n.Name, k), Healthy: true})
	}
	n.NodeResources.Devices = append(n.NodeResources.Devices, d)
	return n
}

// GPUNode returns the node with number n. The node has GPUs of one model, named GPU-n-k.
func GPUNode(n, gpus int) *api.Node {
	d := &api.NodeDeviceResource{Vendor: "nvidia", Type: "gpu", Name: "NVIDIA H200", Attributes: map[string]*api.Attribute{}}
	for k := range gpus {
		d.Instances = append(d.Instances, &api.NodeDevice{ID: fmt.Sprintf("GPU-%d-%d", n, k), Healthy: true})
	}
	return &api.Node{
		ID: fmt.Sprintf("%08x-0000-0000-0000-000000000000", n+1), Name: "node-" + strconv.Itoa(n),
		Meta:          map[string]string{"rack": fmt.Sprintf("r%d", n/2)},
		NodeResources: &api.NodeResources{Devices: []*api.NodeDeviceResource{d}},
	}
}
