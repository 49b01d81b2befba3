// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/nomad/plugins/device"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/pal/attr"
)

// Environment variables that tasks get.
const (
	// envNVIDIA makes Nomad's docker driver use the nvidia runtime. The variable is always set, and
	// never empty.
	envNVIDIA = "NVIDIA_VISIBLE_DEVICES"
	envCUDA   = "CUDA_VISIBLE_DEVICES"
)

// Reserve returns the settings that give a task the devices, according to the latest scan. After a
// restart of the plugin, Reserve waits for the first scan. Otherwise tasks would fail because their
// GPUs have not been scanned yet.
func (p *Plugin) Reserve(deviceIDs []string) (*device.ContainerReservation, error) {
	if len(deviceIDs) == 0 {
		return &device.ContainerReservation{}, nil
	}
	p.waitKnown()
	p.mu.Lock()
	cfg, measures := p.cfg, p.measures
	chosen, parts, err := p.find(deviceIDs)
	gpus := ids(chosen)
	list := strings.Join(gpus, ",")
	res := &device.ContainerReservation{Envs: map[string]string{envNVIDIA: list}}
	if err == nil {
		err = p.joinMPS(res, chosen, parts)
	}
	beside := p.besides(parts)
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if measures != nil { // without the lock, because ending a measurement takes a moment
		ticket, err := measures.Reserve(gpus, beside)
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
	return res, nil
}

// waitKnown waits until the node's GPUs are known, at most for the time hangAfter.
func (p *Plugin) waitKnown() {
	p.mu.Lock()
	enabled := p.cfg.Enabled
	p.mu.Unlock()
	if !enabled {
		return
	}
	select {
	case <-p.known:
	case <-time.After(hangAfter):
	}
}

// find returns the devices that have these ids in the latest scan, each device once. parts
// contains, for each device, how many of the ids are parts of the device. The error lists all
// unknown ids or all unhealthy ids. Callers hold mu.
func (p *Plugin) find(deviceIDs []string) (chosen []gpu.Device, parts map[string]int, _ error) {
	if !p.cfg.Enabled {
		return nil, nil, device.ErrPluginDisabled
	}
	known := make(map[string]gpu.Device, len(p.view.inv.Devices))
	for _, d := range p.view.inv.Devices {
		for _, in := range p.view.instances(d) {
			known[in.id] = d
		}
	}
	var unknown, unhealthy []string
	parts = map[string]int{}
	for _, id := range deviceIDs {
		d, ok := known[id]
		if !ok {
			unknown = append(unknown, id)
			continue
		}
		if parts[d.ID]++; parts[d.ID] == 1 {
			chosen = append(chosen, d)
		}
		v := p.view.verdicts[d.ID]
		if !v.healthy {
			unhealthy = append(unhealthy, id+" ("+v.reason+")")
		}
	}
	if len(unknown) > 0 {
		return nil, nil, fmt.Errorf("unknown device IDs: %s", strings.Join(unknown, ","))
	}
	if len(unhealthy) > 0 {
		return nil, nil, fmt.Errorf("unhealthy device IDs: %s", strings.Join(unhealthy, ","))
	}
	return chosen, parts, nil
}

// besides reports, for each reserved GPU, whether other tasks may hold parts of the GPU. Callers
// hold mu.
func (p *Plugin) besides(parts map[string]int) map[string]bool {
	out := map[string]bool{}
	for id, n := range parts {
		out[id] = n < len(p.view.forms[id].instances(id))
	}
	return out
}
