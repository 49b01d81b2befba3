// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"errors"
	"flag"
	"io"

	"github.com/hashicorp/cli"

	deviceplugin "github.com/nomad-pal/nomad-pal/device-plugin"
)

func clearCommand(ui cli.Ui) *command {
	return &command{
		synopsis: "Call a GPU healthy again after a fatal Xid",
		help: `Usage: nomad-device-pal clear -state-dir=DIR UUID

  A fatal Xid keeps a GPU unhealthy until the driver says that it recovered,
  the driver is loaded anew, the machine is booted, or this command. The running
  plugin takes the order within a second.

  -state-dir=DIR   The plugin's state_dir.
`,
		run: func(args []string) int {
			fs := flag.NewFlagSet("clear", flag.ContinueOnError)
			fs.SetOutput(io.Discard)
			dir := fs.String("state-dir", "", "")
			switch err := fs.Parse(args); {
			case errors.Is(err, flag.ErrHelp):
				return cli.RunResultHelp
			case err != nil:
				ui.Error("clear: " + err.Error())
				return 2
			case *dir == "" || fs.NArg() != 1:
				ui.Error("clear: -state-dir and one UUID are needed")
				return 2
			}
			if err := deviceplugin.OrderClear(*dir, fs.Arg(0)); err != nil {
				ui.Error("clear: " + err.Error())
				return 1
			}
			ui.Output("The plugin will forget the faults of " + fs.Arg(0) + ".")
			return 0
		},
	}
}
