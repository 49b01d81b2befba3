// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// generate describes nodes to invent. Equal values give equal nodes, byte for byte.
type generate struct {
	nodes, gpus int
	rack        int // nodes of a rack, 0 for none
	seed        int64
	model       string
}

// edges are the upper ends of variability classes 1 to 4 in PM score; class 5 is open. They are the defaults of
// nomad-device-pal.
var edges = [...]float64{0.99, 1.01, 1.03, 1.06}

// appClasses are the application classes and how much of a GPU's deviation from the median reaches each: compute
// bound work feels all of it, memory bound work little.
var appClasses = [...]struct {
	name  string
	share float64
}{{"A", 1}, {"B", 0.4}, {"C", 0.1}}

func (g generate) inventory() *inventory {
	r := rand.New(rand.NewPCG(uint64(g.seed), 0))
	inv := &inventory{Nodes: make([]nodeSpec, g.nodes)}
	for i := range inv.Nodes {
		n := nodeSpec{
			ID: g.uuid("node", i), SecretID: g.uuid("secret", i), Name: fmt.Sprintf("sim-%05d", i), Datacenter: "dc1",
		}
		if g.rack > 0 {
			n.Meta = map[string]string{"rack": fmt.Sprintf("r%04d", i/g.rack)}
		}
		if g.gpus > 0 {
			n.Groups = []groupSpec{g.group(i, r)}
		}
		inv.Nodes[i] = n
	}
	return inv
}

// group is a node's GPUs with the attributes that nomad-device-pal publishes: class lists under unique. names, their
// counts, and the scores.
func (g generate) group(node int, r *rand.Rand) groupSpec {
	group := groupSpec{Name: g.model, Attributes: map[string]any{
		"memory": map[string]any{"value": 141, "unit": "GiB"}, "count": g.gpus, "healthy_count": g.gpus,
		"variability_reference": "profile",
	}}
	scores := make([]float64, g.gpus)
	for k := range scores {
		group.Instances = append(group.Instances, instanceSpec{
			ID: "GPU-" + g.uuid("gpu", node*g.gpus+k), BusID: fmt.Sprintf("0000:%02x:00.0", 16+k),
		})
		scores[k] = score(r)
	}
	var raw []string
	for k, inst := range group.Instances {
		entry := inst.ID
		for _, c := range appClasses {
			entry += " " + c.name + "=" + strconv.FormatFloat(1+(scores[k]-1)*c.share, 'g', 6, 64)
		}
		raw = append(raw, entry)
	}
	group.Attributes["unique.variability_scores"] = strings.Join(raw, ";")
	for _, c := range appClasses {
		g.classLists(&group, strings.ToLower(c.name), scores, c.share)
	}
	return group
}

// classLists adds the list of instances of class k or better, and its count, for each k.
func (g generate) classLists(group *groupSpec, app string, scores []float64, share float64) {
	for k := 1; k <= len(edges)+1; k++ {
		var ids []string
		for i, inst := range group.Instances {
			if k > len(edges) || 1+(scores[i]-1)*share < edges[k-1] {
				ids = append(ids, inst.ID)
			}
		}
		group.Attributes[fmt.Sprintf("unique.variability_%s_le_%d", app, k)] = strings.Join(ids, ",")
		group.Attributes[fmt.Sprintf("variability_%s_le_%d_count", app, k)] = len(ids)
	}
}

// score draws a PM score: near the median, with one GPU in 64 far above it, as in the clusters of the PAL paper.
func score(r *rand.Rand) float64 {
	if r.IntN(64) == 0 {
		return 1.2 + 1.3*r.Float64()
	}
	return 1 + 0.02*r.NormFloat64()
}

// uuid is an id that depends on nothing but the seed, the kind and the number.
func (g generate) uuid(kind string, i int) string {
	h := sha256.Sum256(fmt.Appendf(nil, "%d %s %d", g.seed, kind, i))
	return fmt.Sprintf("%x-%x-%x-%x-%x", h[0:4], h[4:6], h[6:8], h[8:10], h[10:16])
}
