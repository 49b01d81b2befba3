// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Command nomad-pal contains the placer's agent, and the commands for users and operators.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/hashicorp/cli"
	"golang.org/x/term"

	"github.com/nomad-pal/nomad-pal/internal/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr, term.IsTerminal(int(os.Stdout.Fd()))})
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, io streams) int {
	out := &quoting{w: io.out}
	io.out, io.err = out, &quoting{w: io.err}
	c := cli.NewCLI("nomad-pal", version.Human())
	c.Args = args
	c.HelpWriter, c.ErrorWriter = io.out, io.err
	c.Commands = commands(ctx, io)
	said := unknownCommand(args, c.Commands)
	if said != "" {
		fmt.Fprintln(io.err, said)
		return 127
	}
	code, err := c.Run()
	switch {
	case err != nil:
		fmt.Fprintln(io.err, err)
		return 1
	case out.failed != nil:
		fmt.Fprintln(io.err, "Error: writing the answer:", out.failed)
		if len(args) > 0 && args[0] == "plan" {
			return planFailed
		}
		return 1
	}
	return code
}

// command is one command, with a one-line description.
type command struct {
	base
	synopsis string
	help     func() string
	run      func(b *base, args []string) int
}

func (c *command) Synopsis() string      { return c.synopsis }
func (c *command) Help() string          { return c.help() }
func (c *command) Run(args []string) int { return c.run(&c.base, args) }

// commands returns all commands by name. Most commands have a file of their own.
func commands(ctx context.Context, io streams) map[string]cli.CommandFactory {
	make := func(synopsis string, help func() string, run func(*base, []string) int) cli.CommandFactory {
		return func() (cli.Command, error) { return &command{base{ctx: ctx, io: io}, synopsis, help, run}, nil }
	}
	return map[string]cli.CommandFactory{
		"agent":          make("Run the agent", helpAgent, runAgent),
		"run":            make("Run a job through nomad-pal", helpRun, runRun),
		"plan":           make("Show what would happen to a job, without running it", helpPlan, runPlan),
		"explain":        make("Explain the state of a job, allocation, GPU or node", helpExplain, runExplain),
		"status":         make("Show GPUs and jobs at a glance", helpStatus, runStatus),
		"queue":          make("Show the waiting jobs in order, with reasons", helpQueue, runQueue),
		"init":           make("Write configuration, policies and an example job", helpInit, runInit),
		"gpus":           make("Show every GPU: classes, health, who uses it", helpGPUs, runGPUs),
		"doctor":         make("Check everything that nomad-pal needs", helpDoctor, runDoctor),
		"events":         make("Show what nomad-pal did, as it happens", helpEvents, runEvents),
		"shell":          make("Run a command or a shell on GPUs, like srun --pty", helpShell, runShell),
		"history":        make("List the runs of jobs, or add up their GPU hours", helpHistory, runHistory),
		"quarantine":     make("Show, set or lift the quarantine of GPUs", helpQuarantine, runQuarantine),
		"classify":       make("Find the application class of a running job", helpClassify, runClassify),
		"simulate":       make("Simulate a trace or a workload under the agent's policies", helpSimulate, runSimulate),
		"cancel":         make("Stop jobs, and all runs of an array", helpCancel, runCancel),
		"hold":           make("Hold waiting jobs, or lift a hold", helpHold, runHold),
		"requeue":        make("Stop running jobs and queue them again", helpRequeue, runRequeue),
		"priority":       make("Change a job's priority in the queue", helpPriority, runPriority),
		"release":        make("Hand jobs over to Nomad", helpRelease, runRelease),
		"profile":        make("Show, import and export profiles", helpProfile, runProfile),
		"profile show":   make("Show how fast the GPUs are", helpProfileShow, runProfileShow),
		"profile import": make("Import measurements made elsewhere", helpProfileImport, runProfileImport),
		"profile export": make("Write the current profile to a file", helpProfileExport, runProfileExport),
		"version":        make("Print the version", helpVersion, runVersion),
	}
}
