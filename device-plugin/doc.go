// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package deviceplugin is a Nomad device plugin for NVIDIA GPUs: a drop-in for
// nomad-device-nvidia that also publishes every GPU's variability class and its
// true health.
//
// A backend (NVML, or an inventory file) is scanned; health turns the readings
// into verdicts; rate turns measured times into classes; a view of all three
// becomes the message to Nomad, sent whenever it differs from the last one.
//
// Rules that come from Nomad's client: the first message goes out within a
// second, the fingerprint stream never carries an error and is never closed by
// us (either makes Nomad drop all devices until the agent restarts), and a
// driver that no longer answers ends the process, which Nomad starts again.
package deviceplugin
