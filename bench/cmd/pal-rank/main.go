// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Command pal-rank is one process of an emulated training gang (package rank). It reads the
// environment variables that Nomad and the device plugin set or, with -slurm, those that Slurm
// sets.
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
	rendezvous := flag.String("rendezvous", "", "address at which the ranks meet")
	speeds := flag.String("speeds", "", "JSON file with the true speed of each GPU")
	onSlurm := flag.String("slurm", "", "JSON file with the ids of each Slurm node's GPUs, in Slurm's order")
	flag.Parse()
	code, err := run(*rendezvous, *speeds, *onSlurm)
	if err != nil {
		fmt.Fprintln(os.Stderr, "pal-rank:", err)
	}
	os.Exit(code)
}

func run(rendezvous, speeds, onSlurm string) (int, error) {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	r, err := fromNomad(os.Getenv)
	if onSlurm != "" {
		r, err = fromSlurm(os.Getenv, onSlurm)
	}
	if err != nil {
		return rank.ExitRefused, err
	}
	r.Rendezvous = rendezvous
	text, err := os.ReadFile(speeds)
	if err != nil {
		return rank.ExitRefused, fmt.Errorf("reading speeds: %w", err)
	}
	if err := json.Unmarshal(text, &r.Speeds); err != nil {
		return rank.ExitRefused, fmt.Errorf("reading speeds %q: %w", speeds, err)
	}
	return r.Run(ctx)
}

func fromNomad(env func(string) string) (r rank.Rank, err error) {
	r = rank.Rank{Job: env("NOMAD_JOB_ID"), Group: env("NOMAD_GROUP_NAME"), Node: env("PAL_NODE"),
		GPUs: strings.Split(env("NVIDIA_VISIBLE_DEVICES"), ",")}
	if r.Index, err = strconv.Atoi(env("NOMAD_ALLOC_INDEX")); err != nil {
		return r, fmt.Errorf("reading NOMAD_ALLOC_INDEX: %w", err)
	}
	return r, nil
}

// fromSlurm reads a task's GPUs by their numbers on the node, as a program under Slurm does.
func fromSlurm(env func(string) string, path string) (r rank.Rank, err error) {
	r = rank.Rank{Job: env("SLURM_JOB_NAME"), Group: "ranks", Node: env("SLURMD_NODENAME")}
	if r.Index, err = strconv.Atoi(env("SLURM_PROCID")); err != nil {
		return r, fmt.Errorf("reading SLURM_PROCID: %w", err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return r, fmt.Errorf("reading GPUs: %w", err)
	}
	var nodes map[string][]string
	if err := json.Unmarshal(text, &nodes); err != nil {
		return r, fmt.Errorf("reading GPUs %q: %w", path, err)
	}
	ids := nodes[r.Node]
	for number := range strings.SplitSeq(env("CUDA_VISIBLE_DEVICES"), ",") {
		k, err := strconv.Atoi(number)
		if err != nil || k < 0 || k >= len(ids) {
			return r, fmt.Errorf("CUDA_VISIBLE_DEVICES: %q is not the number of one of the %d GPUs of node %q", number, len(ids), r.Node)
		}
		r.GPUs = append(r.GPUs, ids[k])
	}
	return r, nil
}
