// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import "slices"

// xidVerdict is what one of NVIDIA's error numbers says about the GPU.
type xidVerdict int

const (
	xidApplication xidVerdict = iota // the application's fault, or nothing: count it
	xidFatal                         // unhealthy until the GPU is reset, or the host is dealt with
	xidDoubleBit                     // 48: harmless only when 94 says that it was contained
	xidContained                     // 94: the error was contained, the application alone suffers
	xidNVLink                        // bad only while a link is down
)

// judgeXid classifies by the immediate action that NVIDIA's Xid catalog names.
// What the catalog gives no action for leaves a GPU healthy: every other choice took good GPUs away from users of other plugins. 154, a change of
// the driver's recovery action, needs no verdict: the scan that follows reads it.
func judgeXid(xid int, cfg HealthConfig) xidVerdict {
	if slices.Contains(cfg.IgnoreXids, xid) {
		return xidApplication
	}
	if slices.Contains(cfg.FatalXids, xid) {
		return xidFatal
	}
	switch xid {
	case 46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158, // reset the GPU
		54, 79, 151, 167, 168, 169: // see to the host
		return xidFatal
	case 48:
		return xidDoubleBit
	case 94:
		return xidContained
	case 74, 144, 145, 146, 147, 148, 149, 150:
		return xidNVLink
	}
	return xidApplication
}
