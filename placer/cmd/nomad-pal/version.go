// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"runtime"

	"github.com/nomad-pal/nomad-pal/internal/version"
)

var helpVersion = help("version [options]", "Prints version and revision.", examples("Which version is this?", "nomad-pal version"), outputOptions)

// versions is the JSON object that `nomad-pal version -json` prints.
type versions struct {
	Version string `json:"version"` // version of nomad-pal
	// Revision is the commit of the build.
	Revision string `json:"revision"`
	// Go is the compiler's version.
	Go string `json:"go"`
}

func runVersion(b *base, args []string) int {
	if _, ok := b.parse(b.flags("version"), args, 0); !ok {
		return 1
	}
	v := versions{version.Number, version.Revision, runtime.Version()}
	return b.show(v, func() { b.io.printf("nomad-pal v%s\nRevision %s\n", v.Version, v.Revision) })
}
