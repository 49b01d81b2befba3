// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

//go:build !faultpoints

package main

import "github.com/nomad-pal/nomad-pal/placer"

// hooks returns no hooks. The hooks of tests are in fault_on.go.
func hooks() placer.Hooks { return placer.Hooks{} }
