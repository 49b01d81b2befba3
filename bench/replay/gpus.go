// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package replay

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"github.com/nomad-pal/nomad-pal/bench/rank"
	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/profile"
	"github.com/nomad-pal/nomad-pal/sim/paldata"
	"github.com/nomad-pal/nomad-pal/sim/population"
)

// GPUs are the emulated GPUs of a run.
type GPUs struct {
	All     []population.GPU
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

// Speeds are the true scores as the ranks read them.
func (g *GPUs) Speeds() rank.Speeds {
	s := rank.Speeds{}
	for _, u := range g.All {
		s[u.ID] = map[string]float64{}
		for k, c := range pal.AppClasses() {
			s[u.ID][string(c)] = u.Scores[k]
		}
	}
	return s
}

// write leaves an inventory per node, the profile and the speeds in dir.
func (g *GPUs) write(dir string) error {
	seen := map[int]bool{}
	for _, u := range g.All {
		if seen[u.Node] {
			continue
		}
		seen[u.Node] = true
		if err := g.writeNode(dir, u.Node, ""); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "profile.json"), g.profile.Encode(), 0o644); err != nil {
		return err
	}
	text, err := json.Marshal(g.Speeds())
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "speeds.json"), text, 0o644)
}

// writeNode leaves the inventory of one node in dir, with one GPU unhealthy.
func (g *GPUs) writeNode(dir string, node int, unhealthy string) error {
	var text strings.Builder
	for _, u := range g.All {
		if u.Node != node {
			continue
		}
		fmt.Fprintf(&text, "gpu %q {\n  model = %q\n  memory_mib = %d\n  power_limit_w = %d\n  bus_id = %q\n  numa = %d\n  island = %d\n  key = %q\n  times = { A = %v, B = %v, C = %v, D = %v }\n",
			u.ID, u.Model, u.MemoryMiB, u.PowerW, u.BusID, u.NUMA, u.Island, u.Key, u.Times[0], u.Times[1], u.Times[2], u.Times[3])
		if u.ID == unhealthy {
			text.WriteString("  healthy = false\n")
		}
		text.WriteString("}\n")
	}
	path := inventoryPath(dir, node)
	if err := os.WriteFile(path+".new", []byte(text.String()), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path) // a reader sees all of it or nothing
}

// MakeUnhealthy makes one GPU of a node unhealthy and heals all others of it; "" heals
// all.
func (b *Bed) MakeUnhealthy(node int, gpu string) error { return b.GPUs.writeNode(b.dir, node, gpu) }

func inventoryPath(dir string, node int) string {
	return filepath.Join(dir, fmt.Sprintf("inventory-%02d.hcl", node))
}
