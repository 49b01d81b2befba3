// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// emulate writes the files of a client's emulated GPUs, and adds the device plugin that
// reads them.
func (a *Agent) emulate() error {
	config := fmt.Sprintf("backend = \"emulated\"\ninventory = %q\nstate_dir = %q\n%s\n", a.inventory(), a.PluginState(), a.client.PluginHCL)
	if a.client.Profile != "" {
		path := filepath.Join(a.Dir, "profile.json")
		config += fmt.Sprintf("profile = %q\n", path)
		if err := os.WriteFile(path, []byte(a.client.Profile), 0o644); err != nil {
			return err
		}
	}
	a.client.Plugins = append(slices.Clip(a.client.Plugins), Plugin{Path: a.cluster.Program("nomad-device-pal"), Config: config})
	return a.SetInventory(a.client.Inventory)
}

func (a *Agent) inventory() string { return filepath.Join(a.Dir, "gpus.hcl") }

// PluginState returns the directory in which the plugin of a client's emulated GPUs keeps its
// state.
func (a *Agent) PluginState() string { return filepath.Join(a.Dir, "plugin-state") }

// SetInventory replaces the inventory of a client's emulated GPUs atomically. The plugin notices
// the new file by itself.
func (a *Agent) SetInventory(hcl string) error {
	if err := os.WriteFile(a.inventory()+".new", []byte(hcl), 0o644); err != nil {
		return fmt.Errorf("writing the inventory of %s: %w", a.Name, err)
	}
	return os.Rename(a.inventory()+".new", a.inventory())
}

// hasGPUs is a condition for [Until]: the servers know all GPUs of the client's inventory.
func (a *Agent) hasGPUs(ctx context.Context, node string) (string, error) {
	text, err := os.ReadFile(a.inventory())
	if err != nil {
		return "", Fatal(err)
	}
	n, _, err := a.cluster.API().Nodes().Info(node, (&api.QueryOptions{}).WithContext(ctx))
	if err != nil {
		return "", err
	}
	have, want := 0, strings.Count("\n"+string(text), "\ngpu \"")
	for _, d := range n.NodeResources.Devices {
		have += len(d.Instances)
	}
	if have < want {
		return fmt.Sprintf("%d of %d GPUs", have, want), nil
	}
	return "", nil
}

// DeviceIDs returns the sorted ids of the devices that Nomad gave to an allocation; none if r is
// nil.
func DeviceIDs(r *api.AllocatedResources) []string {
	var ids []string
	if r == nil {
		return nil
	}
	for _, t := range r.Tasks {
		for _, d := range t.Devices {
			ids = append(ids, d.DeviceIDs...)
		}
	}
	slices.Sort(ids)
	return ids
}
