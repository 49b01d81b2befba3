// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package hostile holds what authors and nodes should not send, but do: malformed or absurd
// jobs and nodes, for tests of everything that reads them. Whoever finds another one
// adds it here, and all these tests try it.
//
// Nomad 1.11.3 accepts these jobs, or its API hands them out. None of them may
// panic anything, or change what happens to the others.
package hostile
