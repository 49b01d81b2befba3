// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package replay

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/bench/rank"
	"github.com/nomad-pal/nomad-pal/e2e/cluster"
)

// Setup is what a bed is made of.
type Setup struct {
	Nomad string // binary
	Bin   string // folder of our binaries
	GPUs  *GPUs
	// Penalty is the locality penalty that gangs pay across nodes, and that the
	// placer is told.
	Penalty float64
	// Restart is what loading a checkpoint costs a gang.
	Restart time.Duration
	// GiveUp is how long a rank waits for the rest of its gang.
	GiveUp time.Duration
	// LightTasks has tasks run by rank-driver instead of Nomad's raw_exec, which
	// costs 0.3 s of CPU to start one. They do not outlive their client.
	LightTasks bool
	// ServerHCL is agent configuration added to the server.
	ServerHCL string
	Progress  func(string)
}

// Bed is a running cluster for runs, one after the other. Close it.
type Bed struct {
	Setup
	Cluster *cluster.Cluster
	dir     string
}

// Start brings the cluster up, with one client per node of the GPUs.
func Start(ctx context.Context, s Setup) (*Bed, error) {
	dir, err := os.MkdirTemp("", "pal")
	if err != nil {
		return nil, err
	}
	b := &Bed{Setup: s, dir: dir}
	if err := s.GPUs.write(dir); err != nil {
		return nil, fmt.Errorf("write the inventories: %w", err)
	}
	b.Cluster, err = cluster.Start(ctx, cluster.Options{Nomad: s.Nomad, Dir: dir, Clients: b.clients(), OwnMounts: s.LightTasks, ServerHCL: s.ServerHCL, Progress: s.Progress})
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	if err := b.allGPUsThere(ctx); err != nil {
		return nil, fmt.Errorf("%w (%v)", err, b.Close())
	}
	return b, nil
}

// Close stops everything that the bed started.
func (b *Bed) Close() error {
	err := b.Cluster.Close()
	if e := os.RemoveAll(b.dir); err == nil {
		err = e
	}
	return err
}

func (b *Bed) clients() []cluster.Client {
	bin, err := filepath.Abs(b.Bin)
	if err != nil {
		bin = b.Bin
	}
	var plugins []cluster.Plugin
	if b.LightTasks {
		plugins = append(plugins, cluster.Plugin{Path: filepath.Join(bin, "rank-driver")})
	}
	last := 0
	for _, u := range b.GPUs.All {
		last = max(last, u.Node)
	}
	var cs []cluster.Client
	for n := range last + 1 {
		config := fmt.Sprintf("backend = \"emulated\"\ninventory = %q\nprofile = %q\nstate_dir = %q\n",
			inventoryPath(b.dir, n), filepath.Join(b.dir, "profile.json"), filepath.Join(b.dir, fmt.Sprintf("state-%02d", n)))
		cs = append(cs, cluster.Client{Name: fmt.Sprintf("gpu-%02d", n), Plugins: append(slices.Clip(plugins), cluster.Plugin{Path: filepath.Join(bin, "nomad-device-pal"), Config: config})})
	}
	return cs
}

// allGPUsThere waits until Nomad shows every GPU.
func (b *Bed) allGPUsThere(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	return cluster.Until(ctx, "all GPUs in Nomad", func(ctx context.Context) (string, error) {
		nodes, _, err := b.Cluster.API().Nodes().List((&api.QueryOptions{Params: map[string]string{"resources": "true"}}).WithContext(ctx))
		if err != nil {
			return err.Error(), nil
		}
		n := 0
		for _, node := range nodes {
			if node.NodeResources == nil {
				continue
			}
			for _, d := range node.NodeResources.Devices {
				n += len(d.Instances)
			}
		}
		if n < len(b.GPUs.All) {
			return fmt.Sprintf("%d of %d", n, len(b.GPUs.All)), nil
		}
		return "", nil
	})
}

// render writes the jobspec of one job and returns its path.
func (b *Bed) render(j Job, r *rank.Rendezvous) (string, error) {
	binary, err := filepath.Abs(filepath.Join(b.Bin, "pal-rank"))
	if err != nil {
		return "", err
	}
	path := filepath.Join(b.dir, j.ID+".nomad.hcl")
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
		"Job": j, "Driver": driver, "Rank": binary, "Rendezvous": r.Addr(), "Speeds": filepath.Join(b.dir, "speeds.json"),
	})
}
