// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package mpstest provides a program that replaces NVIDIA's MPS control daemon in tests.
package mpstest

import (
	_ "embed"
	"os"
	"path/filepath"
)

//go:embed control.sh
var control []byte

// Install writes the program into a directory, and returns its path.
func Install(dir string) (string, error) {
	path := filepath.Join(dir, "nvidia-cuda-mps-control")
	return path, os.WriteFile(path, control, 0o755)
}
