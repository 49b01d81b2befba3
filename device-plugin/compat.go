// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import "github.com/nomad-pal/nomad-pal/device-plugin/gpu"

// Compat selects how to publish the values that nomad-device-nvidia publishes wrongly.
type Compat string

const (
	// CompatJobs publishes values that meet every constraint of existing jobs. The PCIe bandwidth
	// is at least nomad-device-nvidia's, which rounds up for generations 3 and 4. States are
	// "Enabled" and "Disabled", because no job could use the digits of nomad-device-nvidia in a
	// constraint.
	CompatJobs Compat = "jobs"
	// CompatExact publishes the same PCIe bandwidth and states as nomad-device-nvidia.
	CompatExact Compat = "exact"
	// CompatNone publishes the true values.
	CompatNone Compat = "none"
)

// pciBandwidth returns the published PCIe bandwidth of a device; nil if unknown.
func (c Compat) pciBandwidth(d *gpu.Device) *int64 {
	theirs := incumbentMBPerS(d.PCIGeneration, d.PCIWidth)
	switch {
	case c == CompatExact && d.PCIWidth > 0:
		return &theirs
	case c == CompatJobs && d.PCIBandwidthMBPerS != nil && theirs > *d.PCIBandwidthMBPerS:
		return &theirs
	}
	return d.PCIBandwidthMBPerS
}

// incumbentMBPerS returns the PCIe bandwidth that nomad-device-nvidia publishes.
func incumbentMBPerS(generation, width int) int64 {
	perLane := map[int]int64{3: 1024, 4: 2048, 5: 3072, 6: 4096}
	return int64(width) * perLane[generation]
}

// state returns the published form of a state: "Enabled" or "Disabled", or the digit that
// nomad-device-nvidia publishes.
func (c Compat) state(word string) string {
	digits := map[string]string{"Disabled": "0", "Enabled": "1"}
	if digit, ok := digits[word]; ok && c == CompatExact {
		return digit
	}
	return word
}
