// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package simulate

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/pal/profile"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// readNomad reads the cluster from the server that Nomad's environment variables name, and the ended
// jobs from the agent's history.
func (o *options) readNomad() (trace.Trace, []pal.Node, error) {
	client, err := api.NewClient(api.DefaultConfig())
	if err != nil {
		return trace.Trace{}, nil, fmt.Errorf("connecting to Nomad: %w", err)
	}
	query := &api.QueryOptions{Namespace: "*", Params: map[string]string{"resources": "true", "meta": "true"}}
	nodes, _, err := client.Nodes().List(query)
	if err != nil {
		return trace.Trace{}, nil, fmt.Errorf("listing nodes: %w", err)
	}
	sim, err := nomadNodes(nodes, o.rules.Calibration)
	if err != nil {
		return trace.Trace{}, nil, err
	}
	c, err := pal.NewCluster(sim, o.rules.Locality)
	if err != nil {
		return trace.Trace{}, nil, fmt.Errorf("reading cluster: %w", err)
	}
	runs, err := o.Past(o.since)
	return ofRuns(runs, c), sim, err
}

// nomadNodes turns nodes with GPUs into nodes of package pal, calibrated from the raw
// measurements that they publish.
func nomadNodes(stubs []*api.NodeListStub, o profile.Options) ([]pal.Node, error) {
	var samples []profile.Sample
	var nodes []pal.Node
	slices.SortFunc(stubs, func(a, b *api.NodeListStub) int { return cmp.Compare(a.ID, b.ID) })
	for _, n := range stubs {
		if n.NodeResources == nil {
			continue
		}
		node := pal.Node{ID: n.ID, Name: n.Name, Datacenter: n.Datacenter}
		for _, d := range n.NodeResources.Devices {
			if d.Type != attr.Type || cluster.IsMIG(d) { // the simulator knows only whole GPUs
				continue
			}
			g := pal.DeviceGroup{Name: d.ID()}
			for _, in := range d.Instances {
				g.GPUs = append(g.GPUs, pal.GPU{ID: in.ID})
			}
			node.Groups = append(node.Groups, g)
			a := d.Attributes[attr.Raw]
			if a != nil && a.StringVal != nil {
				ms, err := attr.ParseMeasurements(*a.StringVal)
				if err != nil {
					return nil, fmt.Errorf("node %q: attribute %s: %w", n.Name, attr.Raw, err)
				}
				samples = append(samples, profile.SamplesOf(d.ID(), ms)...)
			}
		}
		if len(node.Groups) > 0 {
			nodes = append(nodes, node)
		}
	}
	if len(nodes) == 0 {
		return nil, fmt.Errorf("reading cluster: no node has a GPU")
	}
	return nodes, calibrate(nodes, samples, o)
}

// calibrate sets the scores and bins of GPUs with measurements.
func calibrate(nodes []pal.Node, samples []profile.Sample, o profile.Options) error {
	if len(samples) == 0 {
		return nil
	}
	p, err := profile.Build(samples, o, nil)
	if err != nil {
		return fmt.Errorf("calibrating measurements: %w", err)
	}
	for _, n := range nodes {
		for _, g := range n.Groups {
			for i := range g.GPUs {
				for k, class := range pal.AppClasses() {
					if e, ok := p.Lookup(g.GPUs[i].ID, class); ok {
						g.GPUs[i].Scores[k], g.GPUs[i].Binned[k] = e.Score, e.Value
					}
				}
			}
		}
	}
	return nil
}
