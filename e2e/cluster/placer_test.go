// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/e2e/cluster/clustertest"
)

// stubPlacer prints the address at which it listens, and answers each request with the request.
// With the configuration "refuse" it exits instead.
func stubPlacer() int {
	config, err := os.ReadFile(os.Args[slices.Index(os.Args, "-config")+1])
	if err != nil || string(config) == "refuse" {
		fmt.Fprintln(os.Stderr, "this configuration is no good", err)
		return 1
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Fprintf(os.Stderr, "HTTP API: address=%s\n", l.Addr())
	_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprint(w, r.Method, " ", r.URL.Path, " ", r.Header.Get("X-Nomad-Token"), " ", string(body), " ", len(os.Environ()))
	}))
	return 0
}

// withPlacer starts a cluster whose nomad-pal is the stub.
func withPlacer(t *testing.T) *cluster.Cluster {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.Symlink(self, filepath.Join(bin, stubPlacerName)); err != nil {
		t.Fatal(err)
	}
	return clustertest.Start(t, cluster.Options{Bin: bin})
}

func TestPlacerIsAskedKilledAndStartedAgain(t *testing.T) {
	t.Parallel()
	c := withPlacer(t)
	for range 2 {
		p := clustertest.Placer(t, c, cluster.PlacerOptions{Env: []string{}})
		if err := p.Serves(t.Context()); err != nil {
			t.Fatal(err)
		}
		// Its environment has only the mark by which Close finds it.
		status, text, err := p.Request(t.Context(), http.MethodPut, "/v1/x", "secret", "{}")
		if err != nil || status != http.StatusTeapot || text != "PUT /v1/x secret {} 1" {
			t.Errorf("status %d, %q, %v", status, text, err)
		}
		if err := p.Kill(); err != nil || p.PID() != 0 {
			t.Errorf("%v; after Kill it is process %d", err, p.PID())
		}
		if err := p.Stop(); err != nil {
			t.Errorf("stop a placer that has ended: %v", err)
		}
	}
	if n := len(c.Placers()); n != 2 || c.Placers()[0].Address() == c.Placers()[1].Address() {
		t.Errorf("%d placers, the last at %s", n, c.Placers()[n-1].Address())
	}
}

func TestAPlacerThatCannotStartSaysWhy(t *testing.T) {
	t.Parallel()
	p, err := withPlacer(t).StartPlacer(cluster.PlacerOptions{Config: "refuse"})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Serves(t.Context()); err == nil || !strings.Contains(err.Error(), "this configuration is no good") {
		t.Errorf("error %v does not say why", err)
	}
}

func TestCloseEndsPlacers(t *testing.T) {
	t.Parallel()
	c := withPlacer(t)
	p, err := c.StartPlacer(cluster.PlacerOptions{Env: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Serves(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if p.PID() != 0 {
		t.Errorf("process %d runs", p.PID())
	}
}
