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
	toolsNode   = "/dev/nvidia-uvm-tools" // for profilers alone
	// migMinors lists the device files that allow the use of MIG instances, one a line:
	// "gpu0/gi7/access 66".
	migMinors = "/proc/driver/nvidia-caps/mig-minors"
)

// deviceNodes are the files that the exec driver must let a task have. root is where /dev and
// /proc are found.
//
// Under WSL2 there is one file for all GPUs, and none of the driver's. Files that a machine
// lacks are left out only where nothing needs them: a task must not start without its GPU.
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
		if d.Minor >= 0 {
			paths = append(paths, fmt.Sprintf("/dev/nvidia%d", d.Minor))
		}
		caps, err := capabilities(root, d)
		if err != nil {
			return nil, err
		}
		paths = append(paths, caps...)
	}
	return specs(paths), nil
}

// specs are the files in their order, each once.
func specs(paths []string) []*device.DeviceSpec {
	var out []*device.DeviceSpec
	for i, path := range paths {
		if !slices.Contains(paths[:i], path) {
			out = append(out, &device.DeviceSpec{TaskPath: path, HostPath: path, CgroupPerms: "rw"})
		}
	}
	return out
}

// capabilities are the files that allow a task the use of a MIG instance: of its GPU instance
// and of its compute instance. Drivers before R450 have none.
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
	gi := fmt.Sprintf("gpu%d/gi%d", d.Minor, d.GPUInstance)
	var out []string
	for _, name := range []string{gi + "/access", fmt.Sprintf("%s/ci%d/access", gi, d.ComputeInstance)} {
		minor := ""
		for line := range strings.Lines(string(data)) {
			if f := strings.Fields(line); len(f) == 2 && f[0] == name {
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
