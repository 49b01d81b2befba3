// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package deviceplugin is a Nomad device plugin for NVIDIA GPUs: a drop-in for nomad-device-nvidia
// that also publishes every GPU's variability class and its true health.
//
// A backend (NVML, or an inventory file) is scanned; health turns the readings into verdicts; rate
// turns measured times into classes; a view of all three becomes the message to Nomad, sent
// whenever it differs from the last one.
//
// Nomad's client and a driver that may hang impose these rules on every change:
//
//   - The first message goes out even if the first scan hangs, because Nomad's client waits for it
//     when it starts. The deadline is 0.8 s (firstWithin), or 17 s (firstHangAfter) if the plugin
//     has a stored list of GPUs.
//   - The fingerprint stream never carries an error, and the plugin never closes it before its
//     context ends. Either makes Nomad drop all devices until the agent restarts.
//   - A driver call may never return. So no driver call runs while Plugin.mu is held, or in the
//     goroutine of a stream.
//   - A scan that takes longer than 10 s (the first one: 17 s) makes all GPUs unhealthy. After the
//     time in the config key watchdog (default 2m, 0: never), the process ends, and Nomad starts a
//     new one.
package deviceplugin
