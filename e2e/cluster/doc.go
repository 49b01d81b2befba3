// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package cluster runs a real Nomad cluster on the loopback interface: servers and clients as separate agent
// processes on free ports under one temporary directory, each client with its own plugins, meta and pool.
//
// It knows nothing of nomad-pal: tests, the demo and the replay use it alike, and what they learn, they learn
// through Nomad's HTTP API. Nothing is left behind. Close kills every process that descends from an agent, unmounts
// and removes the directory; a guard process does the same when the owner dies without a word (see guard.go).
//
//	c, err := cluster.Start(ctx, cluster.Options{Clients: []cluster.Client{{Plugins: []cluster.Plugin{{Path: bin}}}}})
//	if err != nil {
//		return err
//	}
//	defer c.Close()
//	jobs, _, err := c.API().Jobs().List(nil)
package cluster
