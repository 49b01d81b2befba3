// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package request

import (
	"testing"

	"github.com/hashicorp/nomad/api"
)

// A refusal describes our pins in words, and leaves the author's constraints
// unchanged.
func TestRefusalByPins(t *testing.T) {
	m := &api.AllocationMetric{ConstraintFiltered: map[string]int{
		"${node.unique.id} set_contains_any nomad-pal/job,n1": 2, "${node.unique.id} set_contains_any nomad-pal,n1": 1, "${attr.kernel.name} = linux": 3,
	}}
	if got, want := Refusal(m), "${attr.kernel.name} = linux (3 nodes), not among the nodes that nomad-pal chose for the job (3 nodes)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
