// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Command mkfakecuda builds the fake CUDA driver in a directory and prints the
// library's path.
package main

import (
	"fmt"
	"os"

	"github.com/nomad-pal/nomad-pal/device-plugin/cuda/fakecuda"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: mkfakecuda DIR")
		os.Exit(2)
	}
	err := os.MkdirAll(os.Args[1], 0o755)
	var lib string
	if err == nil {
		lib, err = fakecuda.Build(os.Args[1])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(lib)
}
