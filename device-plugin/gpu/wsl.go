// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gpu

import (
	"os"
	"path/filepath"
)

// Under WSL2 the driver is part of Windows. Linux has no kernel module and no device files for it.
const (
	WSLDevice    = "/dev/dxg"
	WSLLibraries = "/usr/lib/wsl/lib"
)

// IsWSL reports whether the system with this root runs under WSL2: it has WSL2's device
// file and no NVIDIA kernel module.
func IsWSL(root string) bool {
	_, module := os.Stat(filepath.Join(root, "proc/driver/nvidia"))
	_, dxg := os.Stat(filepath.Join(root, WSLDevice))
	return module != nil && dxg == nil
}
