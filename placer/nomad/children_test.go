// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

func child(payload []byte) *api.Job {
	id, parent, namespace := "train/dispatch-1", "train", "default"
	return &api.Job{ID: &id, ParentID: &parent, Namespace: &namespace, Dispatched: true, Payload: payload}
}

func TestServesChild(t *testing.T) {
	root := child(nil)
	root.ParentID = nil
	for _, c := range []struct {
		name string
		job  *api.Job
		rpc  bool
		want error
	}{
		{"no child", root, false, nil},
		{"over RPC", child(nil), true, nil},
		{"nothing, as events show it", child([]byte{0}), true, nil},
		{"nothing, as reads show it", child([]byte{}), true, nil},
		{"payload", child([]byte("x")), true, ErrPayload},
		{"payload, compressed", child([]byte("\x01\x00x")), true, ErrPayload},
		{"no RPC address", child(nil), false, ErrNoRPC},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := &View{opts: ViewOptions{Children: c.rpc}}
			if err := v.servesChild(c.job); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

// A child never goes over HTTP, where it would be refused or lose its parent.
func TestRegisterChild(t *testing.T) {
	c, err := NewClient(&api.Config{Address: "http://127.0.0.1:1"}, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Register(t.Context(), child(nil), 7); !errors.Is(err, ErrNoRPC) {
		t.Errorf("without an RPC address: %v", err)
	}
	planned := false
	c.ServeChildren(Children{
		Register: func(_ context.Context, job *api.Job, index uint64) (uint64, error) {
			if *job.ID != "train/dispatch-1" || index != 7 {
				t.Errorf("job %q at %d", *job.ID, index)
			}
			return 8, nil
		},
		Plan: func(context.Context, *api.Job) (*api.JobPlanResponse, error) {
			planned = true
			return &api.JobPlanResponse{}, nil
		},
	})
	if _, err := c.DryRun(t.Context(), child(nil)); err != nil || !planned {
		t.Errorf("dry run over RPC: %v, %v", planned, err)
	}
	if resp, err := c.Register(t.Context(), child(nil), 7); err != nil || resp.JobModifyIndex != 8 {
		t.Errorf("over RPC: %+v, %v", resp, err)
	}
}

func TestTemplateReason(t *testing.T) {
	for _, c := range []struct {
		payload     string
		gated, rpc  bool
		want, lacks string
	}{
		{"required", true, true, "none of its children can be served", ""},
		{"optional", true, true, "runs with one stay gated", "none"},
		{"optional", true, false, "rpc_address", ""},
		{"forbidden", true, true, "explain one of its runs", "none"},
		{"required", false, true, "Nomad places them alone", "none"},
	} {
		id := "train"
		job := &api.Job{ID: &id, ParameterizedJob: &api.ParameterizedJobConfig{Payload: c.payload}}
		if c.gated {
			job = rewrite.Gate(job)
		}
		got := TemplateReason(job, c.rpc).String()
		if !strings.Contains(got, c.want) || c.lacks != "" && strings.Contains(got, c.lacks) {
			t.Errorf("payload %s, gated %v, RPC %v: %s", c.payload, c.gated, c.rpc, got)
		}
	}
}
