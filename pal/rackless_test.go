// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import (
	"strings"
	"testing"
)

// If no node has a rack, the reason of a gang that is limited to one rack mentions it.
func TestNoRackIsKnown(t *testing.T) {
	for rack, want := range map[string]bool{"": true, "r1": false} {
		var nodes []Node
		for _, id := range []string{"a", "b"} {
			gpus := make([]GPU, 4)
			for i := range gpus {
				gpus[i].ID = id + string(rune('0'+i))
			}
			nodes = append(nodes, Node{ID: id, Name: id, Rack: rack, Groups: []DeviceGroup{{Name: "H200", GPUs: gpus}}})
		}
		c, err := NewCluster(nodes, TwoTier(1.5))
		if err != nil {
			t.Fatal(err)
		}
		never, reason := WhyNot(c, Gang{ID: "g", Class: "A", MaxTier: TierRack, MemberSets: []MemberSet{{Name: "g", Members: 3, GPUs: 2}}})
		if strings.Contains(reason.String(), "no node has a rack in its meta (rack_meta)") != want || never != want {
			t.Errorf("rack %q: %t, %s", rack, never, reason)
		}
	}
}
