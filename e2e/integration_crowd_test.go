// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
)

// TestOneTokenLeavesNomadToOthers: Nomad allows one address 100 connections. One token keeps open as
// many pages and event streams as the agent accepts, and sends further requests all the time. Others
// get their answers, and the placer's writes succeed.
func TestOneTokenLeavesNomadToOthers(t *testing.T) {
	t.Parallel()
	b := newBed(t, placerScores[:2], cluster.Options{ACL: true})
	if _, err := b.API().Namespaces().Register(&api.Namespace{Name: "research"}, nil); err != nil {
		t.Fatal(err)
	}
	agentToken := b.token("agent", policyFile(t, "nomad-pal.policy.hcl"))
	greedy, user := b.token("greedy", policyFile(t, "user.policy.hcl")), b.token("user", policyFile(t, "user.policy.hcl"))
	agent := b.startPal(t, "http {\n  bind_port = 0\n}\n", b.envAs(agentToken))
	b.untilReady(agent)

	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	var following, refused atomic.Int64
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	get := func(path string) (*http.Response, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, agent.URL()+path, nil)
		if err != nil {
			return nil, err
		}
		r.Header.Set("X-Nomad-Token", greedy)
		return client.Do(r)
	}
	for i := range 140 {
		path := []string{"/v1/stream", "/v1/events?follow=true"}[i%2]
		all.Go(func() {
			for ctx.Err() == nil { // the agent ends a request after a minute
				resp, err := get(path)
				if err != nil {
					return
				}
				if resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") != "" {
					resp.Body.Close()
					refused.Add(1)
					return
				}
				following.Add(1)
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		})
	}
	b.until("100 requests follow the agent", func() string {
		if following.Load() < 100 || refused.Load() < 40 {
			return fmt.Sprintf("%d follow, %d were refused", following.Load(), refused.Load())
		}
		return ""
	})
	for range 16 {
		all.Go(func() {
			for ctx.Err() == nil {
				if resp, err := get("/v1/queue"); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			}
		})
	}
	for n := range 3 {
		id := fmt.Sprintf("gang-%d", n)
		b.runs(gang(id, 2, 2), 4)
		for _, path := range []string{"/v1/queue", "/v1/gpus", "/v1/job/" + id + "/explain"} {
			token := user
			if strings.Contains(path, id) {
				token = b.Token
			}
			if status, text := agent.ask(path, token); status != http.StatusOK {
				t.Errorf("%s for another token: status %d: %s", path, status, text)
			}
		}
		b.purge(id)
	}
	if log := agent.Log(); strings.Contains(log, "429") {
		t.Errorf("Nomad refuses the agent's connections:\n%s", agent.LogTail(3000))
	}
}
