// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package docker runs the jobs of jobspecs/ in containers: real Nomad, its docker driver,
// our device plugin and placer, and small programs in place of the images. The tests check
// from inside the container what a job gets.
//
// The tests need root and dockerd on PATH, and skip without; DOCKER_REQUIRED=1 makes that a
// failure. They do not touch the machine's own engine: the test process starts itself again
// in its own namespaces (processes, mounts, network), with its own /run, /dev and engine.
// The kernel ends all of that with the test, however the test ends.
package docker
