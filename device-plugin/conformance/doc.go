// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package conformance drives any Nomad device plugin binary over its real
// handshake: the contract of every call, cancellation, restart, health, streams
// that must not end, and, for NVIDIA plugins, faults of the driver, which a
// library without a driver emulates.
//
//	make conformance PLUGIN=path/to/binary
//
// Without PLUGIN the tests build and drive nomad-device-pal.
package conformance
