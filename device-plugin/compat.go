// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import "github.com/nomad-pal/nomad-pal/device-plugin/gpu"

// Compat is how far attributes that nomad-device-nvidia also has follow its values where those are
// wrong.
type Compat string

const (
	// CompatJobs: constraints that hold for the incumbent's values hold for ours, too. The PCIe
	// bandwidth is never below the incumbent's, which rounds generations 3 and 4 up. States are
	// words: no job could compare the incumbent's digits.
	CompatJobs Compat = "jobs"
	// CompatExact: PCIe bandwidth and states are the incumbent's own.
	CompatExact Compat = "exact"
	// CompatNone: values are right.
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

// incumbentMBPerS is the bandwidth that nomad-device-nvidia publishes.
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
