// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package docker runs the jobs of jobspecs/ in containers, with real Nomad, its docker driver, and
// our device plugin and placer. Small programs replace the programs of the images. The tests check
// the job's environment from inside the container.
//
// Without root or without dockerd on PATH, the tests are skipped or, with DOCKER_REQUIRED=1, fail.
// Instead of using the machine's own engine, the test process starts itself again in its own
// namespaces (processes, mounts, network), with its own /run, /dev and engine. When the test ends,
// even by a crash, the kernel ends the namespaces and their processes.
package docker
