// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Command nomad-pal is the placer: its agent, and the commands of those who
// use and run it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/hashicorp/cli"
	"github.com/mattn/go-isatty"

	"github.com/nomad-pal/nomad-pal/internal/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr, isatty.IsTerminal(os.Stdout.Fd())})
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, io streams) int {
	io.out, io.err = &quoting{w: io.out}, &quoting{w: io.err}
	c := cli.NewCLI("nomad-pal", version.Human())
	c.Args = args
	c.HelpWriter, c.ErrorWriter = io.out, io.err
	c.Commands, c.Autocomplete = commands(ctx, io), false
	if len(args) > 0 && args[0] == completeCommand {
		return complete(ctx, io, args[1:], c.Commands)
	}
	if slices.Contains(args, "-autocomplete-install") || slices.Contains(args, "--autocomplete-install") {
		fmt.Fprintln(io.err, "nomad-pal writes no shell's configuration: see nomad-pal completion -help")
		return 1
	}
	if said := unknownCommand(args, c.Commands); said != "" {
		fmt.Fprintln(io.err, said)
		return 127
	}
	code, err := c.Run()
	if err != nil {
		fmt.Fprintln(io.err, err)
		return 1
	}
	return code
}

// command is one of nomad-pal's, with what it does in one line.
type command struct {
	runner
	synopsis string
}

type runner interface {
	Help() string
	Run(args []string) int
}

func (c command) Synopsis() string { return c.synopsis }

// commands are all commands, one file each.
func commands(ctx context.Context, io streams) map[string]cli.CommandFactory {
	b := base{ctx: ctx, io: io}
	make := func(synopsis string, r runner) cli.CommandFactory {
		return func() (cli.Command, error) { return command{r, synopsis}, nil }
	}
	return map[string]cli.CommandFactory{
		"agent":          make("Run the placer", &agentCommand{base: b}),
		"run":            make("Run a job through the placer", &runCommand{base: b}),
		"plan":           make("Say what would happen to a job, without running it", &planCommand{base: b}),
		"explain":        make("Say why a job, allocation, GPU or node is as it is", &explainCommand{base: b}),
		"status":         make("Show GPUs and jobs at a glance", &statusCommand{base: b}),
		"queue":          make("Show who waits, in order, and for what", &queueCommand{base: b}),
		"init":           make("Write configuration, policies and an example job", &initCommand{base: b}),
		"gpus":           make("Show every GPU: classes, health, who uses it", &gpusCommand{base: b}),
		"completion":     make("Print a script for the completion of a shell", &completionCommand{base: b}),
		"doctor":         make("Check everything that nomad-pal needs", &doctorCommand{base: b}),
		"events":         make("Show what the placer did, as it happens", &eventsCommand{base: b}),
		"failures":       make("Show what failed, by cause, and GPUs in quarantine", &failuresCommand{base: b}),
		"quarantine":     make("Show GPUs in quarantine, or lift it", &quarantineCommand{base: b}),
		"defrag":         make("Show which gangs would be moved to better GPUs", &defragCommand{base: b}),
		"classify":       make("Say which application class a running job belongs to", &classifyCommand{base: b}),
		"schema":         make("Print the JSON schema of what a command prints", &schemaCommand{base: b}),
		"simulate":       make("Play a trace or a workload under the placer's policies", &simulateCommand{base: b}),
		"release":        make("Give a job back to plain Nomad", &releaseCommand{base: b}),
		"profile":        make("Build, show, import and export profiles", &profileCommand{base: b}),
		"profile build":  make("Calibrate measurements into a profile file", &profileBuildCommand{base: b}),
		"profile show":   make("Show how fast the GPUs are", &profileShowCommand{base: b}),
		"profile import": make("Give the placer measurements made elsewhere", &profileImportCommand{base: b}),
		"profile export": make("Write the profile in force to a file", &profileExportCommand{base: b}),
		"top":            make("Show the cluster as it changes, in the terminal", &topCommand{base: b}),
		"validate":       make("Check a jobspec, without running it", &validateCommand{base: b}),
		"version":        make("Print the version", &versionCommand{base: b}),
	}
}
