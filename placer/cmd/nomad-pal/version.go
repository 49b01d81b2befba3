// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"runtime"

	"github.com/nomad-pal/nomad-pal/internal/version"
)

type versionCommand struct{ base }

func (c *versionCommand) Help() string {
	return help("version [options]", "Prints version and revision.", examples("Which version is this?", "nomad-pal version"), outputOptions)
}

// versions are what version prints.
type versions struct {
	Version string `json:"version"`
	// Revision is the commit of the build.
	Revision string `json:"revision"`
	// Go is the compiler's version.
	Go string `json:"go"`
}

func (c *versionCommand) Run(args []string) int {
	if _, ok := c.parse(c.flags("version"), args, 0); !ok {
		return 1
	}
	v := versions{version.Number, version.Revision, runtime.Version()}
	return c.show(v, func() { c.printf("nomad-pal v%s\nRevision %s\n", v.Version, v.Revision) })
}
