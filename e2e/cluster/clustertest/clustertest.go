// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package clustertest starts clusters of package cluster in Go tests.
package clustertest

import (
	"context"
	"errors"
	"testing"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/internal/patience"
)

// Start starts a cluster that ends with the test. Without Nomad, and in -short mode, Start skips
// the test. If the test fails, it logs the end of every agent's log.
func Start(t *testing.T, options cluster.Options) *cluster.Cluster {
	t.Helper()
	c := StartFor(t, t, options)
	t.Cleanup(func() { // before the cluster is closed
		if t.Failed() {
			logs(t, c)
		}
	})
	return c
}

// StartFor starts a cluster for the subtest t. The cluster runs until the parent test (all) ends.
func StartFor(all, t *testing.T, options cluster.Options) *cluster.Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("skipped in -short mode: starts a real Nomad cluster")
	}
	tell := options.Progress
	if tell == nil {
		tell = func(line string) { all.Log(line) } // the cluster outlives t
	}
	options.Progress = tell
	ctx, cancel := patience.Context(t.Context(), patience.Long)
	defer cancel()
	c, err := cluster.Start(ctx, options)
	if errors.Is(err, cluster.ErrNoNomad) || errors.Is(err, cluster.ErrNoNamespaces) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatalf("start cluster: %v", err)
	}
	all.Cleanup(func() {
		if err := c.Close(); err != nil {
			all.Errorf("close cluster: %v", err)
		}
	})
	return c
}

// Placer starts a placer that ends with the test. If the test fails, it logs the end of the
// placer's log.
func Placer(t *testing.T, c *cluster.Cluster, o cluster.PlacerOptions) *cluster.Placer {
	t.Helper()
	p, err := c.StartPlacer(o)
	if err != nil {
		t.Fatalf("start placer: %v", err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Errorf("stop placer: %v", err)
		}
		if t.Failed() {
			t.Logf("end of the placer's log:\n%s", p.LogTail(lines))
		}
	})
	return p
}

// lines is how many lines of each log are shown: few enough that the cause of the failure stays
// easy to find.
const lines = 30

func logs(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	for _, agents := range [][]*cluster.Agent{c.Servers(), c.Clients()} {
		for _, a := range agents {
			t.Logf("end of the log of %s:\n%s", a.Name, a.LogTail(lines))
		}
	}
}

// Context returns a context that ends when nothing in the cluster has changed for too long; see
// package patience.
func Context(t *testing.T, c *cluster.Cluster) (context.Context, context.CancelFunc) {
	return patience.Context(t.Context(), patience.Long)
}

// Until polls a condition as long as the cluster keeps changing. If the condition does not become
// true, Until fails the test and prints the state of the cluster. The cluster may be nil.
func Until(t *testing.T, c *cluster.Cluster, what string, condition patience.Condition) {
	t.Helper()
	if c == nil {
		if err := patience.Until(t.Context(), patience.Long, what, condition); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err := patience.Until(t.Context(), patience.Long, what, condition); err != nil {
		t.Fatalf("%v\n%s", err, Describe(c))
	}
}

// Describe returns the last state of the cluster.
func Describe(c *cluster.Cluster) string {
	ctx, cancel := patience.Context(context.Background(), patience.Long)
	defer cancel()
	return c.Describe(ctx)
}
