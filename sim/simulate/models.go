// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package simulate

import (
	"cmp"
	"errors"
	"flag"
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

// The ways to choose a gang's GPU model.
const (
	chooseOurs    = "advantage"
	chooseFastest = "fastest"
	chooseSlowest = "slowest-in-time"
	chooseAny     = "agnostic"
)

// inTime limits the run time under chooseSlowest: a job without a deadline may take at most inTime
// × its time on its fastest model.
const inTime = 1.5

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

// names returns the names of the models.
func (f fleet) names() (names []string) {
	for _, m := range f {
		names = append(names, m.name)
	}
	return names
}

func (o *options) modelFlags(f *flag.FlagSet) {
	f.Var(&o.fleet, "gpus", "a cluster of several GPU models in place of -nodes: `COUNTxMODEL,…`, such as 16xV100,16xP100; a node has -gpus-per-node GPUs of one model, and -outliers and -profile apply to each model")
	f.StringVar(&o.speeds, "speeds", "", "read from `FILE` how fast the applications of the jobs run on each GPU model: columns model, gpu_model and rate (work per second), or Sia's (gpu_type, model, local_batch, step_s); -generate mixed draws from its applications")
	f.StringVar(&o.choice, "model-choice", chooseOurs, fmt.Sprintf("how to choose the GPU model of a job whose speeds are known. %s: as the agent does, by its gain against that of others. %s: the fastest that is free. %s: the slowest that meets its deadline; a job without one takes at most %v times as long as on its fastest. %s: any model, as baselines always do.", chooseOurs, chooseFastest, chooseSlowest, inTime, chooseAny))
}

// checkModels checks -gpus and how models are chosen.
func (o *options) checkModels() error {
	if !slices.Contains([]string{chooseOurs, chooseFastest, chooseSlowest, chooseAny}, o.choice) {
		return fmt.Errorf("-model-choice %q is unknown (one of %s, %s, %s, %s)", o.choice, chooseOurs, chooseFastest, chooseSlowest, chooseAny)
	}
	if len(o.fleet) == 0 {
		if o.generate == "mixed" && o.trace == "" && !o.ofNomad() {
			return errors.New("-generate mixed needs a cluster of several GPU models, such as -gpus 16xV100,16xP100,16xK80")
		}
		return nil
	}
	switch {
	case o.ofNomad():
		return errors.New("-gpus cannot be combined with -from-nomad or -from-history, which read the cluster")
	case o.set["nodes"]:
		return errors.New("-gpus cannot be combined with -nodes: it says how many GPUs of each model there are")
	}
	o.nodes = 0
	for _, m := range o.fleet {
		if m.gpus%o.gpusPerNode != 0 {
			return fmt.Errorf("-gpus: %d GPUs of %s are not whole nodes of %d (-gpus-per-node)", m.gpus, m.name, o.gpusPerNode)
		}
		o.nodes += m.gpus / o.gpusPerNode
	}
	return nil
}

// widest is the largest number of nodes of one model. No gang runs on two models.
func (o *options) widest() int {
	if len(o.fleet) == 0 {
		return o.nodes
	}
	return slices.MaxFunc(o.fleet, func(a, b gpuModel) int { return cmp.Compare(a.gpus, b.gpus) }).gpus / o.gpusPerNode
}

// mixed generates jobs whose speeds differ by model.
func (o *options) mixed() (trace.Trace, error) {
	models := o.fleet.names()
	apps, err := trace.Applications(models)
	if o.speeds != "" {
		_, apps, err = trace.ReadSpeeds(o.speeds)
	}
	if err != nil {
		return trace.Trace{}, err
	}
	return trace.Mixed(o.seed, trace.Shape{Jobs: o.jobs, MaxGPUs: min(48, o.widest()*o.gpusPerNode)}, models, apps), nil
}

// withSpeeds gives the jobs of the trace their speeds on the cluster's models.
func (o *options) withSpeeds(t trace.Trace, nodes []pal.Node) (trace.Trace, error) {
	if o.speeds != "" {
		_, apps, err := trace.ReadSpeeds(o.speeds)
		if err != nil {
			return t, err
		}
		with, n := t.WithSpeeds(apps)
		if n == 0 {
			return t, fmt.Errorf("-speeds %q names no job of %s; the first is %q", o.speeds, t.Name, t.Jobs[0].Name)
		}
		t = with
	}
	var models []string
	for _, n := range nodes {
		for _, g := range n.Groups {
			if !slices.Contains(models, g.Name) {
				models = append(models, g.Name)
			}
		}
	}
	return t.OnModels(models), nil
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
		nodes, err := p.PalNodes(o.rules.Calibration)
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
	if o.rackNodes > 0 {
		for n := range all {
			all[n].Rack = fmt.Sprintf("rack-%d", n/o.rackNodes)
		}
	}
	return all, nil
}

// onModels makes the run choose GPU models by -model-choice.
func (o *options) onModels(cfg *sim.Config, c *pal.Cluster) {
	choice := o.choice
	if _, ok := o.baseline(); ok {
		choice = chooseAny
	}
	if choice == chooseOurs || !slices.ContainsFunc(cfg.Jobs, func(j trace.Job) bool { return j.Speeds != nil }) {
		return
	}
	only := map[string][]bool{}
	for g := range c.Groups() {
		_, model := c.Group(g)
		if only[model] == nil {
			only[model] = make([]bool, c.Groups())
		}
		only[model][g] = true
	}
	cfg.Gang = func(j trace.Job) pal.Gang {
		g := sim.GangOf(j)
		for _, model := range preferred(j, choice) {
			for i := range g.MemberSets {
				g.MemberSets[i].Prefer = append(g.MemberSets[i].Prefer, only[model])
			}
		}
		g.Speeds = nil
		return g
	}
	jobs := cfg.Jobs
	cfg.Slower = func(i int, p pal.Placement) float64 {
		_, model := c.Group(p.Members[0].Group)
		if s := jobs[i].Speeds.On(model); s > 0 {
			return 1 / s
		}
		return 1
	}
}

// preferred returns the models that a job tries, in order.
func preferred(j trace.Job, choice string) []string {
	if choice == chooseAny || j.Speeds == nil {
		return nil
	}
	fastest := slices.SortedFunc(maps.Keys(j.Speeds), func(a, b string) int {
		return cmp.Or(cmp.Compare(j.Speeds[b], j.Speeds[a]), cmp.Compare(a, b))
	})
	if choice == chooseFastest {
		return fastest
	}
	enough := func(model string) bool {
		if j.DeadlineS > 0 {
			return j.WorkS()/j.Speeds[model] <= j.DeadlineS
		}
		return j.Speeds[model] >= 1/inTime
	}
	var slow, late []string
	for _, model := range fastest {
		if enough(model) {
			slow = append(slow, model)
		} else {
			late = append(late, model)
		}
	}
	slices.Reverse(slow)
	return append(slow, late...)
}
