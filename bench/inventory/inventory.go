// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package inventory writes inventory files for the emulated backend of the device plugin.
package inventory

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/sim/population"
)

// File returns an inventory file, in HCL. With this file, the device plugin's emulated backend
// serves the drawn GPUs of one node.
func File(gpus []population.GPU) string {
	var b strings.Builder
	for i, g := range gpus {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "gpu %q {\n", g.ID)
		arch, major, minor := architecture(g.Model)
		for _, line := range [][2]string{
			{"model", strconv.Quote(g.Model)},
			{"architecture", strconv.Quote(arch)},
			{"compute_major", strconv.Itoa(major)},
			{"compute_minor", strconv.Itoa(minor)},
			{"memory_mib", strconv.Itoa(g.MemoryMiB)},
			{"power_limit_w", strconv.Itoa(g.PowerW)},
			{"bus_id", strconv.Quote(g.BusID)},
			{"numa", strconv.Itoa(g.NUMA)},
			{"island", "0"},
			{"key", strconv.Quote(g.Key)},
			{"times", byClass(g.Times)},
			{"rates", byClass(g.Rates)},
		} {
			fmt.Fprintf(&b, "  %-13s = %s\n", line[0], line[1])
		}
		b.WriteString("}\n")
	}
	return b.String()
}

// byClass writes the known values by class, with 9 digits, which are more than enough to
// distinguish two scores.
func byClass(values [pal.NumClasses]float64) string {
	var parts []string
	for i, c := range pal.AppClasses() {
		if values[i] > 0 {
			parts = append(parts, fmt.Sprintf("%s = %s", c, strconv.FormatFloat(values[i], 'g', 9, 64)))
		}
	}
	return "{ " + strings.Join(parts, ", ") + " }"
}

// architecture returns NVIDIA's data on the GPU models of the sources.
func architecture(model string) (name string, major, minor int) {
	switch {
	case strings.Contains(model, "K80"):
		return "kepler", 3, 7
	case strings.Contains(model, "V100"):
		return "volta", 7, 0
	case strings.Contains(model, "RTX 5000"):
		return "turing", 7, 5
	default:
		return "ampere", 8, 0
	}
}
