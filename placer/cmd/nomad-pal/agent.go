// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/hashicorp/go-hclog"

	"github.com/nomad-pal/nomad-pal/internal/version"
	"github.com/nomad-pal/nomad-pal/placer/agent"
)

type agentCommand struct{ base }

func (c *agentCommand) Synopsis() string { return "Run the placer" }

func (c *agentCommand) Help() string {
	return help("agent [options]", `
Runs the placer until it is interrupted. SIGHUP makes it read its configuration
anew. Without -config it works by the defaults, on the Nomad that Nomad's
environment variables name.

Agent Options:

  -config=<path>           A file in HCL or JSON, or a directory of such files. May be given several times.
  -check-config            Check the configuration and exit.
  -log-level=<level>       trace, debug, info, warn or error; wins over the file.
  -log-json                Log as JSON.
`)
}

// paths is a flag that may be given several times.
type paths []string

func (p *paths) String() string     { return strings.Join(*p, ",") }
func (p *paths) Set(s string) error { *p = append(*p, s); return nil }

func (c *agentCommand) Run(args []string) int {
	var config paths
	fs := c.flags("agent")
	fs.Var(&config, "config", "")
	check := fs.Bool("check-config", false, "")
	level := fs.String("log-level", "", "")
	logJSON := fs.Bool("log-json", false, "")
	if _, ok := c.parse(fs, args, 0); !ok {
		return 1
	}
	file, err := agent.Load(config)
	if err == nil {
		_, err = file.Rules()
	}
	if err != nil {
		return c.fail(err)
	}
	if *check {
		c.printf("The configuration is valid.\n")
		return 0
	}
	if *level == "" {
		*level = file.LogLevel
	}
	if *level == "" {
		*level = "info"
	}
	if hclog.LevelFromString(*level) == hclog.NoLevel {
		return c.fail(fmt.Errorf("log level %q is unknown (one of trace, debug, info, warn, error)", *level))
	}
	log := hclog.New(&hclog.LoggerOptions{
		Name: "nomad-pal", Level: hclog.LevelFromString(*level), Output: c.io.err, JSONFormat: *logJSON || file.LogJSON,
	})
	log.Info("starting", "version", version.Human())
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	if err := agent.New(log, hooks()).Run(c.ctx, config, hup); err != nil {
		return c.fail(err)
	}
	log.Info("stopped")
	return 0
}
