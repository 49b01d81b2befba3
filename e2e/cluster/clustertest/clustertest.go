// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package clustertest starts package cluster's clusters in Go tests.
package clustertest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
)

// startLimit is far above what a cluster of 16 takes on two busy cores; it turns a hang into a message.
const startLimit = 2 * time.Minute

// Start starts a cluster that ends with the test. It skips the test where there is no Nomad to run, and in -short
// mode. When the test fails, the end of every agent's log is in its output.
func Start(t *testing.T, options cluster.Options) *cluster.Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a real Nomad cluster: not in -short mode")
	}
	if options.Progress == nil {
		options.Progress = func(line string) { t.Log(line) }
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), startLimit, errors.New("the cluster took too long"))
	defer cancel()
	c, err := cluster.Start(ctx, options)
	if errors.Is(err, cluster.ErrNoNomad) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatalf("start cluster: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			logs(t, c)
		}
		if err := c.Close(); err != nil {
			t.Errorf("close cluster: %v", err)
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

// Until polls a condition as cluster.Until does and fails the test when it does not hold within the limit.
func Until(t *testing.T, limit time.Duration, what string, condition func(context.Context) (missing string, err error)) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), limit, errors.New("not within "+limit.String()))
	defer cancel()
	if err := cluster.Until(ctx, what, condition); err != nil {
		t.Fatal(err)
	}
}
