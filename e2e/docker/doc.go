// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package docker runs the jobs of jobspecs/ in containers: real Nomad, its docker driver, our
// device plugin and placer, and small programs in place of the images. The tests check the job's
// environment from inside the container.
//
// The tests need root and dockerd on PATH. Without these they skip or, with DOCKER_REQUIRED=1,
// fail. They do not use the machine's own engine. Instead, the test process starts itself again in
// its own namespaces (processes, mounts, network), with its own /run, /dev and engine. However the
// test ends, the kernel then ends all of these.
package docker
