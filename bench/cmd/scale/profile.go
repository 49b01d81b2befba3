// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/hashicorp/nomad/api"
)

// profileSeconds is what is looked at of a burst.
const profileSeconds = "25"

// serverHCL has Nomad's server answer requests for profiles, where they are asked
// for.
func (o options) serverHCL() string {
	if o.profiles == "" {
		return ""
	}
	return "enable_debug = true"
}

// profile writes a processor profile of Nomad's server over the seconds that
// follow, where profiles are asked for; stop waits for its end.
func (b *bed) profile(ctx context.Context, name string) (stop func() error) {
	if b.o.profiles == "" {
		return func() error { return nil }
	}
	done := make(chan error, 1)
	go func() { done <- b.writeProfile(ctx, fmt.Sprintf("%s-%d.pprof", name, b.nodes)) }()
	return func() error { return <-done }
}

func (b *bed) writeProfile(ctx context.Context, name string) error {
	q := (&api.QueryOptions{Params: map[string]string{"seconds": profileSeconds}}).WithContext(ctx)
	body, err := b.api.Raw().Response("/v1/agent/pprof/profile", q)
	if err != nil {
		return fmt.Errorf("profile Nomad's server: %w", err)
	}
	defer body.Close()
	if err := os.MkdirAll(b.o.profiles, 0o755); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(b.o.profiles, name))
	if err != nil {
		return err
	}
	if _, err := io.Copy(f, body); err != nil {
		return fmt.Errorf("profile Nomad's server: %w", err)
	}
	return f.Close()
}
