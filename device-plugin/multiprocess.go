// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/hashicorp/nomad/plugins/device"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/device-plugin/mps"
)

// daemonsFile stores the list of MPS control daemons that the plugin has started.
const daemonsFile = "mps.json"

// openKeeper returns the keeper of the control daemons. Callers hold mu.
func (p *Plugin) openKeeper() *mps.Keeper {
	var left []mps.Daemon
	if _, err := p.store.Read(daemonsFile, &left); err != nil {
		p.log.Warn("cannot read the stored list of MPS control daemons", "error", err)
	}
	s := p.store
	return mps.NewKeeper(p.log, left, func(ds []mps.Daemon) error { return s.Write(daemonsFile, ds) })
}

// daemon returns the control daemon of a device that tasks share by MPS. ok is false if the device
// has no daemon, for example because the GPU is emulated and no control program is configured.
func (p *Plugin) daemon(d gpu.Device) (_ mps.Daemon, ok bool) {
	block, known := p.sharedBy[d.ID]
	if p.view.forms[d.ID].Mode != MPS || !known {
		return mps.Daemon{}, false
	}
	b := p.cfg.Sharing[block]
	out := mps.Daemon{Pipe: b.PipeDirectory, Control: b.Control}
	if b.PipeDirectory == "" {
		out.GPU = d.ID
		out.Own, out.Threads, out.MemoryMiB = true, b.mostThreads(), b.mostMemory(d)
		out.Pipe, out.Log = filepath.Join(b.Directory, d.ID, "pipe"), filepath.Join(b.Directory, d.ID, "log")
	}
	return out, p.cfg.Backend == "nvml" || filepath.IsAbs(b.Control)
}

// mostThreads and mostMemory return the limit for one client, in percent and MiB; 0 if unknown.
func (b SharingConfig) mostThreads() int { return cmp.Or(b.MaxThreads, b.threads()) }

func (b SharingConfig) mostMemory(d gpu.Device) int64 {
	switch {
	case d.MemoryMiB == nil:
		return 0
	case b.MaxMemory > 0:
		return *d.MemoryMiB * int64(b.MaxMemory) / 100
	}
	return *d.MemoryMiB / int64(b.Replicas)
}

// wantDaemons tells the keeper which control daemons must run. If a device waits for its new form,
// its daemon runs until the form changes. Callers hold mu.
func (p *Plugin) wantDaemons() {
	want := map[string]mps.Daemon{}
	leave := map[string]bool{}
	for _, d := range p.view.inv.Devices {
		if _, waits := p.forms.waits[d.ID]; waits {
			leave[d.ID] = true
		} else if daemon, ok := p.daemon(d); ok {
			want[d.ID] = daemon
		}
	}
	if len(p.view.inv.Devices) > 0 { // without GPUs, the driver is away, and running daemons stay until it is back
		p.keeper.Want(want, leave)
	}
}

// joinMPS adds the settings that a task needs to use its parts of these devices under MPS. A limit
// on threads applies to all of the task's GPUs. Callers hold mu.
func (p *Plugin) joinMPS(res *device.ContainerReservation, chosen []gpu.Device, parts map[string]int) error {
	var use []mps.Daemon
	threads, memory := 0, []string{}
	for i, d := range chosen {
		if p.view.forms[d.ID].Mode != MPS {
			continue
		}
		block, known := p.sharedBy[d.ID]
		if !known {
			return nil // the device changes its form, and its task already has the variables
		}
		b, daemon := p.cfg.Sharing[block], mps.Daemon{}
		if daemon, known = p.daemon(d); known {
			use = append(use, daemon)
		}
		threads = max(threads, min(b.threads()*parts[d.ID], b.mostThreads()))
		if d.MemoryMiB != nil {
			memory = append(memory, fmt.Sprintf("%d=%dM", i, min(*d.MemoryMiB/int64(b.Replicas)*int64(parts[d.ID]), b.mostMemory(d))))
		}
	}
	if threads == 0 {
		return nil
	}
	res.Envs[mps.EnvThreads] = fmt.Sprint(threads)
	if len(memory) > 0 {
		res.Envs[mps.EnvMemory] = strings.Join(memory, ",")
	}
	for _, daemon := range use {
		if daemon.Pipe != use[0].Pipe {
			return fmt.Errorf("GPUs %s have one MPS control daemon each, but a process can use only one daemon: request parts of one GPU (count = 1)",
				strings.Join(ids(chosen), ", "))
		}
		if err := daemon.Use(); err != nil {
			return err
		}
	}
	if len(use) > 0 {
		res.Envs[mps.EnvPipe] = use[0].Pipe
		res.Mounts = append(res.Mounts, &device.Mount{TaskPath: use[0].Pipe, HostPath: use[0].Pipe})
	}
	return nil
}
