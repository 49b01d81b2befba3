// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

//go:build faultpoints

package main

import (
	"os"
	"syscall"

	"github.com/nomad-pal/nomad-pal/placer"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

// hooks returns hooks that kill the process, as kill -9 does, at the point that NOMAD_PAL_FAULT
// names: before-commit or after-commit. Only binaries with the build tag faultpoints, for the
// end-to-end tests, contain these hooks.
func hooks() placer.Hooks {
	die := func(cluster.JobKey) {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // wait for the signal
	}
	switch os.Getenv("NOMAD_PAL_FAULT") {
	case "before-commit":
		return placer.Hooks{BeforeCommit: die}
	case "after-commit":
		return placer.Hooks{AfterCommit: die}
	}
	return placer.Hooks{}
}
