// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"

	"github.com/hashicorp/go-hclog"

	deviceplugin "github.com/nomad-pal/nomad-pal/device-plugin"
	"github.com/nomad-pal/nomad-pal/device-plugin/emulated"
	"github.com/nomad-pal/nomad-pal/device-plugin/nvml"
)

// open makes the backend that the configuration names.
func open(cfg deviceplugin.Config, log hclog.Logger) (deviceplugin.Backend, error) {
	switch cfg.Backend {
	case "emulated":
		return emulated.Open(cfg.Inventory)
	case "nvml":
		return nvml.Open(nvml.Options{Library: cfg.NVMLLibrary, GPM: cfg.Stats.GPM == "auto", Log: log}), nil
	}
	return nil, fmt.Errorf("config key \"backend\": %q is not one of nvml, emulated", cfg.Backend)
}
