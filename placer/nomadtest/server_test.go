// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomadtest

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/nomad/api"
)

func connect(t *testing.T, cfg *api.Config) *api.Client {
	t.Helper()
	c, err := api.NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Nomad's own client for locks and checked writes gets the answers that it expects.
func TestVariables(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{Seed: 1})
		defer s.Close()
		c := connect(t, s.Config("c", ""))
		v, _, err := c.Variables().CheckedCreate(&api.Variable{Path: "a", Items: map[string]string{"k": "1"}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		old := *v
		v.Items = map[string]string{"k": "2"}
		if _, _, err := c.Variables().CheckedUpdate(v, nil); err != nil {
			t.Error(err)
		}
		var conflict api.ErrCASConflict
		if _, _, err := c.Variables().CheckedUpdate(&old, nil); !errors.As(err, &conflict) || conflict.Conflict.Items["k"] != "2" {
			t.Errorf("a write with an old index: %v", err)
		}
		big := &api.Variable{Path: "b", Items: map[string]string{"k": strings.Repeat("x", variableBytes)}}
		if _, _, err := c.Variables().Update(big, nil); err == nil {
			t.Error("a variable of more than 64 KiB is accepted")
		}
		if _, err := c.Variables().Delete("a", nil); err != nil {
			t.Error(err)
		}
		if v, _, err := c.Variables().Peek("a", nil); v != nil || err != nil {
			t.Errorf("a deleted variable: %v, %v", v, err)
		}
	})
}

// Only one client holds a lock at a time. The lock ends if it is not renewed, and is free after its
// delay.
func TestLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{Seed: 1})
		defer s.Close()
		locks := func() *api.Locks {
			v := api.Variable{Path: "lock", Lock: &api.VariableLock{TTL: "15s", LockDelay: "5s"}}
			l, err := connect(t, s.Config("c", "")).Locks(api.WriteOptions{}, v)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		ctx, a, b := t.Context(), locks(), locks()
		if _, err := a.Acquire(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Acquire(ctx); !errors.Is(err, api.ErrLockConflict) {
			t.Errorf("a second one: %v", err)
		}
		time.Sleep(10 * time.Second)
		if err := a.Renew(ctx); err != nil {
			t.Error(err)
		}
		time.Sleep(16 * time.Second)
		if err := a.Renew(ctx); !errors.Is(err, api.ErrLockConflict) {
			t.Errorf("renewed too late: %v", err)
		}
		if _, err := b.Acquire(ctx); !errors.Is(err, api.ErrLockConflict) {
			t.Errorf("within the delay: %v", err)
		}
		time.Sleep(5 * time.Second)
		if _, err := b.Acquire(ctx); err != nil {
			t.Errorf("after the delay: %v", err)
		}
		if err := b.Release(ctx); err != nil {
			t.Error(err)
		}
		if _, err := a.Acquire(ctx); err != nil {
			t.Errorf("after it was released: %v", err)
		}
	})
}

// A token allows what its policy allows.
func TestTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{Seed: 1})
		defer s.Close()
		s.AddNode(GPUNode(0, 1))
		s.SetTokens(map[string]Token{"root": {Management: true}, "dev": {Namespaces: map[string][]string{"default": {"list-jobs", "read-job"}}}})
		for token, want := range map[string][2]bool{"root": {true, true}, "dev": {true, false}, "": {false, false}, "wrong": {false, false}} {
			c := connect(t, s.Config("c", token))
			_, _, jobs := c.Jobs().List(nil)
			_, _, nodes := c.Nodes().List(nil)
			if got := [2]bool{jobs == nil, nodes == nil}; got != want {
				t.Errorf("token %q: jobs and nodes %v, want %v", token, got, want)
			}
		}
	})
}

// In a stepped cluster, actions run only step by step.
func TestSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{Seed: 1, Stepped: true})
		defer s.Close()
		s.AddNode(GPUNode(0, 1))
		name, kind, one := "a", "batch", 1
		job := &api.Job{ID: &name, Name: &name, Type: &kind, Datacenters: []string{"*"}, TaskGroups: []*api.TaskGroup{{
			Name: &name, Count: &one, Tasks: []*api.Task{{Name: "t", Driver: "raw_exec", Config: map[string]any{"command": "sleep 5"}, Resources: api.DefaultResources()}},
		}}}
		if _, _, err := connect(t, s.Config("c", "")).Jobs().Register(job, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		k := Key{Namespace: "default", ID: "a"}
		for _, want := range []string{"pending", "running", "complete"} {
			if _, ok := s.Step(); !ok {
				t.Fatal("nothing is due")
			}
			if got := s.Members(k)[0].Client; got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
	})
}
