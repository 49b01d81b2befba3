// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package command is what the commands of bench that run real clusters have in
// common.
package command

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// Main runs a command until it ends or is interrupted, and exits: 0, 1 after an
// error, 130 when interrupted. run gives back all that it started before it
// returns.
func Main(name string, run func(context.Context) error) {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	interrupted := ctx.Err() != nil
	cancel()
	switch {
	case interrupted:
		fmt.Fprintf(os.Stderr, "%s: interrupted; everything it started has been stopped\n", name)
		os.Exit(130)
	case err != nil:
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}
