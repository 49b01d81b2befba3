// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster_test

import (
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

// Jobs whose ids differ for each run share one name, and dispatched jobs share their template's id.
func TestNameOf(t *testing.T) {
	t.Parallel()
	at := func(namespace, id, name, parent string) *api.Job {
		j := &api.Job{Namespace: &namespace, ID: &id, Name: &name}
		if parent != "" {
			j.ParentID = &parent
		}
		return j
	}
	train := cluster.JobKey{Namespace: "ml", ID: "train"}
	for _, j := range []*api.Job{
		at("ml", "train", "train", ""), at("ml", "train-20261129-1", "train", ""), at("ml", "train/dispatch-1", "train/dispatch-1", "train"),
	} {
		if got := cluster.NameOf(j); got != train {
			t.Errorf("job %q named %q: %v, want %v", *j.ID, *j.Name, got, train)
		}
	}
	if got := cluster.NameOf(at("dev", "train", "train", "")); got == train {
		t.Error("jobs of two namespaces share a name")
	}
}
