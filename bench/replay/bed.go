// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package replay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nomad-pal/nomad-pal/bench/rank"
	"github.com/nomad-pal/nomad-pal/e2e/cluster"
)

// Setup describes a bed.
type Setup struct {
	Nomad string // path of Nomad's binary
	Bin   string // folder with nomad-pal's binaries
	GPUs  *GPUs
	// Penalty is the locality penalty across nodes, for the ranks and for the placer's
	// configuration.
	Penalty float64
	// Restart is the time that a gang needs to load a checkpoint.
	Restart time.Duration
	// GiveUp is how long a rank waits for the rest of its gang.
	GiveUp time.Duration
	// LightTasks runs tasks with rank-driver, because Nomad's raw_exec takes 0.3 s of CPU to start
	// a task. Tasks of rank-driver do not survive their client.
	LightTasks bool
	// ServerHCL is appended to the server's agent configuration.
	ServerHCL string
	Progress  func(string)
}

// Bed is a running cluster for several runs, one after the other. Close it after use.
type Bed struct {
	Setup
	*cluster.Cluster
	speeds string // file with the GPUs' speeds, for the ranks
}

// Start starts the cluster, with one client for each node that has GPUs.
func Start(ctx context.Context, s Setup) (*Bed, error) {
	clients := s.GPUs.clients()
	if s.LightTasks {
		for i := range clients {
			clients[i].Plugins = []cluster.Plugin{{Path: filepath.Join(s.Bin, "rank-driver")}}
		}
	}
	c, err := cluster.Start(ctx, cluster.Options{Nomad: s.Nomad, Bin: s.Bin, Clients: clients, OwnMounts: s.LightTasks, ServerHCL: s.ServerHCL, Progress: s.Progress})
	if err != nil {
		return nil, err
	}
	b := &Bed{Setup: s, Cluster: c, speeds: filepath.Join(c.Dir, "speeds.json")}
	text, err := json.Marshal(s.GPUs.Speeds())
	if err == nil {
		err = os.WriteFile(b.speeds, text, 0o644)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("writing the GPUs' speeds: %w", err), b.Close())
	}
	return b, nil
}

// render writes the jobspec of a job and returns its path.
func (b *Bed) render(j Job, r *rank.Rendezvous) (string, error) {
	path := filepath.Join(b.Dir, j.ID+".nomad.hcl")
	f, err := os.Create(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	driver := "raw_exec"
	if b.LightTasks {
		driver = "rank"
	}
	return path, jobspec.Execute(f, map[string]any{
		"Job": j, "Driver": driver, "Rank": b.Program("pal-rank"), "Rendezvous": r.Addr(), "Speeds": b.speeds,
	})
}
