// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package deviceplugin is a Nomad device plugin for NVIDIA GPUs: a drop-in for nomad-device-nvidia
// that also publishes every GPU's variability class and its true health.
//
// The plugin scans a backend (NVML, or an inventory file). The type health turns the readings into
// verdicts, and the function rate turns measured times into classes. A view of devices, verdicts
// and classes becomes the message to Nomad, which the plugin sends whenever it differs from the
// last one.
//
// Every change must keep these rules, because of Nomad's client and because a driver can hang:
//
//   - The first message goes out even if the first scan hangs, because Nomad's client waits for
//     this message when the client starts. The deadline is 0.8 s (firstWithin), or 17 s
//     (hangAfter) if the plugin has a stored list of GPUs.
//   - The fingerprint stream never carries an error, and the plugin never closes it before its
//     context ends. An error or a closed stream makes Nomad drop all devices until the agent
//     restarts.
//   - It is possible that a driver call never returns. So no driver call runs while Plugin.mu is
//     held, or in the goroutine of a stream.
//   - A scan that takes longer than 10 s (the first one: 17 s) makes all GPUs unhealthy. If the
//     scan takes longer than the config key watchdog (default 2m; 0: no limit), the process ends,
//     and Nomad starts a new one.
package deviceplugin
