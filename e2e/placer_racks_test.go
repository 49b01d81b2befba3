// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"
)

// A job is tied to the racks of its nodes, if these are at most a quarter of
// the cluster. When a rack is renamed, the first member that Nomad has to place
// again finds no node. Then the placer ties the job to the rack's new name.
func testRacks(t *testing.T, b *bed) {
	b.racks(func(n int) string { return fmt.Sprintf("own%d", n) })
	j := gang("racked", 1, 2)
	j.kind, j.meta = "service", `pal_on_failure = "gang"`
	b.run(j.hcl())
	node := b.untilGPUs("racked", 2)[0][4:5]
	b.untilRacks("racked", "nomad-pal/job,own"+node)
	b.untilDeployed("racked")

	b.racks(func(n int) string { return fmt.Sprintf("renamed%d", n) })
	if _, err := b.API().Allocations().Stop(&api.Allocation{ID: b.members("racked")[0].ID}, nil); err != nil {
		t.Fatal(err)
	}
	node = b.untilGPUs("racked", 2)[0][4:5]
	b.untilRacks("racked", "nomad-pal/job,renamed"+node)
	b.purge("racked")
}

// racks renames the nodes' racks, by number, while they run. A client reports a
// change after 5 to 10 s.
func (b *bed) racks(name func(n int) string) {
	b.t.Helper()
	nodes, _, err := b.API().Nodes().List(nil)
	if err != nil {
		b.t.Fatal(err)
	}
	racks := map[string]string{}
	for _, n := range nodes {
		var number int
		if _, err := fmt.Sscanf(n.Name, "node-%d", &number); err != nil {
			b.t.Fatal(err)
		}
		rack := name(number)
		racks[n.ID] = rack
		if _, err := b.API().Nodes().Meta().Apply(&api.NodeMetaApplyRequest{NodeID: n.ID, Meta: map[string]*string{"rack": &rack}}, nil); err != nil {
			b.t.Fatal(err)
		}
	}
	b.until("the nodes are in their racks", func() string {
		for id, rack := range racks {
			n, _, err := b.API().Nodes().Info(id, nil)
			if err != nil {
				return err.Error()
			}
			if n.Meta["rack"] != rack {
				return fmt.Sprintf("%s is in rack %s, not %s", n.Name, n.Meta["rack"], rack)
			}
		}
		return ""
	})
}

// untilRacks waits until the job's own constraint names these racks.
func (b *bed) untilRacks(id, want string) {
	b.t.Helper()
	b.until("the racks of "+id, func() string {
		job, _, err := b.API().Jobs().Info(id, nil)
		if err != nil {
			return err.Error()
		}
		var have []string
		for _, c := range job.Constraints {
			if have = append(have, c.LTarget+" "+c.Operand+" "+c.RTarget); c.LTarget == "${meta.rack}" && c.RTarget == want {
				return ""
			}
		}
		return strings.Join(have, "; ")
	})
}
