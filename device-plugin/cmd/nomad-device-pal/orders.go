// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"flag"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/cli"

	deviceplugin "github.com/nomad-pal/nomad-pal/device-plugin"
	"github.com/nomad-pal/nomad-pal/device-plugin/statedir"
)

func clearCommand(ui cli.Ui) *command {
	return &command{
		synopsis: "Call a GPU healthy again after a fatal Xid",
		help: `Usage: nomad-device-pal clear [-state-dir=DIR] UUID

  A fatal Xid keeps a GPU unhealthy until the driver says that it recovered,
  the driver is reloaded, the machine is booted, or this command. It also says
  that a GPU is gone, or that NVLinks which it had were taken away on purpose.
  The running plugin takes the order within a second. The beginning of a UUID is
  enough, if no other GPU's begins so.

  -state-dir=DIR   The plugin's state_dir (default /var/lib/nomad-device-pal).
`,
		run: func(args []string) int {
			return order(ui, "clear", args, statedir.Clear, "The plugin will forget the faults of %s.")
		},
	}
}

func remeasureCommand(ui cli.Ui) *command {
	return &command{
		synopsis: "Have the running plugin measure a GPU as soon as it is idle",
		help: `Usage: nomad-device-pal remeasure [-state-dir=DIR] UUID

  The running plugin measures the GPU once nothing uses it, with measure mode
  "manual" or "idle". The beginning of a UUID is enough, if no other GPU's
  begins so.

  -state-dir=DIR   The plugin's state_dir (default /var/lib/nomad-device-pal).
`,
		run: func(args []string) int {
			return order(ui, "remeasure", args, statedir.Measure, "Unless its measure mode is \"off\", the plugin measures %s as soon as that is idle.")
		},
	}
}

// order is a subcommand that leaves an order for the running plugin.
func order(ui cli.Ui, name string, args []string, kind statedir.Orders, done string) int {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	dir := fs.String("state-dir", deviceplugin.DefaultStateDir, "")
	if code, ok := parseFlags(ui, fs, args); !ok {
		return code
	}
	switch {
	case fs.NArg() != 1:
		ui.Error(name + ": one UUID is needed")
		return 2
	case *dir == "":
		ui.Error(name + ": -state-dir is empty: a plugin that keeps no state takes no orders")
		return 2
	}
	known, err := deviceplugin.StoredDevices(*dir)
	if err != nil {
		return fail(ui, name, err)
	}
	id, err := among(known, fs.Arg(0))
	if err == nil {
		err = kind.Give(statedir.Dir(*dir), id)
	}
	if err != nil {
		return fail(ui, name, err)
	}
	ui.Output(fmt.Sprintf(done, id))
	return 0
}

// among is the GPU that a UUID, or the beginning of one alone, names.
func among(known []string, name string) (string, error) {
	if slices.Contains(known, name) {
		return name, nil
	}
	var found []string
	for _, id := range known {
		if strings.HasPrefix(id, name) {
			found = append(found, id)
		}
	}
	switch {
	case name == "" || len(found) == 0:
		return "", fmt.Errorf("%q is none of this node's GPUs (%s)", name, strings.Join(known, ", "))
	case len(found) > 1:
		return "", fmt.Errorf("%q is the beginning of %d of this node's GPUs: say more of it (%s)", name, len(found), strings.Join(found, ", "))
	}
	return found[0], nil
}
