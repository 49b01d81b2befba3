// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/plugins/device"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/pal/attr"
)

// Environment variables that a task gets.
const (
	// envNVIDIA makes Nomad's docker driver use the nvidia runtime; it is never
	// left out, and never empty.
	envNVIDIA = "NVIDIA_VISIBLE_DEVICES"
	envCUDA   = "CUDA_VISIBLE_DEVICES"
	// cdiKind is the vendor and class of NVIDIA's CDI specifications.
	cdiKind = "nvidia.com/gpu"
)

// Reserve says how a task gets the devices. It answers from the last scan, and waits
// for the driver only after a restart: Nomad, whose client runs on, asks at once, and
// a task must not fail because its GPUs have not been looked at.
func (p *Plugin) Reserve(deviceIDs []string) (*device.ContainerReservation, error) {
	if len(deviceIDs) == 0 {
		return &device.ContainerReservation{}, nil
	}
	p.waitKnown()
	p.mu.Lock()
	cfg, measures := p.cfg, p.measures
	chosen, err := p.find(deviceIDs)
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}
	list := strings.Join(deviceIDs, ",")
	res := &device.ContainerReservation{Envs: map[string]string{envNVIDIA: list}}
	if measures != nil { // without the lock: ending a measurement takes a moment
		ticket, err := measures.Reserve(deviceIDs)
		if err != nil {
			return nil, err
		}
		res.Envs[attr.EnvReservation] = ticket
	}
	if cfg.Reserve.CUDAVisibleDevices {
		res.Envs[envCUDA] = list
	}
	if cfg.Reserve.DeviceNodes {
		if res.Devices, err = deviceNodes(p.root, chosen); err != nil {
			return nil, err
		}
	}
	if cfg.CDI {
		for _, id := range deviceIDs {
			name := cdiKind + "=" + id
			res.Devices = append(res.Devices, &device.DeviceSpec{TaskPath: name, HostPath: name, CgroupPerms: "rwm"})
		}
	}
	return res, nil
}

// waitKnown waits until it is known what GPUs there are, while that is being found out.
func (p *Plugin) waitKnown() {
	p.mu.Lock()
	enabled := p.cfg.Enabled
	p.mu.Unlock()
	if !enabled {
		return
	}
	select {
	case <-p.known:
	case <-time.After(firstHangAfter):
	}
}

// find looks the ids up in the last scan; the error names all that are unknown,
// or all that are unhealthy. Callers hold mu.
func (p *Plugin) find(deviceIDs []string) ([]gpu.Device, error) {
	if !p.cfg.Enabled {
		return nil, device.ErrPluginDisabled
	}
	known := make(map[string]gpu.Device, len(p.view.inv.Devices))
	for _, d := range p.view.inv.Devices {
		known[d.ID] = d
	}
	var chosen []gpu.Device
	var unknown, unhealthy []string
	for _, id := range deviceIDs {
		d, ok := known[id]
		if !ok {
			unknown = append(unknown, id)
			continue
		}
		chosen = append(chosen, d)
		if v := p.view.verdicts[id]; !v.healthy {
			unhealthy = append(unhealthy, id+" ("+v.reason+")")
		}
	}
	if len(unknown) > 0 {
		return nil, fmt.Errorf("unknown device IDs: %s", strings.Join(unknown, ","))
	}
	unusable := slices.ContainsFunc(chosen, func(d gpu.Device) bool { return d.Unusable != "" })
	if len(unhealthy) > 0 && (unusable || p.cfg.Reserve.Unhealthy != "allow" || p.driver != driverUsed) {
		return nil, fmt.Errorf("unhealthy device IDs: %s", strings.Join(unhealthy, ","))
	}
	return chosen, nil
}
