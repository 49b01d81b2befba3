// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"context"
	"errors"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

func child(payload []byte) *api.Job {
	id, parent, namespace := "train/dispatch-1", "train", "default"
	return &api.Job{ID: &id, ParentID: &parent, Namespace: &namespace, Dispatched: true, Payload: payload}
}

// A child never goes over HTTP, where it would be refused or lose its parent.
func TestRegisterChild(t *testing.T) {
	c, err := NewClient(&api.Config{Address: "http://127.0.0.1:1"}, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Register(t.Context(), child(nil), 7); !errors.Is(err, cluster.ErrNoRPC) {
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
