// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measure

import "strings"

// sku is a product of the vendor, with the rate and power from its data sheet. GPUs of one
// architecture differ, so only the product tells whether a rate is slow. For example, an H20 is a
// Hopper with a seventh of an H200's tensor cores.
type sku struct {
	name string // part of the model's name
	// powerW is the default power limit. For variants with the same name, it is the lowest limit.
	powerW float64
	// tensorPerClock is FLOP per clock and SM of dense bf16 with fp32 accumulation; 0 means
	// the architecture's own value.
	tensorPerClock float64
}

// skus lists products with values from the vendor's data sheets. The first product whose name is
// part of the model's name counts, so longer names come first.
var skus = []sku{
	{"GH200", 700, 0}, {"H200 NVL", 600, 0}, {"H200", 700, 0}, {"H20", 400, 1024},
	{"H100 PCIe", 350, 0}, {"H100 NVL", 400, 0}, {"H100", 700, 0}, {"H800 PCIe", 350, 0}, {"H800", 700, 0},
	{"A100-SXM", 400, 0}, {"A100", 250, 0}, {"A800-SXM", 400, 0}, {"A800", 250, 0},
	{"A30", 165, 0}, {"A40", 300, 0}, {"A10G", 150, 512}, {"A10", 150, 0}, {"A16", 62.5, 0}, {"A2", 40, 0},
	{"L40S", 350, 0}, {"L40", 300, 512}, {"L20", 275, 512}, {"L4", 72, 0},
	{"RTX 6000 Ada", 300, 0}, {"RTX A6000", 300, 0},
	{"V100S", 250, 0}, {"V100-SXM", 300, 0}, {"V100", 250, 0}, {"T4", 70, 0},
}

// skuOf returns a model's product. Names match whole words, so the product "L4" does not match the
// model "L40".
func skuOf(model string) (sku, bool) {
	words := " " + strings.NewReplacer("-", " ", "_", " ").Replace(model) + " "
	for _, s := range skus {
		name := strings.NewReplacer("-", " ").Replace(s.name)
		if strings.Contains(words, " "+name+" ") || strings.HasSuffix(name, "SXM") && strings.Contains(words, " "+name) {
			return s, true
		}
	}
	return sku{}, false
}

// slowBelow returns the rate below which a GPU of the model cannot be healthy at this power limit;
// 0 if unknown. peak is the hardware's peak at its largest clock. Rates fall less than power does:
// with half the power, a GPU reaches at least half the rate. For bandwidth, the bound is the same
// share of the peak for all models and power limits.
func slowBelow(kernelID, model string, limitW, peak float64) float64 {
	k, ok := kernelOf(kernelID)
	if !ok || k.floor == 0 {
		return 0
	}
	if kernelID == idTriad {
		return peak * k.floor / slowFactor
	}
	s, known := skuOf(model)
	if !known || limitW <= 0 {
		return 0
	}
	return peak * k.floor * min(1, limitW/s.powerW) / slowFactor
}

// kernelOf returns the measured kernel with this id.
func kernelOf(id string) (kernel, bool) {
	for _, k := range append(computeKernels(), triadKernel(), gatherKernel()) {
		if k.id == id {
			return k, true
		}
	}
	return kernel{}, false
}
