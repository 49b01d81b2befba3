// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/hashicorp/nomad/api"
)

// The gang of a drained node moves as a whole; a service gets another node.
func testDrained(t *testing.T, b *bed) {
	b.run(gang("drainee", 1, 4).hcl())
	same(t, "the best node", []string{gpu(1, 0), gpu(1, 1), gpu(1, 2), gpu(1, 3)}, b.untilGPUs("drainee", 4))
	service := gang("server", 1, 4)
	service.kind = "service"
	b.run(service.hcl())
	home := b.untilGPUs("server", 4)[0][:5]
	nodes, _, err := b.API().Nodes().List(nil)
	if err != nil {
		t.Fatal(err)
	}
	drain := func(spec *api.DrainSpec) {
		for _, n := range nodes {
			if n.Name == "node-1" || n.Name == "node-"+home[4:] {
				if _, err := b.API().Nodes().UpdateDrain(n.ID, spec, spec == nil, nil); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	drain(&api.DrainSpec{Deadline: -1}) // without waiting
	for _, id := range []string{"drainee", "server"} {
		b.until(id+" runs elsewhere", func() string {
			g := b.gpusOf(id)
			if len(g) != 4 || slices.ContainsFunc(g, func(u string) bool { return u[:5] == "GPU-1" || u[:5] == home }) {
				return fmt.Sprint(g)
			}
			return ""
		})
	}
	drain(nil)
	b.purge("drainee", "server")
}
