// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/hashicorp/cli"

	deviceplugin "github.com/nomad-pal/nomad-pal/device-plugin"
	"github.com/nomad-pal/nomad-pal/device-plugin/hardware"
	"github.com/nomad-pal/nomad-pal/device-plugin/nvml"
	"github.com/nomad-pal/nomad-pal/internal/version"
)

func hardwareCommand(ui cli.Ui) *command {
	return &command{
		synopsis: "Try everything on this machine's GPUs and say what disagrees with the docs",
		help: `Usage: nomad-device-pal hardware [options]

  The first hour on a machine with GPUs: doctor, fingerprint, the scan beside
  nvidia-smi, every kernel again and again (rate, power, clock, checksum, compile
  time), a whole measurement, measuring beside a job, faults that harm no one.
  Writes one JSON file and one page. Takes about a quarter of an hour; needs the
  NVIDIA driver and nothing else. GPUs in use are left alone; one that can be
  measured is run at full power.

  -out=NAME        The files' name without extension (default hardware-<host>).
  -runs=N          Runs of each kernel (default 10).
  -quick           Show in a minute or two that everything runs; the figures are
                   worth little.
  -no-faults       Cause no faults. One of them is an Xid 13 or 31 in the kernel's
                   log, which monitoring may report.
  -nvml=LIBRARY    NVML library (default libnvidia-ml.so.1).
  -cuda=LIBRARY    CUDA driver library (default libcuda.so.1).
` + stateDirHelp + `
  Exit code 0: nothing disagrees; 1: something does, or could not be done; 2: bad
  arguments.
`,
		run: func(args []string) int { return tryHardware(ui, args) },
	}
}

func tryHardware(ui cli.Ui, args []string) int {
	o := hardware.Options{Version: version.Human(), Child: childCommand(), Say: os.Stderr, Pace: hardware.DefaultPace(),
		Open: func(library string) hardware.Backend { return nvml.Open(nvml.Options{Library: library}) }}
	host, err := os.Hostname()
	if err != nil {
		host = "node"
	}
	fs := flag.NewFlagSet("hardware", flag.ContinueOnError)
	fs.StringVar(&o.Out, "out", "hardware-"+host, "")
	fs.IntVar(&o.Runs, "runs", 10, "")
	quick := fs.Bool("quick", false, "")
	without := fs.Bool("no-faults", false, "")
	fs.StringVar(&o.NVML, "nvml", "libnvidia-ml.so.1", "")
	fs.StringVar(&o.CUDA, "cuda", "libcuda.so.1", "")
	stateDir := fs.String("state-dir", deviceplugin.DefaultStateDir, "")
	if code, ok := parseFlags(ui, fs, args); !ok {
		return code
	}
	if fs.NArg() > 0 || o.Runs < 1 {
		ui.Error("hardware: -runs is at least 1, and no argument is wanted")
		return 2
	}
	if err := released(*stateDir); err != nil {
		return fail(ui, "hardware", err)
	}
	if *quick {
		o.Pace = hardware.QuickPace()
	}
	o.Faults = !*without
	if o.Self, err = os.Executable(); err != nil {
		return fail(ui, "hardware", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	record, err := o.Run(ctx)
	if err != nil {
		return fail(ui, "hardware", err)
	}
	code := 0
	for _, c := range record.Claims {
		if c.Verdict == hardware.Disagrees {
			ui.Output(fmt.Sprintf("DISAGREES  %s: %s", c.Text, c.Found))
			code = 1
		}
	}
	ui.Output("written: " + o.Out + ".md and " + o.Out + ".json")
	return code
}
