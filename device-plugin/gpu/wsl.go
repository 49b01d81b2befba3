// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gpu

import (
	"os"
	"path/filepath"
)

// Under WSL2 the driver is Windows's: there is no kernel module, and no device file of it.
const (
	WSLDevice    = "/dev/dxg"
	WSLLibraries = "/usr/lib/wsl/lib"
)

// IsWSL reports whether the system with that root runs under WSL2, by its device file. A
// kernel module of NVIDIA's own is no WSL2.
func IsWSL(root string) bool {
	_, module := os.Stat(filepath.Join(root, "proc/driver/nvidia"))
	_, dxg := os.Stat(filepath.Join(root, WSLDevice))
	return module != nil && dxg == nil
}
