// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package hostile holds what authors and nodes should not send, but do: malformed or absurd
// jobs and nodes, for tests of everything that reads them. Whoever finds another one
// adds it here, and all these tests try it.
//
// The jobs are those that Nomad 1.11.3 accepts, or passes on. None of them may
// panic anything, or change what happens to the others.
package hostile
