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
		synopsis: "Try everything on this machine's GPUs and say what disagrees with the docs",
		help: `Usage: nomad-device-pal hardware [options]

  The first minutes on a machine with GPUs, what matters most first: doctor,
  fingerprint, the scan beside nvidia-smi, a whole measurement, every kernel again
  and again (rate, power, clock, checksum, compile time), measuring beside a job,
  faults that harm no one, the first five minutes at full power. Writes one JSON
  file, one page and one log, with every result as it comes: end it whenever you
  like. Needs the NVIDIA driver and nothing else. GPUs in use are left alone; one
  that can be measured is run at full power.

  -budget=TIME     Time for all of it (default 8m). What does not fit is left out.
                   Below 5m everything runs briefly: the figures are worth little.
  -plan            Print what would be done, with times, and end. Needs no GPU.
  -out=NAME        The files' name without extension (default hardware-<host>). One
                   that an earlier run took gets a number.
  -runs=N          Runs of each kernel, at most (default 10).
  -force           Measure GPUs that are in use, too.
  -no-faults       Cause no faults. One of them is an Xid 13 or 31 in the kernel's
                   log, which monitoring may report.
  -nvml=LIBRARY    NVML library (default libnvidia-ml.so.1).
  -cuda=LIBRARY    CUDA driver library (default libcuda.so.1).
` + stateDirHelp + `
  SIGTERM, or a connection that is lost, ends it with what it has. Exit code 0: nothing disagrees; 1: something
  does, or could not be done; 2: bad arguments.
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
		ui.Error("hardware: -runs is at least 1, -budget at least 1s, and the command takes no arguments")
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
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // nobody reads on: the files have it all
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
