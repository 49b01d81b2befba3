// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package fakecuda builds a CUDA driver library that needs no GPU, for tests and
// experiments. src/libcuda.c documents what it can simulate.
package fakecuda

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

// ErrNoCompiler means that no C compiler was found to build the library.
var ErrNoCompiler = errors.New("no C compiler (gcc or cc) on PATH")

// Env is the environment variable with the path of the file that controls the library.
const Env = "FAKECUDA"

//go:embed src/libcuda.c
var source []byte

// Build makes libcuda.so.1 in the directory and returns its path. Each process compiles the library
// only once.
func Build(dir string) (string, error) {
	code, err := compiled()
	if err != nil {
		return "", err
	}
	lib := filepath.Join(dir, "libcuda.so.1")
	if err := os.WriteFile(lib, code, 0o755); err != nil {
		return "", fmt.Errorf("building the fake CUDA driver: %w", err)
	}
	return lib, nil
}

// compiled returns the library's bytes.
var compiled = sync.OnceValues(func() ([]byte, error) {
	compiler, err := exec.LookPath("gcc")
	if err != nil {
		if compiler, err = exec.LookPath("cc"); err != nil {
			return nil, ErrNoCompiler
		}
	}
	dir, err := os.MkdirTemp("", "fakecuda")
	if err != nil {
		return nil, fmt.Errorf("building the fake CUDA driver: %w", err)
	}
	defer os.RemoveAll(dir)
	src, lib := filepath.Join(dir, "libcuda.c"), filepath.Join(dir, "libcuda.so.1")
	if err := os.WriteFile(src, source, 0o644); err != nil {
		return nil, fmt.Errorf("building the fake CUDA driver: %w", err)
	}
	if out, err := exec.Command(compiler, "-shared", "-fPIC", "-O1", "-o", lib, src).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the fake CUDA driver: %w\n%s", err, out)
	}
	return os.ReadFile(lib)
})

// UUID returns the UUID of the library's GPU number i, counted from 0.
func UUID(i int) string {
	b := i + 1
	return fmt.Sprintf("GPU-%02[1]x%02[1]x%02[1]x%02[1]x-%02[1]x%02[1]x-%02[1]x%02[1]x-%02[1]x%02[1]x-%02[1]x%02[1]x%02[1]x%02[1]x%02[1]x%02[1]x", b)
}
