// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"github.com/hashicorp/cli"

	"github.com/nomad-pal/nomad-pal/device-plugin/statedir"
)

func clearCommand(ui cli.Ui) *command {
	return &command{
		synopsis: "Call a GPU healthy again after a fatal Xid",
		help: `Usage: nomad-device-pal clear [-state-dir=DIR] UUID

  A fatal Xid keeps a GPU unhealthy until the driver says that it recovered,
  the driver is reloaded, the machine is booted, or this command. The running
  plugin takes the order within a second.

  -state-dir=DIR   The plugin's state_dir (default /var/lib/nomad-device-pal).
`,
		run: func(args []string) int {
			return order(ui, "clear", args, statedir.Clear, "The plugin will forget the faults of ")
		},
	}
}
