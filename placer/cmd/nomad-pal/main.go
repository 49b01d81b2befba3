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

// commands are all commands, one file each.
func commands(ctx context.Context, io streams) map[string]cli.CommandFactory {
	b := base{ctx: ctx, io: io}
	make := func(c cli.Command) cli.CommandFactory {
		return func() (cli.Command, error) { return c, nil }
	}
	return map[string]cli.CommandFactory{
		"agent":          make(&agentCommand{base: b}),
		"run":            make(&runCommand{base: b}),
		"plan":           make(&planCommand{base: b}),
		"explain":        make(&explainCommand{base: b}),
		"status":         make(&statusCommand{base: b}),
		"queue":          make(&queueCommand{base: b}),
		"init":           make(&initCommand{base: b}),
		"gpus":           make(&gpusCommand{base: b}),
		"completion":     make(&completionCommand{base: b}),
		"doctor":         make(&doctorCommand{base: b}),
		"events":         make(&eventsCommand{base: b}),
		"failures":       make(&failuresCommand{base: b}),
		"quarantine":     make(&quarantineCommand{base: b}),
		"defrag":         make(&defragCommand{base: b}),
		"classify":       make(&classifyCommand{base: b}),
		"schema":         make(&schemaCommand{base: b}),
		"simulate":       make(&simulateCommand{base: b}),
		"release":        make(&releaseCommand{base: b}),
		"profile":        make(&profileCommand{base: b}),
		"profile build":  make(&profileBuildCommand{base: b}),
		"profile show":   make(&profileShowCommand{base: b}),
		"profile import": make(&profileImportCommand{base: b}),
		"profile export": make(&profileExportCommand{base: b}),
		"top":            make(&topCommand{base: b}),
		"validate":       make(&validateCommand{base: b}),
		"version":        make(&versionCommand{base: b}),
	}
}
