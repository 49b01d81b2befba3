// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"fmt"
	"testing"

	"github.com/hashicorp/nomad/api"
)

// The lowest version among the nodes counts; text that is not a version does not.
func TestOldest(t *testing.T) {
	s := NewState()
	if v := s.Nodes.OldestNomad(); v != nil {
		t.Errorf("no nodes: %v", v)
	}
	for i, v := range []string{"1.11.3", "1.9.7", "dev", "1.10.0"} {
		s.Nodes[v] = &api.Node{ID: fmt.Sprint(i), Attributes: map[string]string{"nomad.version": v}}
	}
	if v := s.Nodes.OldestNomad(); v.String() != "1.9.7" {
		t.Errorf("oldest: %v", v)
	}
}
