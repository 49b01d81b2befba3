// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Command nomad-device-pal is a Nomad device plugin for NVIDIA GPUs, with its tools. If Nomad
// starts the binary, it serves the plugin. If a person starts the binary, it runs a command or
// prints its help.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/hashicorp/cli"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/plugins/base"
	"github.com/hashicorp/nomad/plugins/device"

	deviceplugin "github.com/nomad-pal/nomad-pal/device-plugin"
	"github.com/nomad-pal/nomad-pal/device-plugin/emulated"
	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/device-plugin/measure"
	"github.com/nomad-pal/nomad-pal/device-plugin/nvml"
	"github.com/nomad-pal/nomad-pal/internal/version"
)

func main() {
	if len(os.Args) == 1 && os.Getenv(base.Handshake.MagicCookieKey) == base.Handshake.MagicCookieValue {
		serve()
		return
	}
	if len(os.Args) > 1 && os.Args[1] == measure.ChildCommand {
		setTimerSlack(usualSlack)
		os.Exit(measure.ChildMain(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(run(os.Args[1:]))
}

// endWith ends this process after its parent has ended. An agent that is killed, or that fails to
// start because of its configuration, leaves its plugins running. A new agent starts a new plugin,
// while the old plugin would keep the driver open.
func endWith(parent int) {
	for {
		time.Sleep(gpu.UntilTick(time.Now(), parentEvery))
		if os.Getppid() != parent {
			os.Exit(0)
		}
	}
}

// parentEvery is the interval between checks of the parent.
const parentEvery = 5 * time.Second

// childCommand returns the command that starts this binary as a measuring process, which holds a
// CUDA context. The command starts the same binary even if an upgrade has replaced the file. If the
// binary cannot be found, childCommand returns nil.
func childCommand() []string {
	self := "/proc/self/exe"
	if _, err := os.Stat(self); err != nil {
		if self, err = os.Executable(); err != nil {
			return nil
		}
	}
	return []string{self, measure.ChildCommand}
}

// serve serves the plugin to Nomad until Nomad stops it.
func serve() {
	go endWith(os.Getppid())
	setTimerSlack(serveSlack)
	log := hclog.New(&hclog.LoggerOptions{Name: deviceplugin.Name, Level: hclog.Trace, JSONFormat: true, Output: os.Stderr})
	plugin := deviceplugin.New(deviceplugin.Options{Log: log, Open: open, Exit: os.Exit, Self: childCommand()})
	device.Serve(plugin, log)
	plugin.Settle(settleWithin)
}

// serveSlack is how much later than asked the kernel may wake a thread of the plugin. usualSlack is
// the kernel's default.
const (
	serveSlack = 5 * time.Millisecond
	usualSlack = 50 * time.Microsecond
)

// setTimerSlack sets the slack of this process's threads and of those that they start. During a call
// into the driver, Go's runtime sleeps for 20 µs at a time, which woke the processor more often than
// all of the plugin's work. Without the permission to change other threads, the slack stays as it is.
func setTimerSlack(slack time.Duration) {
	threads, _ := os.ReadDir("/proc/self/task") // without /proc, no slack is set
	for _, t := range threads {
		_ = os.WriteFile(filepath.Join("/proc", t.Name(), "timerslack_ns"), []byte(strconv.FormatInt(slack.Nanoseconds(), 10)), 0)
	}
}

// settleWithin limits the wait for the streams to end.
const settleWithin = 1500 * time.Millisecond

// open returns the backend that the configuration names.
func open(cfg deviceplugin.Config) deviceplugin.Backend {
	if cfg.Backend == "emulated" {
		return emulated.Open(cfg.Inventory)
	}
	return nvml.Open(nvml.Options{Library: cfg.NVMLLibrary})
}

// run executes a command that a person typed.
func run(args []string) int {
	ui := &cli.BasicUi{Reader: os.Stdin, Writer: os.Stdout, ErrorWriter: os.Stderr}
	c := cli.NewCLI("nomad-device-pal", "nomad-device-pal "+version.Human())
	c.Args = args
	c.Commands = commands(ui)
	c.HelpFunc = help
	c.HelpWriter, c.ErrorWriter = os.Stdout, os.Stderr
	said := unknownCommand(args, c.Commands)
	if said != "" {
		ui.Error(said)
		return 127
	}
	code, err := c.Run()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}
