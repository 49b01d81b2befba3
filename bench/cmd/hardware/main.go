// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Command hardware is `make hardware`. It tries nomad-device-pal on this machine's GPUs, and reports
// what disagrees with the docs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/nomad-pal/nomad-pal/bench/hardware"
	"github.com/nomad-pal/nomad-pal/device-plugin/nvml"
)

const help = `Usage: hardware [options]

  Tries nomad-device-pal on a machine with GPUs, the most important checks first:
  doctor, fingerprint, the scan compared with nvidia-smi, a whole measurement, every
  kernel several times (rate, power, clock, checksum, compile time), measuring beside a
  job, harmless faults, and the first five minutes at full power. It writes each result
  at once to one JSON file, one page and one log, so you can end the command at
  any time. It needs only the NVIDIA driver. It leaves GPUs in use alone. All other GPUs
  that can be measured run at full power.

  -plugin=PATH     The plugin to try (default: the nomad-device-pal beside this program).
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
  -state-dir=DIR   The plugin's state_dir (default /var/lib/nomad-device-pal). If the
                   plugin with this state_dir has released the driver, this command
                   does not open the driver.

  SIGTERM or a lost connection ends the command, which keeps the results so far. Exit code 0: all checks agree
  with the docs; 1: a check disagrees or failed; 2: bad arguments.
`

func main() {
	if len(os.Args) > 1 && os.Args[1] == hardware.FaultCommand {
		os.Exit(hardware.FaultMain(os.Args[2:]))
	}
	os.Exit(run(os.Args[1:]))
}

// options are the flags.
type options struct {
	hardware.Options
	plan     bool
	stateDir string
}

// errArguments means that the arguments are wrong.
var errArguments = errors.New("-runs must be at least 1, -budget must be at least 1s, and arguments are not allowed")

func parse(args []string) (o options, err error) {
	host, err := os.Hostname()
	if err != nil {
		host = "node"
	}
	fs := flag.NewFlagSet("hardware", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&o.Plugin, "plugin", "", "")
	fs.StringVar(&o.Out, "out", "hardware-"+host, "")
	fs.IntVar(&o.Runs, "runs", 10, "")
	fs.DurationVar(&o.Budget, "budget", 8*time.Minute, "")
	fs.BoolVar(&o.Force, "force", false, "")
	fs.BoolVar(&o.plan, "plan", false, "")
	without := fs.Bool("no-faults", false, "")
	fs.StringVar(&o.NVML, "nvml", "libnvidia-ml.so.1", "")
	fs.StringVar(&o.CUDA, "cuda", "libcuda.so.1", "")
	fs.StringVar(&o.stateDir, "state-dir", "/var/lib/nomad-device-pal", "")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 || o.Runs < 1 || o.Budget < time.Second {
		return o, errArguments
	}
	o.Faults, o.Pace = !*without, hardware.PaceFor(o.Budget)
	o.Open = func(library string) hardware.Backend { return nvml.Open(nvml.Options{Library: library}) }
	o.Say = os.Stderr
	return o, nil
}

// run tries the plugin, and returns the exit code.
func run(args []string) int {
	o, err := parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Print(help)
		return 0
	case err != nil:
		fmt.Fprintf(os.Stderr, "hardware: %v; see hardware -h\n", err)
		return 2
	case o.plan:
		hardware.WritePlan(os.Stdout, o.Budget, o.Plan())
		return 0
	}
	record, err := o.try()
	if err != nil {
		fmt.Fprintln(os.Stderr, "hardware:", err)
		return 1
	}
	code := 0
	for _, c := range record.Claims {
		if c.Verdict == hardware.Disagrees {
			fmt.Printf("DISAGREES  %s: %s\n", c.Text, c.Found)
			code = 1
		}
	}
	if record.Interrupted {
		code = 1
	}
	fmt.Println("written: " + o.Out + ".json, " + o.Out + ".md and " + o.Out + ".log")
	return code
}

func (o *options) try() (record hardware.Record, err error) {
	if err := o.find(); err != nil {
		return record, err
	}
	if err := o.released(); err != nil {
		return record, err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // continue if the output is closed, because the files contain everything
	return o.Run(ctx)
}

// find locates this program and the plugin, and asks the plugin for its version.
func (o *options) find() (err error) {
	if o.Self, err = os.Executable(); err != nil {
		return err
	}
	if o.Plugin == "" {
		o.Plugin = filepath.Join(filepath.Dir(o.Self), "nomad-device-pal")
	}
	if o.Plugin, err = filepath.Abs(o.Plugin); err != nil {
		return err
	}
	said, err := exec.Command(o.Plugin, "-version").CombinedOutput()
	if err != nil {
		return fmt.Errorf("cannot run the plugin: %w (-plugin=PATH selects another binary)%s", err, strings.TrimRight("\n"+string(said), "\n"))
	}
	o.Version = strings.TrimPrefix(strings.TrimSpace(string(said)), "nomad-device-pal ")
	return nil
}

// released returns an error if the operator has released the driver. The plugin's fingerprint
// checks this before it opens NVML, so released passes the name of a library that does not exist.
func (o *options) released() error {
	said, err := exec.Command(o.Plugin, "fingerprint", "-nvml=none", "-state-dir="+o.stateDir).CombinedOutput()
	if text := strings.TrimPrefix(strings.TrimSpace(string(said)), "fingerprint: "); err != nil && strings.HasPrefix(text, "the driver is released") {
		return errors.New(text)
	}
	return nil
}
