// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package population

import (
	"fmt"
	"math/rand/v2"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/profile"
)

// Outliers specifies which GPUs of a drawn cluster are outliers in application class A. The zero
// value means no outliers.
type Outliers struct {
	measured bool
	count    int
}

// AsMeasured makes each GPU an outlier with a probability equal to the measured share of outlier
// runs.
func AsMeasured() Outliers { return Outliers{measured: true} }

// Exactly makes k of the GPUs outliers.
func Exactly(k int) Outliers { return Outliers{count: k} }

// Spec describes the cluster to draw.
type Spec struct {
	Cluster            string // source of the measurements: "longhorn", "frontera", "lonestar6"
	Nodes, GPUsPerNode int
	Outliers           Outliers
	// Tables, if not nil, replace the product's [Tables]. The replacements have the same
	// applications and clusters, but can have, for example, a quantile for every measured GPU.
	Tables []Table
}

// GPU is one drawn GPU.
type GPU struct {
	ID        string // "GPU-" and a UUID
	Node      int    // from 0
	Model     string // as NVML names it
	MemoryMiB int
	PowerW    int    // enforced limit
	BusID     string // "0000:1a:00.0"
	NUMA      int    // there are two NUMA nodes per node
	// Key is the comparability key of Times: "<cluster>/emulated".
	Key string
	// Scores are the true times, per class A…D, relative to the median GPU. Times are the times in
	// the source's unit, and Noise is the relative run-to-run standard deviation of the times.
	Scores, Times, Noise [pal.NumClasses]float64
	// Rates are the work per second, in the units of attr.RateUnit.
	Rates [pal.NumClasses]float64
}

// hardware describes the GPU model of a source.
type hardware struct {
	model             string
	memoryMiB, powerW int
	// rates are the rates of a median GPU, from NVIDIA's data sheets: FP32 and tensor TFLOP/s,
	// GB/s, and 10⁹ gathers/s (a gather moves a sector of 32 bytes).
	rates [pal.NumClasses]float64
}

// sources are the GPU models of the clusters.
var sources = map[string]hardware{
	"longhorn":  {"Tesla V100-SXM2-16GB", 16384, 300, [...]float64{15.7, 125, 900, 28}},
	"frontera":  {"Quadro RTX 5000", 16384, 230, [...]float64{11.2, 89.2, 448, 14}},
	"lonestar6": {"NVIDIA A100-PCIE-40GB", 40960, 250, [...]float64{19.5, 312, 1555, 48.6}},
}

// Draw draws the cluster's GPUs, in order of node and index. The same spec and the same random
// source give the same GPUs. Two specs that differ only in Outliers give the same IDs, and the same
// scores for GPUs that are not outliers.
func Draw(s Spec, rng *rand.Rand) ([]GPU, error) {
	hw, ok := sources[s.Cluster]
	if !ok {
		return nil, fmt.Errorf("population: cluster %q is unknown; it must be one of longhorn, frontera, lonestar6", s.Cluster)
	}
	if s.Tables == nil {
		s.Tables = Tables()
	}
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("population: %w", err)
	}
	tables := s.classTables()
	gpus := make([]GPU, 0, s.Nodes*s.GPUsPerNode)
	for node := range s.Nodes {
		for i := range s.GPUsPerNode {
			g := GPU{ID: gpuID(rng), Node: node, Model: hw.model, MemoryMiB: hw.memoryMiB, PowerW: hw.powerW,
				BusID: fmt.Sprintf("0000:%02x:00.0", 0x10+i), NUMA: 2 * i / s.GPUsPerNode, Key: s.Cluster + "/emulated"}
			_ = rng.Float64()       // so that a seed gives the GPUs of the published results
			for c := range tables { // independently, as in PAL
				g.Scores[c] = tables[c].Quantile(rng.Float64())
			}
			gpus = append(gpus, g)
		}
	}
	s.drawOutliers(gpus, rng)
	for i := range gpus {
		for c, t := range tables {
			gpus[i].Times[c] = gpus[i].Scores[c] * t.MedianTime
			gpus[i].Noise[c] = t.Noise
			gpus[i].Rates[c] = hw.rates[c] / gpus[i].Scores[c]
		}
	}
	return gpus, nil
}

func (s Spec) check() error {
	switch {
	case s.Nodes < 1 || s.GPUsPerNode < 1:
		return fmt.Errorf("%d nodes with %d GPUs each: there must be at least one node and one GPU", s.Nodes, s.GPUsPerNode)
	case s.GPUsPerNode > 0xf0:
		return fmt.Errorf("%d GPUs per node, want at most %d", s.GPUsPerNode, 0xf0)
	case s.Outliers.count < 0 || s.Outliers.count > s.Nodes*s.GPUsPerNode:
		return fmt.Errorf("%d outliers, want 0 to %d, the number of GPUs", s.Outliers.count, s.Nodes*s.GPUsPerNode)
	}
	return nil
}

// classTables returns the table of the application that represents each class, as in PAL (C has no
// data of its own). If an application was not measured on Cluster, its table is Longhorn's.
func (s Spec) classTables() (out [pal.NumClasses]Table) {
	for c, app := range [pal.NumClasses]string{"resnet50", "bert", "bert", "pagerank"} {
		t, ok := find(s.Tables, s.Cluster, app)
		if !ok {
			t, _ = find(s.Tables, "longhorn", app)
		}
		out[c] = t
	}
	return out
}

func find(tables []Table, cluster, app string) (Table, bool) {
	for _, t := range tables {
		if t.Cluster == cluster && t.App == app {
			return t, true
		}
	}
	return Table{}, false
}

// drawOutliers draws the outliers. Draw calls drawOutliers last, so that outliers do not change
// other draws. If a cluster's measurements have no outliers, the outliers are Longhorn's.
func (s Spec) drawOutliers(gpus []GPU, rng *rand.Rand) {
	own, _ := find(s.Tables, s.Cluster, "resnet50")
	tail := own
	if len(tail.OutlierQuantiles) == 0 {
		tail, _ = find(Tables(), "longhorn", "resnet50")
	}
	hit := func(i int) { gpus[i].Scores[0] = profile.Quantile(tail.OutlierQuantiles, rng.Float64()) }
	if s.Outliers.measured {
		for i := range gpus {
			if rng.Float64() < own.OutlierShare {
				hit(i)
			}
		}
		return
	}
	for _, i := range rng.Perm(len(gpus))[:s.Outliers.count] {
		hit(i)
	}
}

// gpuID returns a random UUID (version 4) in NVML's form.
func gpuID(rng *rand.Rand) string {
	hi, lo := rng.Uint64(), rng.Uint64()
	hi = hi&^0xf000 | 0x4000
	lo = lo&^(3<<62) | 2<<62
	return fmt.Sprintf("GPU-%08x-%04x-%04x-%04x-%012x", hi>>32, hi>>16&0xffff, hi&0xffff, lo>>48, lo&0xffffffffffff)
}
