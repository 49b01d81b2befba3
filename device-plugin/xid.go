// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import "slices"

// xidVerdict is the meaning of an Xid, one of NVIDIA's error numbers, for the GPU.
type xidVerdict int

const (
	xidApplication xidVerdict = iota // caused by the application, or harmless: only count it
	xidFatal                         // unhealthy until the GPU is reset, or the host is repaired
	xidDoubleBit                     // Xid 48: harmless only if an Xid 94 says that the error was contained
	xidContained                     // Xid 94: the error was contained, and only the application suffers
	xidNVLink                        // bad only while a link is down
)

// judgeXid classifies an Xid by the immediate action in NVIDIA's Xid catalog. If the catalog names
// no action, the GPU stays healthy. Stricter plugins made good GPUs unusable. Xid 154, a change of
// the driver's recovery action, needs no verdict, because the next scan reads the action.
func judgeXid(xid int, cfg HealthConfig) xidVerdict {
	if slices.Contains(cfg.Ignore, xidReason(xid)) {
		return xidApplication
	}
	if slices.Contains(cfg.Unhealthy, xidReason(xid)) {
		return xidFatal
	}
	switch xid {
	case 46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 156, 158, // reset the GPU
		54, 79, 151, 167, 168, 169: // the host needs attention
		return xidFatal
	case 48:
		return xidDoubleBit
	case 94:
		return xidContained
	case 74, 144, 145, 146, 147, 148, 149, 150, 155: // 155 also reports that a link went to sleep
		return xidNVLink
	}
	return xidApplication
}
