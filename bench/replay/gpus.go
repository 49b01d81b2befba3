// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package replay

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/nomad-pal/nomad-pal/bench/inventory"
	"github.com/nomad-pal/nomad-pal/bench/paldata"
	"github.com/nomad-pal/nomad-pal/bench/rank"
	"github.com/nomad-pal/nomad-pal/bench/workload"
	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/profile"
	"github.com/nomad-pal/nomad-pal/sim/population"
)

// GPUs are the emulated GPUs of a run.
type GPUs struct {
	All []population.GPU
	// Apps has the applications' speeds by model. If Apps is nil, a job's speed on each model
	// depends only on the job's class.
	Apps    []workload.App
	profile *profile.Profile
	byID    map[string]int
}

// NewGPUs returns the GPUs of a drawn population. Their profile is calibrated from this population.
func NewGPUs(all []population.GPU) (*GPUs, error) {
	g := &GPUs{All: all, byID: map[string]int{}}
	var samples []profile.Sample
	for i, u := range all {
		g.byID[u.ID] = i
		for k, c := range pal.AppClasses() {
			samples = append(samples, profile.Sample{GPU: u.ID, Model: u.Model, Key: u.Key, App: c, Time: u.Times[k], Rate: u.Rates[k]})
		}
	}
	p, err := profile.Build(samples, profile.DefaultOptions(), nil)
	if err != nil {
		return nil, fmt.Errorf("calibrating the emulated GPUs: %w", err)
	}
	g.profile = p
	return g, nil
}

// DrawGPUs draws a cluster's GPUs, with the given number of outliers, from the quantiles of
// Longhorn's measurements. If PAL_DATA is set, DrawGPUs draws from the measurements themselves.
// source describes the origin of the speeds.
func DrawGPUs(nodes, gpusPerNode, outliers int, seed uint64) (g *GPUs, source string, err error) {
	return drawGPUs([]population.Spec{{Cluster: "longhorn", Nodes: nodes, GPUsPerNode: gpusPerNode, Outliers: population.Exactly(outliers)}}, "TACC Longhorn (V100)", seed)
}

// DrawTwoModels is like DrawGPUs, and adds nodes (their number is others) with GPUs of a second
// model, drawn from Frontera's measurements.
func DrawTwoModels(nodes, others, gpusPerNode, outliers int, seed uint64) (g *GPUs, source string, err error) {
	if others == 0 {
		return DrawGPUs(nodes, gpusPerNode, outliers, seed)
	}
	return drawGPUs([]population.Spec{
		{Cluster: "longhorn", Nodes: nodes, GPUsPerNode: gpusPerNode, Outliers: population.Exactly(outliers)},
		{Cluster: "frontera", Nodes: others, GPUsPerNode: gpusPerNode},
	}, "TACC Longhorn (V100) and Frontera (RTX 5000)", seed)
}

func drawGPUs(specs []population.Spec, where string, seed uint64) (g *GPUs, source string, err error) {
	source = fmt.Sprintf("quantiles of the measurements on %s, outliers included", where)
	var tables []population.Table
	if dir := paldata.Dir(); dir != "" {
		if tables, err = paldata.Tables(dir); err != nil {
			return nil, "", err
		}
		source = fmt.Sprintf("the measurements on %s in %s", where, dir)
	}
	var all []population.GPU
	first := 0 // the model's first node
	for i, spec := range specs {
		spec.Tables = tables
		gpus, err := population.Draw(spec, rand.New(rand.NewPCG(seed, uint64(1+i))))
		if err != nil {
			return nil, "", err
		}
		for _, u := range gpus {
			u.Node += first
			all = append(all, u)
		}
		first += spec.Nodes
	}
	g, err = NewGPUs(all)
	return g, source, err
}

// Score returns the true PM score of a GPU.
func (g *GPUs) Score(id string, c pal.AppClass) float64 {
	i, ok := g.byID[id]
	if !ok {
		return 0
	}
	return g.All[i].Scores[c.Index()]
}

// Class returns the variability class of a GPU; 1 is the fastest.
func (g *GPUs) Class(id string, c pal.AppClass) int {
	e, _ := g.profile.Lookup(id, c)
	return e.Class
}

// Models returns the GPU models, in the order of the nodes.
func (g *GPUs) Models() (models []string) {
	for _, u := range g.All {
		if !slices.Contains(models, u.Model) {
			models = append(models, u.Model)
		}
	}
	return models
}

// Count returns the number of GPUs of a model.
func (g *GPUs) Count(model string) (n int) {
	for _, u := range g.All {
		if u.Model == model {
			n++
		}
	}
	return n
}

// Model returns the model of a GPU.
func (g *GPUs) Model(id string) string { return g.All[g.byID[id]].Model }

// SpeedOf returns the speed of a model's median GPU for a class. The speed is 1 for the fastest
// model, and for a model without rates.
func (g *GPUs) SpeedOf(model string, c pal.AppClass) float64 {
	if s, ok := g.profile.Speeds(c)[model]; ok {
		return s
	}
	return 1
}

// Speeds returns the time that work takes on each GPU, by class and by application, for the ranks.
// The times are relative to the median GPU of the fastest model.
func (g *GPUs) Speeds() rank.Speeds {
	s := rank.Speeds{}
	for _, u := range g.All {
		s[u.ID] = map[string]float64{}
		for k, c := range pal.AppClasses() {
			s[u.ID][string(c)] = u.Scores[k] / g.SpeedOf(u.Model, c)
		}
		for _, a := range g.Apps {
			s[u.ID][a.Name] = u.Scores[a.Class.Index()] / a.Speeds.On(u.Model)
		}
	}
	return s
}

// clients returns one client per node of the cluster. Each client gets the profile.
func (g *GPUs) clients() []cluster.Client {
	var cs []cluster.Client
	for n, name := range g.nodes() {
		cs = append(cs, cluster.Client{Name: name, Inventory: g.inventory(n, ""), Profile: string(g.profile.Encode())})
	}
	return cs
}

// inventory returns the inventory of a node. unhealthy is the id of an unhealthy GPU; "" means that
// all GPUs are healthy.
func (g *GPUs) inventory(node int, unhealthy string) string {
	var on []population.GPU
	for _, u := range g.All {
		if u.Node == node {
			on = append(on, u)
		}
	}
	head := fmt.Sprintf("gpu %q {\n", unhealthy)
	return strings.Replace(inventory.File(on), head, head+"  healthy       = false\n", 1)
}

// MakeUnhealthy makes one GPU of a node unhealthy and the others healthy, or all healthy if the id
// is "".
func (b *Bed) MakeUnhealthy(node int, gpu string) error {
	return b.Clients()[node].SetInventory(b.GPUs.inventory(node, gpu))
}
