// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package deviceplugin is a Nomad device plugin for NVIDIA GPUs: a drop-in for nomad-device-nvidia
// that also publishes every GPU's variability class and its true health.
//
// A backend (NVML, or an inventory file) is scanned; health turns the readings into verdicts; rate
// turns measured times into classes; a view of all three becomes the message to Nomad, sent
// whenever it differs from the last one.
//
// Nomad's client imposes these rules. The first message goes out within a second. The fingerprint
// stream never carries an error, and the plugin never closes it: either makes Nomad drop all
// devices until the agent restarts. If the driver stops answering, the process ends, and Nomad
// restarts it.
package deviceplugin
