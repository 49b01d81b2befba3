// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package docker runs the jobs of jobspecs/ in containers: real Nomad, its docker driver,
// our device plugin and placer, and small programs in place of the images. The tests look
// at what a job gets from inside its container.
//
// The tests need root and dockerd on PATH, and skip without; DOCKER_REQUIRED=1 makes that a
// failure. They touch no engine that is there: the test process starts itself again in
// namespaces of its own (processes, mounts, network), with /run, /dev and the engine in
// them. The kernel ends all of that with the test, however the test ends.
package docker
