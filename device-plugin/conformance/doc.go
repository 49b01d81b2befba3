// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package conformance tests any Nomad device plugin binary over Nomad's real handshake. The tests
// cover every call, cancellation, restarts and health, and check that streams do not end. For
// NVIDIA plugins, a fake NVML library also emulates faults of the driver.
//
//	make conformance PLUGIN=path/to/binary
//
// Without PLUGIN the tests build and drive nomad-device-pal.
package conformance
