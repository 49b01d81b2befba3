// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package emulated reads emulated GPUs from an inventory file, for machines without GPUs, tests and
// demonstrations. The file is HCL, or JSON if its suffix is .json. When the file changes, the
// package reads it again. For each GPU the file holds what NVML would report, including faults:
//
//	driver_version = "580.159.04"
//	defaults {
//	  model         = "NVIDIA H200"
//	  memory_mib    = 143771
//	  power_limit_w = 700
//	}
//	gpu "GPU-11111111-…" {
//	  bus_id = "0000:1a:00.0"
//	  numa   = 0
//	  island = 0
//	  times  = { A = 1.012, B = 0.998, C = 1.0, D = 1.001 }
//	}
package emulated

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/gohcl"
	"github.com/hashicorp/hcl/v2/hclparse"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/pal"
)

// file is the inventory file's top level.
type file struct {
	DriverVersion string   `hcl:"driver_version,optional"`
	CUDAVersion   string   `hcl:"cuda_version,optional"`
	DriverLoad    string   `hcl:"driver_load,optional"`        // changes when the driver is reloaded
	Unavailable   string   `hcl:"driver_unavailable,optional"` // emulates a missing driver, with this reason
	Remain        hcl.Body `hcl:",remain"`
}

// fields are the keys of a gpu block and of the defaults block. If a field is nil, the value of the
// defaults block applies, or else the built-in value.
type fields struct {
	Model          *string            `hcl:"model,optional"`
	Architecture   *string            `hcl:"architecture,optional"`
	MemoryMiB      *int64             `hcl:"memory_mib,optional"`
	PowerLimitW    *int64             `hcl:"power_limit_w,optional"`
	BAR1MiB        *int64             `hcl:"bar1_mib,optional"`
	CoresClockMHz  *int64             `hcl:"cores_clock_mhz,optional"`
	MemoryClockMHz *int64             `hcl:"memory_clock_mhz,optional"`
	PCIMBPerS      *int64             `hcl:"pci_bandwidth_mb_s,optional"`
	ComputeMajor   *int               `hcl:"compute_major,optional"`
	ComputeMinor   *int               `hcl:"compute_minor,optional"`
	BusID          *string            `hcl:"bus_id,optional"`
	NUMA           *int               `hcl:"numa,optional"`
	Island         *int               `hcl:"island,optional"`
	Clique         *string            `hcl:"fabric_clique,optional"`
	MIGProfile     *string            `hcl:"mig_profile,optional"`
	Parent         *string            `hcl:"mig_parent,optional"`
	Healthy        *bool              `hcl:"healthy,optional"`
	HealthReason   *string            `hcl:"health_reason,optional"`
	Fault          *string            `hcl:"fault,optional"`
	Xid            *int               `hcl:"xid,optional"`
	Recovery       *int               `hcl:"recovery_action,optional"`
	Key            *string            `hcl:"key,optional"`
	Times          map[string]float64 `hcl:"times,optional"`
	Rates          map[string]float64 `hcl:"rates,optional"`
	UtilPercent    *int64             `hcl:"utilization_percent,optional"`
	PowerW         *float64           `hcl:"power_w,optional"`
	TemperatureC   *int64             `hcl:"temperature_c,optional"`
}

// inventory is an inventory file that was read and checked.
type inventory struct {
	devices     gpu.Inventory
	unavailable string
	xids        map[string]int    // Xids by GPU
	samples     map[string]fields // fields by GPU, for Sample
	hang        bool              // a GPU with fault = "hang-driver": scans do not return
}

// read parses and checks the inventory file at path. Each error names the file and the line.
func read(path string) (*inventory, error) {
	src, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading inventory: %w", err)
	}
	parser := hclparse.NewParser()
	parse := parser.ParseHCL
	if filepath.Ext(path) == ".json" {
		parse = parser.ParseJSON
	}
	f, diags := parse(src, path)
	if diags.HasErrors() {
		return nil, fmt.Errorf("parsing inventory: %w", diags)
	}
	inv, diags := decode(f.Body)
	if diags.HasErrors() {
		return nil, fmt.Errorf("inventory: %w", diags)
	}
	return inv, nil
}

