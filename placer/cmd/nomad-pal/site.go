// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

// site describes a cluster as init finds it, and is the data for the templates of init's files.
type site struct {
	Address, Region, Storage string
	// The TLS settings with which this command connects to Nomad.
	TLS                                               bool
	CACert, CAPath, ClientCert, ClientKey, ServerName string
	SkipVerify                                        bool
	ACL                                               bool
	TokenFile                                         string
	// Servers are the servers' RPC addresses, separated by commas.
	Servers string
	// RackMeta is the node meta key that names racks, or "" if there is none.
	RackMeta string
	// Nodes is the number of nodes with GPUs. GPUs is the number of GPUs on these nodes. A shared
	// GPU counts once, as in quotas.
	Nodes, GPUs int

	// The values of the example job, which fits nodes of one pool, driver and GPU model.
	Namespace, Pool, Driver, Device, Fits string
	Count, GPUsEach                       int
}

// lookAround reads the cluster's nodes and servers, and returns the site.
func lookAround(b *base, client *nomad.Client) (*site, error) {
	cfg := b.config()
	s := &site{
		Address: cfg.Address, Region: cfg.Region, Storage: client.Namespace(), Namespace: b.namespace,
		TLS: strings.HasPrefix(cfg.Address, "https://"), CACert: cfg.TLSConfig.CACert, CAPath: cfg.TLSConfig.CAPath,
		ClientCert: cfg.TLSConfig.ClientCert, ClientKey: cfg.TLSConfig.ClientKey, ServerName: cfg.TLSConfig.TLSServerName,
		SkipVerify: cfg.TLSConfig.Insecure,
	}
	state, err := client.ReadNodes(b.ctx)
	if err != nil {
		return nil, err
	}
	self, _, err := client.API().ACLTokens().Self((&api.QueryOptions{}).WithContext(b.ctx))
	s.ACL = !aclDisabled(self, err)
	if peers, err := client.API().Status().Peers(); err == nil {
		slices.Sort(peers)
		s.Servers = strings.Join(peers, ",")
	}
	nodes := each(slices.Sorted(maps.Keys(state.Nodes)), func(id string) *api.Node { return state.Nodes[id] })
	s.lookAtRacks(nodes)
	s.lookAtGPUs(nodes)
	return s, nil
}

// lookAtRacks finds the meta keys whose name contains "rack", and picks the key that most nodes
// have.
func (s *site) lookAtRacks(nodes []*api.Node) {
	named := map[string]int{}
	for _, n := range nodes {
		for k, v := range n.Meta {
			if strings.Contains(strings.ToLower(k), "rack") && v != "" {
				named[k]++
			}
		}
	}
	for _, k := range slices.Sorted(maps.Keys(named)) {
		if named[k] > named[s.RackMeta] || named[k] == named[s.RackMeta] && k == "rack" {
			s.RackMeta = k
		}
	}
}

// kind stands for the nodes that have the same pool, driver, GPU model and number of healthy GPUs.
// If the GPUs are shared, gpus is 1, because a task gets parts of only one GPU.
type kind struct {
	pool, driver, vendor, typ, model string
	gpus                             int
}

// fits describes the GPUs of a node.
func (k kind) fits() string {
	if k.typ == attr.SharedType {
		return "parts of " + quoted(k.model, "")
	}
	return fmt.Sprintf("%d × %s", k.gpus, quoted(k.model, ""))
}

// lookAtGPUs counts GPUs, and fits the example job to the kind of node that has the most GPUs in
// total.
func (s *site) lookAtGPUs(nodes []*api.Node) {
	s.Pool, s.Driver, s.Device, s.Count, s.GPUsEach = "default", "raw_exec", "nvidia/gpu", 1, 1
	s.Fits, s.Nodes = "a cluster with a GPU (this cluster has none yet)", len(nodes)
	models := map[string]bool{}
	kinds := map[kind]int{}
	for _, n := range nodes {
		for _, d := range cluster.GPUDevices(n) {
			gpus, healthy := map[string]bool{}, 0
			for _, g := range d.Instances {
				gpus[attr.GPUOf(g.ID)] = true
				if g.Healthy {
					healthy++
				}
			}
			if s.GPUs += len(gpus); d.Type == attr.SharedType {
				healthy = min(healthy, 1)
			}
			models[d.Vendor+d.Name] = true
			if healthy > 0 {
				driver := cmp.Or(firstHealthy(n.Drivers, "docker", "raw_exec", "exec"), "raw_exec")
				kinds[kind{n.NodePool, driver, d.Vendor, d.Type, d.Name, healthy}]++
			}
		}
	}
	if len(kinds) == 0 {
		return
	}
	best := slices.MaxFunc(slices.Collect(maps.Keys(kinds)), func(a, b kind) int {
		return cmp.Or(cmp.Compare(kinds[a]*a.gpus, kinds[b]*b.gpus), cmp.Compare(fmt.Sprint(b), fmt.Sprint(a)))
	})
	s.Pool, s.Driver = cmp.Or(best.pool, "default"), best.driver
	s.Count, s.GPUsEach = min(2, kinds[best]), best.gpus
	s.Device = best.vendor + "/" + best.typ
	if len(models) > 1 {
		s.Device += "/" + best.model
	}
	s.Fits = fmt.Sprintf("the cluster: %s with %s", counted(kinds[best], "node"), best.fits())
}

// found summarizes the cluster in one sentence.
func (s *site) found() string {
	text := fmt.Sprintf("%s has %s on %s", s.Address, pal.CountGPUs(s.GPUs), counted(s.Nodes, "node"))
	if s.RackMeta != "" {
		text += fmt.Sprintf(", racks in meta %q", s.RackMeta)
	}
	if s.ACL {
		return text + ", and access control."
	}
	return text + ", and no access control: anybody may do everything, so init writes no policies."
}

// firstHealthy returns the first of the named task drivers that is healthy on a node, or "" if none
// is.
func firstHealthy(on map[string]*api.DriverInfo, names ...string) string {
	for _, name := range names {
		if d := on[name]; d != nil && d.Detected && d.Healthy {
			return name
		}
	}
	return ""
}
