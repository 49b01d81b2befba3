// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package replay runs a workload on a real Nomad cluster: real agents, the real device plugin, and
// jobs submitted with the real command lines. The GPUs are emulated with measured variability, and
// the gangs' ranks run at the speed of their GPUs (package rank). The same jobs, arrivals and GPUs
// run under plain Nomad and under the placer ([Bed.Run]), and on a Slurm cluster ([RunSlurm]).
//
// The JSON keys of [Result] must not change, because reports are drawn from the result files in
// bench/results.
package replay
