// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package plain has one test. It gives Nomad's own scheduler, in process, small
// clusters of GPUs and batch jobs of one-GPU allocations, and compares how often
// each outcome occurs with sim/testdata/nomad.json. The simulator's model of
// plain Nomad is checked against the same file. -rewrite writes the file again.
package plain
