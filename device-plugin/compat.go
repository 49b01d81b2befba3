// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import "github.com/nomad-pal/nomad-pal/device-plugin/gpu"

// Compat selects the values of attributes for which nomad-device-nvidia publishes wrong values:
// these same values, or the right ones.
type Compat string

const (
	// CompatJobs keeps the constraints of existing jobs true: a constraint that holds for
	// nomad-device-nvidia's values also holds for ours. The PCIe bandwidth is never below that of
	// nomad-device-nvidia, which rounds it up for generations 3 and 4. States are the words
	// "Enabled" and "Disabled", because no job could compare the digits that nomad-device-nvidia
	// publishes.
	CompatJobs Compat = "jobs"
	// CompatExact publishes nomad-device-nvidia's own PCIe bandwidth and states.
	CompatExact Compat = "exact"
	// CompatNone publishes the right values.
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

// state returns the published form of "Enabled" and "Disabled".
func (c Compat) state(word string) string {
	digits := map[string]string{"Disabled": "0", "Enabled": "1"}
	if digit, ok := digits[word]; ok && c == CompatExact {
		return digit
	}
	return word
}
