// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/device-plugin/nvml/nvmltest"
	"github.com/nomad-pal/nomad-pal/e2e/cluster"
)

// throughNomad measures from a fault to what Nomad's server says of the device.
// Nomad's client sends changes of a node in batches, about every 5 s.
func (w *world) throughNomad(ctx context.Context) error {
	w.state = nvmltest.H200(gpus)
	if err := w.state.Write(w.path); err != nil {
		return err
	}
	os.Setenv("LD_LIBRARY_PATH", w.dir)
	defer os.Unsetenv("LD_LIBRARY_PATH")
	c, err := cluster.Start(ctx, cluster.Options{Clients: []cluster.Client{{Plugins: []cluster.Plugin{{Path: w.binary, Config: w.ownState(config, "nomad")}}}}})
	if err != nil {
		return err
	}
	defer c.Close()
	unhealthy := func(want int) func(context.Context) (string, error) {
		return func(ctx context.Context) (string, error) {
			n, err := unhealthy(ctx, c)
			if err != nil || n == want {
				return "", err
			}
			return fmt.Sprintf("%d unhealthy of %d", n, gpus), nil
		}
	}
	var took []time.Duration
	for i := range 3 {
		begin := time.Now()
		if err := w.set(fmt.Sprintf("gpu%d", i), "lost", "1"); err != nil {
			return err
		}
		limited, cancel := context.WithTimeout(ctx, 30*time.Second)
		err := cluster.Until(limited, "the server knows", unhealthy(i+1))
		cancel()
		if err != nil {
			fmt.Printf("  from fault to Nomad's server                  never: %v\n\n", err)
			return nil
		}
		took = append(took, time.Since(begin).Round(10*time.Millisecond))
	}
	fmt.Printf("  from fault to Nomad's server, three times     %v\n\n", took)
	return nil
}

// unhealthy counts the unhealthy devices of the only node.
func unhealthy(ctx context.Context, c *cluster.Cluster) (int, error) {
	id, err := c.NodeID(ctx, c.Clients()[0].Name)
	if err != nil {
		return 0, err
	}
	node, _, err := c.API().Nodes().Info(id, (&api.QueryOptions{}).WithContext(ctx))
	if err != nil {
		return 0, err
	}
	n, listed := 0, 0
	for _, g := range node.NodeResources.Devices {
		for _, d := range g.Instances {
			listed++
			if !d.Healthy {
				n++
			}
		}
	}
	if listed != gpus {
		return -1, nil
	}
	return n, nil
}
