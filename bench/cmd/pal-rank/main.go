// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Command pal-rank is one process of an emulated training gang: see package
// rank. It reads what Nomad and the device plugin put into its environment.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/nomad-pal/nomad-pal/bench/rank"
)

func main() {
	rendezvous := flag.String("rendezvous", "", "address where the gang meets")
	speeds := flag.String("speeds", "", "JSON file with the true speed of each GPU")
	flag.Parse()
	code, err := run(*rendezvous, *speeds)
	if err != nil {
		fmt.Fprintln(os.Stderr, "pal-rank:", err)
	}
	os.Exit(code)
}

func run(rendezvous, speeds string) (int, error) {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	index, err := strconv.Atoi(os.Getenv("NOMAD_ALLOC_INDEX"))
	if err != nil {
		return rank.ExitRefused, fmt.Errorf("read NOMAD_ALLOC_INDEX: %w", err)
	}
	r := rank.Rank{
		Rendezvous: rendezvous,
		Job:        os.Getenv("NOMAD_JOB_ID"),
		Group:      os.Getenv("NOMAD_GROUP_NAME"),
		Index:      index,
		Node:       os.Getenv("PAL_NODE"),
		GPUs:       strings.Split(os.Getenv("NVIDIA_VISIBLE_DEVICES"), ","),
	}
	text, err := os.ReadFile(speeds)
	if err != nil {
		return rank.ExitRefused, fmt.Errorf("read speeds: %w", err)
	}
	if err := json.Unmarshal(text, &r.Speeds); err != nil {
		return rank.ExitRefused, fmt.Errorf("read speeds %q: %w", speeds, err)
	}
	return r.Run(ctx)
}
