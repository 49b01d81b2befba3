// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package cluster is the test bed for all programs that need a real Nomad: demo, playground,
// replay, scale, soak and the end-to-end tests. It starts servers and clients as separate agent
// processes, on free ports and under one temporary directory. Each client has its own plugins,
// meta, pool and emulated GPUs. The package also starts simulated nodes and placers. Tests use it
// through package clustertest.
//
// The package imports no package of the product, and learns about our binaries only through HTTP
// and logs. No process, mount or file outlives a cluster: on Close, or when the owner is killed or
// crashes, a guard process kills every descendant of an agent, unmounts, and removes the directory
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
