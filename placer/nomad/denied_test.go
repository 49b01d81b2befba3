// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/deploy/acl"
)

// If Nomad denies a request, the error names the missing permission.
func TestDenied(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "Permission denied", http.StatusForbidden)
	}))
	t.Cleanup(srv.Close)
	c, err := NewClient(&api.Config{Address: srv.URL}, "")
	if err != nil {
		t.Fatal(err)
	}
	k, id := cluster.JobKey{Namespace: "default", ID: "train"}, "train"
	job := &api.Job{ID: &id, Namespace: &k.Namespace}
	ctx := t.Context()
	for _, r := range []struct {
		name  string
		right Right
		ask   func() error
	}{
		{"register", SubmitJob, func() error { _, err := c.Register(ctx, job, 1); return err }},
		{"dry run", SubmitJob, func() error { _, err := c.DryRun(ctx, job); return err }},
		{"job", ReadJob, func() error { _, err := c.Job(ctx, k); return err }},
		{"versions", ReadJob, func() error { _, err := c.Versions(ctx, k); return err }},
		{"statistics", ReadNodes, func() error { _, err := c.GPUReadings(ctx, "n1", []string{"GPU-1"}); return err }},
		{"allocations", ReadJob, func() error { _, err := c.JobAllocs(ctx, k); return err }},
		{"evaluations", ReadJob, func() error { _, err := c.Evaluations(ctx, k); return err }},
		{"stop", AllocLifecycle, func() error { return c.StopAlloc(ctx, k, "a1") }},
		{"nodes", ReadNodes, func() error { _, err := c.ReadNodes(ctx); return err }},
		{"events", Events, func() error { _, err := c.Subscribe(ctx); return err }},
		{"list variables", ListVariables, func() error { _, err := c.ListVariables(ctx, "nomad-pal/"); return err }},
		{"read variable", ReadVariables, func() error { _, err := c.ReadVariable(ctx, "nomad-pal/usage"); return err }},
		{"write variable", WriteVariables, func() error { return c.WriteVariable(ctx, "nomad-pal/usage", nil) }},
		{"delete variable", DeleteVariables, func() error { return c.DeleteVariable(ctx, "nomad-pal/usage") }},
	} {
		t.Run(r.name, func(t *testing.T) {
			err := r.ask()
			if err == nil || !strings.Contains(err.Error(), string(r.right)) {
				t.Errorf("got %v, want it to name %s", err, r.right)
			}
			if StatusOf(err) != http.StatusForbidden {
				t.Errorf("the cause is lost: %v", err)
			}
		})
	}
	if other := errors.New("x"); Denied(other, ReadJob) != other {
		t.Error("another error was changed")
	}
	if closed := Denied(errors.New("Permission denied"), ExecAlloc); !strings.Contains(closed.Error(), string(ExecAlloc)) {
		t.Errorf("a session that Nomad closed: %v", closed)
	}
}

// Nomad's clients refuse with 500 and these words.
func TestRefusedByAClient(t *testing.T) {
	for _, c := range []struct {
		status int
		says   string
		want   bool
	}{{403, "Permission denied", true}, {500, "Permission denied", true}, {500, "no leader", false}, {404, "Permission denied", false}} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, c.says, c.status) }))
		client, err := api.NewClient(&api.Config{Address: s.URL})
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = client.Jobs().Info("j", nil)
		if got := Refused(err); got != c.want {
			t.Errorf("%d %s: refused %v, want %v", c.status, c.says, got, c.want)
		}
		s.Close()
	}
}

// The error claims that our policies suffice only for rights that they grant.
func TestPoliciesSuffice(t *testing.T) {
	var granted strings.Builder
	for line := range strings.Lines(acl.Agent + acl.Node + acl.User) {
		rule, _, _ := strings.Cut(line, "#")
		granted.WriteString(rule)
	}
	if strings.Contains(granted.String(), `"alloc-node-exec"`) {
		t.Error("the policies grant alloc-node-exec: correct the error")
	}
	for right, want := range map[Right]string{
		ReadJob:   "placer/deploy/acl has policies that suffice.",
		ExecAlloc: "placer/deploy/acl has policies that suffice, except for raw_exec tasks.",
	} {
		if got := (&deniedError{errors.New("no"), right}).Error(); !strings.HasSuffix(got, want) {
			t.Errorf("%s: %s", right, got)
		}
	}
}
