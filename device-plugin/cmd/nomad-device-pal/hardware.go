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
	"time"

	"github.com/hashicorp/cli"

	deviceplugin "github.com/nomad-pal/nomad-pal/device-plugin"
	"github.com/nomad-pal/nomad-pal/device-plugin/hardware"
	"github.com/nomad-pal/nomad-pal/device-plugin/nvml"
	"github.com/nomad-pal/nomad-pal/internal/version"
)

func hardwareCommand(ui cli.Ui) *command {
	return &command{
		synopsis: "Try everything on this machine's GPUs and report what disagrees with the docs",
		help: `Usage: nomad-device-pal hardware [options]

  Tries the whole plugin on a machine with GPUs, the most important checks first:
  doctor, fingerprint, the scan compared with nvidia-smi, a whole measurement, every
  kernel several times (rate, power, clock, checksum, compile time), measuring beside a
  job, harmless faults, and the first five minutes at full power. It writes each result
  at once to one JSON file, one page and one log, so you can end the command at
  any time. It needs only the NVIDIA driver. It leaves GPUs in use alone. All other GPUs
  that can be measured run at full power.

  -budget=TIME     Total time (default 8m). Checks that do not fit are left out.
                   Below 5m each check is too short for reliable figures.
  -plan            Print the checks with their times, and exit. Needs no GPU.
  -out=NAME        The files' name without extension (default hardware-<host>). A number
                   is added if the name is taken.
  -runs=N          Runs of each kernel, at most (default 10).
  -force           Measure GPUs that are in use, too.
  -no-faults       Cause no faults. One of them is an Xid 13 or 31 in the kernel's
                   log, which monitoring may report.
  -nvml=LIBRARY    NVML library (default libnvidia-ml.so.1).
  -cuda=LIBRARY    CUDA driver library (default libcuda.so.1).
` + stateDirHelp + `
  SIGTERM or a lost connection ends the command, which keeps the results so far. Exit code 0: all checks agree
  with the docs; 1: a check disagrees or failed; 2: bad arguments.
`,
		run: func(args []string) int { return tryHardware(ui, args) },
	}
}

func tryHardware(ui cli.Ui, args []string) int {
	o := hardware.Options{Version: version.Human(), Child: childCommand(), Say: os.Stderr,
		Open: func(library string) hardware.Backend { return nvml.Open(nvml.Options{Library: library}) }}
	host, err := os.Hostname()
	if err != nil {
		host = "node"
	}
	fs := flag.NewFlagSet("hardware", flag.ContinueOnError)
	fs.StringVar(&o.Out, "out", "hardware-"+host, "")
	fs.IntVar(&o.Runs, "runs", 10, "")
	fs.DurationVar(&o.Budget, "budget", 8*time.Minute, "")
	fs.BoolVar(&o.Force, "force", false, "")
	plan := fs.Bool("plan", false, "")
	without := fs.Bool("no-faults", false, "")
	fs.StringVar(&o.NVML, "nvml", "libnvidia-ml.so.1", "")
	fs.StringVar(&o.CUDA, "cuda", "libcuda.so.1", "")
	stateDir := fs.String("state-dir", deviceplugin.DefaultStateDir, "")
	if code, ok := parseFlags(ui, fs, args); !ok {
		return code
	}
	if fs.NArg() > 0 || o.Runs < 1 || o.Budget < time.Second {
		ui.Error("hardware: -runs must be at least 1, -budget at least 1s, and the command takes no arguments")
		return 2
	}
	o.Faults, o.Pace = !*without, hardware.PaceFor(o.Budget)
	if *plan {
		hardware.WritePlan(os.Stdout, o.Budget, o.Plan())
		return 0
	}
	if err := released(*stateDir); err != nil {
		return fail(ui, "hardware", err)
	}
	if o.Self, err = os.Executable(); err != nil {
		return fail(ui, "hardware", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // continue if the output is closed, because the files contain everything
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
	if record.Interrupted {
		code = 1
	}
	ui.Output("written: " + o.Out + ".json, " + o.Out + ".md and " + o.Out + ".log")
	return code
}
