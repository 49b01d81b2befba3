// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package clustertest starts package cluster's clusters in Go tests.
package clustertest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/internal/patience"
)

// Start starts a cluster that ends with the test. It skips the test if there is no Nomad to run, and in -short
// mode. When the test fails, the end of every agent's log is in its output.
func Start(t *testing.T, options cluster.Options) *cluster.Cluster {
	t.Helper()
	c := StartFor(t, t, options)
	t.Cleanup(func() { // before it is closed
		if t.Failed() {
			logs(t, c)
		}
	})
	return c
}

// StartFor starts a cluster in the test t that ends with the test all.
func StartFor(all, t *testing.T, options cluster.Options) *cluster.Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a real Nomad cluster: not in -short mode")
	}
	tell := options.Progress
	if tell == nil {
		tell = func(line string) { all.Log(line) } // it outlives t
	}
	var line atomic.Pointer[string]
	line.Store(new(string))
	options.Progress = func(now string) { line.Store(&now); tell(now) }
	ctx, cancel := patience.Context(t.Context(), patience.Limits{Moves: func(context.Context) string { return *line.Load() }})
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

// Placer starts a placer that ends with the test. When the test fails, the end of its log is in the test's output.
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
			t.Logf("end of the log of the placer:\n%s", p.LogTail(lines))
		}
	})
	return p
}

// lines is how many of a log are shown: few, or nobody finds why the test failed.
const lines = 30

func logs(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	for _, agents := range [][]*cluster.Agent{c.Servers(), c.Clients()} {
		for _, a := range agents {
			t.Logf("end of the log of %s:\n%s", a.Name, a.LogTail(lines))
		}
	}
}

// Context ends when nothing has moved in the cluster for too long; see package patience.
func Context(t *testing.T, c *cluster.Cluster) (context.Context, context.CancelFunc) {
	return patience.Context(t.Context(), patience.Limits{Moves: c.Moves})
}

// Until polls a condition while something moves in the cluster, and fails the test when it does
// not come to hold, with what the cluster was doing. The cluster may be nil.
func Until(t *testing.T, c *cluster.Cluster, what string, condition patience.Condition) {
	t.Helper()
	if c == nil {
		if err := patience.Until(t.Context(), patience.Limits{}, what, condition); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err := patience.Until(t.Context(), patience.Limits{Moves: c.Moves}, what, condition); err != nil {
		t.Fatalf("%v\n%s", err, Describe(c))
	}
}

// Describe is what the cluster was doing last.
func Describe(c *cluster.Cluster) string {
	ctx, cancel := patience.Context(context.Background(), patience.Limits{})
	defer cancel()
	return c.Describe(ctx)
}
