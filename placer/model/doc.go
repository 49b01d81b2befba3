// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package model is what is known at one moment: what Nomad shows, who holds which GPU, the
// gangs and their queue, and the configuration. It is pure: it asks nobody, reads no clock
// and logs nothing. The placer acts on a [Model]; package query answers questions from one.
//
// It relies on Nomad's state and the view of GPUs (placer/nomad), the life of one gang
// (placer/gang) and the queue (pal/queue).
package model
