// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package cluster is the test bed of everything that needs a real Nomad: demo, playground, replay,
// scale, soak and the end-to-end tests. It starts servers and clients as separate agent processes
// on free ports under one temporary directory, each client with its own plugins, meta, pool and
// emulated GPUs. It also starts simulated nodes and placers. Tests use it through package
// clustertest.
//
// It runs our binaries and imports no package of the product: all that it knows about them comes
// through HTTP and logs. Nothing is left behind. A guard process kills every descendant of an
// agent, unmounts, and removes the directory: on Close, and when the owner is killed or crashes
// (see guard.go).
//
//	c, err := cluster.Start(ctx, cluster.Options{Bin: "build/bin", Clients: []cluster.Client{{Inventory: gpus}}})
//	if err != nil {
//		return err
//	}
//	defer c.Close()
//	placer, err := c.StartPlacer(cluster.PlacerOptions{Config: "http {\n  bind_port = 0\n}\n"})
//	if err != nil {
//		return err
//	}
//	err = placer.Serves(ctx)
//	…
//	out, err := c.Command(ctx, "nomad-pal", "run", "job.nomad.hcl").CombinedOutput()
package cluster
