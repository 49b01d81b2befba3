// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"flag"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/nomad-pal/nomad-pal/internal/version"
	"github.com/nomad-pal/nomad-pal/placer/agent"
	"github.com/nomad-pal/nomad-pal/placer/model"
)

var helpAgent = help("agent [options]", `
Runs the agent until it is interrupted. SIGHUP makes it read its configuration
again. The agent connects to the Nomad cluster that the block nomad of the
configuration names, or else Nomad's environment variables. Without -config,
the agent uses the defaults.

Agent Options:

  -config=<path>           An HCL or JSON file, or a directory of such files. May be given several times.
  -check-config            Check the configuration and exit.
  -log-level=<level>       trace, debug, info, warn or error; overrides the configuration.
  -log-json                Log as JSON.
`, examples(
	"Run the agent with its defaults:", "nomad-pal agent",
	"Check a configuration before running with it:", "nomad-pal agent -check-config -config /etc/nomad-pal.d",
	"Make the running agent reload its configuration:", "systemctl reload nomad-pal",
))

// configOf loads the configuration files, and returns their content and the placer's part of the
// configuration.
func configOf(files paths) (file agent.File, cfg model.Config, err error) {
	if file, err = agent.Load(files); err == nil {
		cfg, err = file.PlacerConfig()
	}
	return file, cfg, err
}

// paths collects the values of a flag that may be given several times.
type paths []string

func (p *paths) String() string     { return strings.Join(*p, ",") }
func (p *paths) Set(s string) error { *p = append(*p, s); return nil }

func runAgent(b *base, args []string) int {
	var config paths
	// The agent's connection to Nomad is in its configuration, so that a reload can change it.
	fs := flag.NewFlagSet("agent", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Var(&config, "config", "")
	check := fs.Bool("check-config", false, "")
	level := fs.String("log-level", "", "")
	logJSON := fs.Bool("log-json", false, "")
	if _, ok := b.parse(fs, args, 0); !ok {
		return 1
	}
	file, cfg, err := configOf(config)
	if err != nil {
		return b.fail(err)
	}
	verbosity, err := agent.LogLevel(cmp.Or(*level, file.LogLevel, "info"))
	if err != nil {
		return b.fail(err)
	}
	if *check {
		if _, err := file.Nomad.Connect(); err != nil { // reads the token and certificates, but sends no request
			return b.fail(err)
		}
		b.io.printf("The configuration is valid.\n")
		for _, w := range cfg.Warnings(time.Now()) {
			b.io.complain("Warning: " + w)
		}
		return 0
	}
	log := hclog.New(&hclog.LoggerOptions{
		Name: "nomad-pal", Level: verbosity, Output: b.io.err, JSONFormat: *logJSON,
	})
	log.Info("starting", "version", version.Human())
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	if err := agent.New(log, hooks()).Run(b.ctx, config, hup); err != nil {
		return b.fail(err)
	}
	log.Info("stopped")
	return 0
}
