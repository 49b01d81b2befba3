// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/hashicorp/cli"

	deviceplugin "github.com/nomad-pal/nomad-pal/device-plugin"
	"github.com/nomad-pal/nomad-pal/device-plugin/measure"
	"github.com/nomad-pal/nomad-pal/device-plugin/nomad"
	"github.com/nomad-pal/nomad-pal/device-plugin/nvml"
	"github.com/nomad-pal/nomad-pal/internal/nearest"
)

// command is one subcommand.
type command struct {
	synopsis string
	help     string
	run      func(args []string) int
}

func (c *command) Synopsis() string      { return c.synopsis }
func (c *command) Help() string          { return strings.TrimSpace(c.help) }
func (c *command) Run(args []string) int { return c.run(args) }

// fail prints the error of a command, and returns the exit code.
func fail(ui cli.Ui, name string, err error) int {
	ui.Error(name + ": " + err.Error())
	return 1
}

// printJSON prints v as JSON, and returns the exit code.
func printJSON(ui cli.Ui, name string, v any) int {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fail(ui, name, err)
	}
	ui.Output(string(data))
	return 0
}

// columns aligns rows. In each row, "|" separates the cells.
func columns(rows []string) string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for i, r := range rows {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprint(w, strings.ReplaceAll(r, "|", "\t"))
	}
	_ = w.Flush() // writing to a string never fails
	return out.String()
}

// commands returns the subcommands by name.
func commands(ui cli.Ui) map[string]cli.CommandFactory {
	all := map[string]*command{
		"clear":       clearCommand(ui),
		"doctor":      doctorCommand(ui),
		"fingerprint": fingerprintCommand(ui),
		"measure":     measureCommand(),
		"release":     releaseCommand(ui),
		"resume":      resumeCommand(ui),
	}
	out := make(map[string]cli.CommandFactory, len(all))
	for name, c := range all {
		out[name] = func() (cli.Command, error) { return c, nil }
	}
	return out
}

// unknownCommand returns the error text for an unknown command. The text suggests the most similar
// command. For a known command, unknownCommand returns "".
func unknownCommand(args []string, commands map[string]cli.CommandFactory) string {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") || commands[args[0]] != nil {
		return ""
	}
	said := fmt.Sprintf("nomad-device-pal has no command %q", args[0])
	near := nearest.Name(args[0], slices.Sorted(maps.Keys(commands)))
	if near != "" {
		return said + fmt.Sprintf(": did you mean %q? See nomad-device-pal -help.", near)
	}
	return said + "; see nomad-device-pal -help."
}

func measureCommand() *command {
	return &command{
		synopsis: measure.Synopsis,
		help:     measure.Help,
		run: func(args []string) int {
			return measure.Command{
				Self:      childCommand(),
				Open:      func(library string) measure.Backend { return nvml.Open(nvml.Options{Library: library}) },
				Allocated: nomad.Options{}.Allocated,
				Released:  released,
				StateDir:  deviceplugin.DefaultStateDir,
				Stdout:    os.Stdout,
				Stderr:    os.Stderr,
			}.Run(args)
		},
	}
}

const introduction = `nomad-device-pal is a Nomad device plugin: Nomad's client starts it.

  To install it, put this file into the client's plugin_dir and add to the
  client's configuration

      plugin "nomad-device-pal" {
        config {}
      }

  then restart the client. The label is the file's name. To replace
  nomad-device-nvidia, name this file nomad-device-nvidia and keep its plugin block.

Usage: nomad-device-pal <command> [options]
       nomad-device-pal -version

Commands:`

// help returns the binary's help text, which contains the synopsis of each command.
func help(commands map[string]cli.CommandFactory) string {
	var b strings.Builder
	b.WriteString(introduction + "\n")
	for _, name := range slices.Sorted(maps.Keys(commands)) {
		c, _ := commands[name]() // the factories never fail
		fmt.Fprintf(&b, "    %-12s %s\n", name, c.Synopsis())
	}
	return strings.TrimRight(b.String(), "\n")
}
