// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/plugins/device"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
)

const (
	controlNode = "/dev/nvidiactl"
	toolsNode   = "/dev/nvidia-uvm-tools" // only profilers need it
	// migMinors lists the device files that give access to MIG instances, one per line:
	// "gpu0/gi7/access 66".
	migMinors = "/proc/driver/nvidia-caps/mig-minors"
)

// deviceNodes returns the device files that the exec driver must give a task. root is the directory
// with dev and proc.
//
// Under WSL2 one device file serves all GPUs, and the driver has no files of its own. Required
// files are returned even if they do not exist, because a task must not start without its GPU.
func deviceNodes(root string, ds []gpu.Device) ([]*device.DeviceSpec, error) {
	has := func(path string) bool {
		_, err := os.Stat(filepath.Join(root, path))
		return err == nil
	}
	paths := []string{controlNode, "/dev/nvidia-uvm"}
	switch {
	case !has(controlNode) && gpu.IsWSL(root):
		return specs([]string{gpu.WSLDevice}), nil
	case has(toolsNode) || !has(controlNode):
		paths = append(paths, toolsNode)
	}
	for _, d := range ds {
		if d.Place.Minor < 0 {
			return nil, fmt.Errorf("device file of GPU %q: NVML does not report the GPU's minor number (config key reserve.device_nodes)", d.ID)
		}
		paths = append(paths, fmt.Sprintf("/dev/nvidia%d", d.Place.Minor))
		caps, err := capabilities(root, d)
		if err != nil {
			return nil, err
		}
		paths = append(paths, caps...)
	}
	return specs(paths), nil
}

// specs returns the specs of the files in this order, without duplicates.
func specs(paths []string) []*device.DeviceSpec {
	var out []*device.DeviceSpec
	for i, path := range paths {
		if !slices.Contains(paths[:i], path) {
			out = append(out, &device.DeviceSpec{TaskPath: path, HostPath: path, CgroupPerms: "rw"})
		}
	}
	return out
}

// capabilities returns the files that give a task access to a MIG instance: the file of its GPU
// instance and the file of its compute instance. Drivers before R450 do not have these files.
func capabilities(root string, d gpu.Device) ([]string, error) {
	if d.Parent == "" {
		return nil, nil
	}
	data, err := os.ReadFile(filepath.Join(root, migMinors))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the device files of MIG instance %q: %w", d.ID, err)
	}
	gi := fmt.Sprintf("gpu%d/gi%d", d.Place.Minor, d.MIG.GPUInstance)
	var out []string
	for _, name := range []string{gi + "/access", fmt.Sprintf("%s/ci%d/access", gi, d.MIG.ComputeInstance)} {
		minor := ""
		for line := range strings.Lines(string(data)) {
			f := strings.Fields(line)
			if len(f) == 2 && f[0] == name {
				minor = f[1]
			}
		}
		if minor == "" {
			return nil, fmt.Errorf("device files of MIG instance %q: %s has no line %q", d.ID, migMinors, name)
		}
		out = append(out, "/dev/nvidia-caps/nvidia-cap"+minor)
	}
	return out, nil
}