func decode(body hcl.Body) (*inventory, hcl.Diagnostics) {
	var top file
	if diags := gohcl.DecodeBody(body, nil, &top); diags.HasErrors() {
		return nil, diags
	}
	content, diags := top.Remain.Content(&hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{
		{Type: "defaults"}, {Type: "gpu", LabelNames: []string{"uuid"}},
	}})
	if diags.HasErrors() {
		return nil, diags
	}
	defaults := content.Blocks.OfType("defaults")
	diags = decodeAll(defaults, &fields{})
	if diags.HasErrors() { // also if there is no GPU
		return nil, diags
	}
	inv := &inventory{
		unavailable: top.Unavailable,
		xids:        map[string]int{},
		samples:     map[string]fields{},
	}
	inv.devices.DriverVersion = cmp.Or(top.DriverVersion, "580.159.04")
	inv.devices.DriverLoad = top.DriverLoad
	inv.devices.CUDAMajor, inv.devices.CUDAMinor = 13, 0
	if top.CUDAVersion != "" {
		if _, err := fmt.Sscanf(top.CUDAVersion, "%d.%d", &inv.devices.CUDAMajor, &inv.devices.CUDAMinor); err != nil {
			return nil, problem(nil, "cuda_version", fmt.Sprintf("%q is not a version such as 13.0", top.CUDAVersion))
		}
	}
	for _, block := range content.Blocks.OfType("gpu") {
		diags := inv.add(block, defaults)
		if diags.HasErrors() {
			return nil, diags
		}
	}
	gpu.Sort(inv.devices.Devices)
	return inv, nil
}

// decodeAll decodes the blocks into f, one after the other.
func decodeAll(blocks hcl.Blocks, f *fields) hcl.Diagnostics {
	for _, block := range blocks {
		diags := gohcl.DecodeBody(block.Body, nil, f)
		if diags.HasErrors() {
			return diags
		}
	}
	return nil
}

// add decodes one gpu block; the blocks `defaults` fill its missing keys. It decodes the defaults
// again for each GPU, because gohcl writes through the pointers of fields, and a GPU must not
// change the values of other GPUs.
func (inv *inventory) add(block *hcl.Block, defaults hcl.Blocks) hcl.Diagnostics {
	id, at := block.Labels[0], &block.DefRange
	var f fields
	diags := decodeAll(append(slices.Clone(defaults), block), &f)
	if diags.HasErrors() {
		return diags
	}
	if id == "" {
		return problem(at, "gpu", "the label is empty, but must be the GPU's UUID")
	}
	_, dup := inv.samples[id]
	if dup {
		return problem(at, "gpu", fmt.Sprintf("GPU %q is listed twice", id))
	}
	d, why := device(id, f, len(inv.devices.Devices))
	if why != "" {
		return problem(at, "gpu "+id, why)
	}
	inv.devices.Devices = append(inv.devices.Devices, d)
	inv.samples[id] = f
	inv.hang = inv.hang || or(f.Fault, "") == faultHangDriver
	if f.Xid != nil && *f.Xid != 0 {
		inv.xids[id] = *f.Xid
	}
	return nil
}

func problem(at *hcl.Range, what, why string) hcl.Diagnostics {
	return hcl.Diagnostics{{Severity: hcl.DiagError, Summary: what, Detail: why, Subject: at}}
}

func or[T any](p *T, fallback T) T {
	if p == nil {
		return fallback
	}
	return *p
}

// byClass checks a GPU's values and returns them by application class. key names the values in
// error texts.
func byClass(key string, in map[string]float64) (map[pal.AppClass]float64, string) {
	if len(in) == 0 {
		return nil, ""
	}
	out := make(map[pal.AppClass]float64, len(in))
	for name, v := range in {
		c, err := pal.ParseAppClass(name)
		if err != nil {
			return nil, key + ": " + err.Error()
		}
		if !(v > 0) || v > 1e300 {
			return nil, fmt.Sprintf("%s: %s = %v is not a positive number", key, name, v)
		}
		out[c] = v
	}
	return out, ""
}
