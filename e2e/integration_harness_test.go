// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/e2e/cluster/clustertest"
	"github.com/nomad-pal/nomad-pal/internal/patience"
)

// palAgent is an agent with its own configuration and environment.
type palAgent struct {
	*cluster.Placer
	t *testing.T
}

// startPal starts `nomad-pal agent` with env as its whole environment. It ends
// with the test.
func (b *bed) startPal(t *testing.T, config string, env []string) *palAgent {
	t.Helper()
	return &palAgent{clustertest.Placer(t, b.Cluster, cluster.PlacerOptions{Config: config, Flags: debug, Env: env}), t}
}

// debug makes an agent log everything.
var debug = []string{"-log-level", "debug"}

// reload makes the agent read its configuration again.
func (a *palAgent) reload() {
	a.t.Helper()
	if err := a.Signal(syscall.SIGHUP); err != nil {
		a.t.Fatal(err)
	}
}

// ask sends a GET with a token and returns status and body.
func (a *palAgent) ask(path, token string) (int, string) {
	a.t.Helper()
	return a.send(http.MethodGet, path, token, "")
}

// send sends a request and returns status and body, or 0 and the error.
func (a *palAgent) send(method, path, token, body string) (int, string) {
	a.t.Helper()
	ctx, cancel := patience.Context(a.t.Context(), time.Minute)
	defer cancel()
	status, text, err := a.Request(ctx, method, path, token, body)
	if err != nil {
		return 0, err.Error()
	}
	return status, text
}

// untilReady waits until the agent places jobs, and commands can tell.
func (b *bed) untilReady(a *palAgent) {
	b.t.Helper()
	b.until("the agent is ready", func() string {
		if status, body := a.ask("/v1/health", ""); status != http.StatusOK || !strings.Contains(body, `"ready": true`) {
			return body
		}
		if _, body := a.ask("/v1/agent", ""); !strings.Contains(body, `"working": true`) {
			return "no heartbeat: " + body
		}
		return ""
	})
}

// palAs runs one of our commands with an environment of its own.
func (b *bed) palAs(env []string, args ...string) (string, int) {
	b.t.Helper()
	cmd := b.Command(b.t.Context(), "nomad-pal", args...)
	cmd.Env = env
	return b.output(cmd)
}
