// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package request

import (
	"errors"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
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
		{"payload", child([]byte("x")), true, cluster.ErrPayload},
		{"payload, compressed", child([]byte("\x01\x00x")), true, cluster.ErrPayload},
		{"no RPC address", child(nil), false, cluster.ErrNoRPC},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := &View{opts: Options{Children: c.rpc}}
			if err := v.servesChild(c.job); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

func TestTemplateReason(t *testing.T) {
	for _, c := range []struct {
		payload     string
		gated, rpc  bool
		want, lacks string
	}{
		{"required", true, true, "none of the job's runs can be placed", ""},
		{"optional", true, true, "runs with a payload stay gated", "none"},
		{"optional", true, false, "rpc_address", ""},
		{"forbidden", true, true, "the job is parameterized; nomad-pal status -all lists its runs", "none"},
		{"required", false, true, "Nomad places the runs without nomad-pal", "none"},
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
