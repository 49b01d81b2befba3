// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/bench/command"
)

// profileSeconds is how long a profile of a burst or crowd lasts.
const profileSeconds = 25

// serverHCL lets the simulated clients of more than 10,000 nodes connect from one address, and lets
// Nomad's server answer requests for profiles, if -profiles is set.
func (o options) serverHCL() string {
	hcl := "limits {\n  rpc_max_conns_per_client = 0\n}\n"
	if o.profiles != "" {
		hcl += "enable_debug = true\n"
	}
	return hcl
}

// profile starts a CPU profile of Nomad's server over the next seconds, if -profiles is set. stop
// waits until the profile is written.
func (b *bed) profile(ctx context.Context, name string) (stop func() error) {
	if b.o.profiles == "" {
		return func() error { return nil }
	}
	done := make(chan error, 1)
	go func() { done <- b.writeProfile(ctx, fmt.Sprintf("%s-%d.pprof", name, b.nodes)) }()
	return func() error { return <-done }
}

func (b *bed) writeProfile(ctx context.Context, name string) error {
	text, err := b.api.Agent().CPUProfile(api.PprofOptions{Seconds: profileSeconds}, (&api.QueryOptions{}).WithContext(ctx))
	if err != nil {
		return fmt.Errorf("profiling Nomad's server: %w", err)
	}
	return command.Write(filepath.Join(b.o.profiles, name), text)
}
