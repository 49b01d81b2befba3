// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package simulate

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/sim"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// gpuModel is a GPU model of a cluster, and its number of GPUs.
type gpuModel struct {
	name string
	gpus int
}

// fleet lists the GPU models of a cluster: 16xV100,16xP100.
type fleet []gpuModel

func (f fleet) String() string {
	var parts []string
	for _, m := range f {
		parts = append(parts, fmt.Sprintf("%dx%s", m.gpus, m.name))
	}
	return strings.Join(parts, ",")
}

// Set reads the value of -gpus.
func (f *fleet) Set(s string) error {
	*f = nil
	for part := range strings.SplitSeq(s, ",") {
		count, name, ok := strings.Cut(strings.TrimSpace(part), "x")
		n, err := strconv.Atoi(count)
		if !ok || err != nil || n <= 0 || n > pal.MaxGPUs || name == "" || strings.ContainsAny(name, "/") {
			return fmt.Errorf("%q is not COUNTxMODEL, such as 16xV100", part)
		}
		if slices.ContainsFunc(*f, func(m gpuModel) bool { return m.name == name }) {
			return fmt.Errorf("%s is listed twice", name)
		}
		*f = append(*f, gpuModel{name, n})
	}
	return nil
}

// checkModels checks -gpus.
func (o *options) checkModels() error {
	if len(o.fleet) == 0 {
		return nil
	}
	if o.set["nodes"] {
		return errors.New("-gpus cannot be combined with -nodes: it says how many GPUs of each model there are")
	}
	o.nodes = 0
	for _, m := range o.fleet {
		if m.gpus%o.gpusPerNode != 0 {
			return fmt.Errorf("-gpus: %d GPUs of %s cannot be divided into nodes of %d GPUs (-gpus-per-node)", m.gpus, m.name, o.gpusPerNode)
		}
		o.nodes += m.gpus / o.gpusPerNode
	}
	return nil
}

// widest returns the largest number of nodes of one model. No gang runs on two models.
func (o *options) widest() int {
	if len(o.fleet) == 0 {
		return o.nodes
	}
	return slices.MaxFunc(o.fleet, func(a, b gpuModel) int { return cmp.Compare(a.gpus, b.gpus) }).gpus / o.gpusPerNode
}

// onModels gives the jobs of the trace their speeds on the cluster's models.
func (o *options) onModels(t trace.Trace, nodes []pal.Node) (trace.Trace, error) {
	var models []string
	for _, n := range nodes {
		for _, g := range n.Groups {
			if !slices.Contains(models, g.Name) {
				models = append(models, g.Name)
			}
		}
	}
	on := t.OnModels(models)
	if len(on.Jobs) > 0 {
		return on, nil
	}
	var names []string // of the models for which there are speeds
	for _, j := range t.Jobs {
		names = slices.AppendSeq(names, maps.Keys(j.Speeds))
	}
	slices.Sort(names)
	has := "-gpus does not give the models of the cluster"
	if len(o.fleet) > 0 || o.fromHistory {
		has = "the cluster has only GPUs of " + strings.Join(models, ", ")
	}
	return t, fmt.Errorf("the jobs of %s have speeds on %s, but %s", t.Name, strings.Join(slices.Compact(names), ", "), has)
}

// mixedNodes returns the nodes of all models. The models alternate, so that no model comes first.
// Each model has its own PM scores and classes.
func (o *options) mixedNodes() ([]pal.Node, error) {
	var each [][]pal.Node
	for i, m := range o.fleet {
		p, err := o.population(m.gpus/o.gpusPerNode, o.seed+uint64(i))
		if err != nil {
			return nil, err
		}
		nodes, err := p.PalNodes(o.rules.Calibration.Bin)
		if err != nil {
			return nil, err
		}
		for n := range nodes {
			nodes[n].ID = fmt.Sprintf("%s-%d", m.name, n)
			nodes[n].Name, nodes[n].Groups[0].Name = nodes[n].ID, "nvidia/"+attr.Type+"/"+m.name
			for u := range nodes[n].Groups[0].GPUs {
				nodes[n].Groups[0].GPUs[u].ID = fmt.Sprintf("%s-%d", nodes[n].ID, u)
			}
		}
		each = append(each, nodes)
	}
	var all []pal.Node
	for n := range o.widest() {
		for _, nodes := range each {
			if n < len(nodes) {
				all = append(all, nodes[n])
			}
		}
	}
	return all, nil
}

// ignoreSpeeds makes the jobs run on any GPU model, slower on slower models, because baselines know
// no speeds.
func ignoreSpeeds(cfg *sim.Config) {
	cfg.Gang = func(j trace.Job) pal.Gang {
		g := sim.GangOf(j)
		g.Speeds = nil
		return g
	}
	jobs, c := cfg.Jobs, cfg.Cluster
	cfg.Slower = func(i int, p pal.Placement) float64 {
		_, model := c.Group(p.Members[0].Group)
		s := jobs[i].Speeds.On(model)
		if s > 0 {
			return 1 / s
		}
		return 1
	}
}
