// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package replay

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/nomad-pal/nomad-pal/bench/rank"
	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/profile"
	"github.com/nomad-pal/nomad-pal/sim/paldata"
	"github.com/nomad-pal/nomad-pal/sim/population"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// GPUs are the emulated GPUs of a run.
type GPUs struct {
	All []population.GPU
	// Apps are applications with their speeds by model; nil: all models are as fast as each other.
	Apps    []trace.App
	profile *profile.Profile
	byID    map[string]int
}

// NewGPUs calibrates a drawn population.
func NewGPUs(all []population.GPU) (*GPUs, error) {
	g := &GPUs{All: all, byID: map[string]int{}}
	var samples []profile.Sample
	for i, u := range all {
		g.byID[u.ID] = i
		for k, c := range pal.AppClasses() {
			samples = append(samples, profile.Sample{GPU: u.ID, Model: u.Model, Key: u.Key, App: c, Time: u.Times[k]})
		}
	}
	p, err := profile.Build(samples, profile.DefaultOptions(), nil)
	if err != nil {
		return nil, fmt.Errorf("calibrate the emulated GPUs: %w", err)
	}
	g.profile = p
	return g, nil
}

// DrawGPUs gives a cluster's GPUs, some of them outliers: drawn from the quantiles of
// Longhorn's measurements, or from the measurements themselves if PAL_DATA names them,
// which source says.
func DrawGPUs(nodes, gpusPerNode, outliers int, seed uint64) (g *GPUs, source string, err error) {
	spec := population.Spec{Cluster: "longhorn", Nodes: nodes, GPUsPerNode: gpusPerNode, Outliers: population.Exactly(outliers)}
	source = "quantiles of the measurements on TACC Longhorn (V100), outliers included"
	if dir := paldata.Dir(); dir != "" {
		if spec.Tables, err = paldata.Tables(dir); err != nil {
			return nil, "", err
		}
		source = "the measurements on TACC Longhorn (V100) in " + dir
	}
	all, err := population.Draw(spec, rand.New(rand.NewPCG(seed, 1)))
	if err != nil {
		return nil, "", err
	}
	g, err = NewGPUs(all)
	return g, source, err
}

// Score is the true PM score of a GPU.
func (g *GPUs) Score(id string, c pal.AppClass) float64 {
	i, ok := g.byID[id]
	if !ok {
		return 0
	}
	return g.All[i].Scores[c.Index()]
}

// Class is the variability class of a GPU, 1 the fastest.
func (g *GPUs) Class(id string, c pal.AppClass) int {
	e, _ := g.profile.Lookup(id, c)
	return e.Class
}

// Speeds are the true scores as the ranks read them: by class, and by application.
func (g *GPUs) Speeds() rank.Speeds {
	s := rank.Speeds{}
	for _, u := range g.All {
		s[u.ID] = map[string]float64{}
		for k, c := range pal.AppClasses() {
			s[u.ID][string(c)] = u.Scores[k]
		}
		for _, a := range g.Apps {
			s[u.ID][a.Name] = u.Scores[a.Class.Index()] / a.Speeds.On(u.Model)
		}
	}
	return s
}

// clients are the cluster's: a node per node of the GPUs, with the profile.
func (g *GPUs) clients() []cluster.Client {
	var cs []cluster.Client
	for n, name := range g.nodes() {
		cs = append(cs, cluster.Client{Name: name, Inventory: g.inventory(n, ""), Profile: string(g.profile.Encode())})
	}
	return cs
}

// inventory is that of one node, with one GPU unhealthy; "" is none.
func (g *GPUs) inventory(node int, unhealthy string) string {
	var on []population.GPU
	for _, u := range g.All {
		if u.Node == node {
			on = append(on, u)
		}
	}
	head := fmt.Sprintf("gpu %q {\n", unhealthy)
	return strings.Replace(population.Inventory(on), head, head+"  healthy       = false\n", 1)
}

// MakeUnhealthy makes one GPU of a node unhealthy and heals all others of it; "" heals
// all.
func (b *Bed) MakeUnhealthy(node int, gpu string) error {
	return b.Clients()[node].SetInventory(b.GPUs.inventory(node, gpu))
}
