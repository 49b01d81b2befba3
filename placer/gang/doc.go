// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package gang is the life of one job with GPUs as a machine: its states, what may
// happen in each, and what is then to be done.
//
// [Gang.Step] takes an [Event] and returns [Effect]s. It does no I/O, reads no clock
// and logs nothing. The placer carries the effects out, one after another, and hands
// each answer back as an event; a gang that waits for an answer does nothing else.
// What is due in which state, and what each event does there, is the table in
// table.go; docs/design/gang-states.md is made from it.
//
// Nomad is the only truth. [Observed] follows from Nomad's objects alone, so that a
// placer that dies between any two effects finds the gang in a state from which it
// goes on. What a [Gang] remembers besides saves requests, or tells apart what looks
// the same in Nomad: a gang that is stopped for another one looks like one whose
// placer died while it did so.
package gang
