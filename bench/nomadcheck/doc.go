// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package nomadcheck holds a test only: it gives Nomad's own scheduler, in
// process, small clusters of GPUs and gangs of one-GPU allocations, and checks
// how often it places them how against ../sim/testdata/nomad.json, which the
// simulator's model of plain Nomad is checked against in turn. With -rewrite it
// records the file anew.
//
// It is a module of its own because Nomad's scheduler is under the BUSL.
package nomadcheck
