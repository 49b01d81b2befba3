// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/profile"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/hostile"
	"github.com/nomad-pal/nomad-pal/placer/query"
)

// Each hostile node alone, and all of them together, join honest nodes. The honest nodes keep their
// GPUs, their measurements count, and an honest job starts.
func TestHostileNodes(t *testing.T) {
	var others []string
	for i := range 16 {
		others = append(others, fmt.Sprintf("GPU-%02d", i))
	}
	sets := map[string][]hostile.Node{"all of them": hostile.Nodes(10, others...)}
	for _, n := range hostile.Nodes(10, others...) {
		sets[n.Name] = []hostile.Node{n}
	}
	said := map[string]string{} // by node
	for name, nodes := range sets {
		t.Run(name, func(t *testing.T) {
			s := cluster.NewState()
			index := uint64(0)
			joins := func(n hostile.Node) {
				index++
				e := cluster.Event{Topic: "Node", Type: "NodeRegistration", Index: index}
				e.Payload.Node = n.Node
				s.Apply(e)
			}
			for i, ids := range [][]string{others[:8], others[8:]} {
				n := hostile.PlainNode(fmt.Sprint("honest-", i), "H200", uint64(i+1), ids...)
				joins(hostile.Node{Node: n})
			}
			for _, n := range nodes {
				joins(n)
			}
			honest := hostile.Plain("honest", 2, 8, 1000)
			s.PutJob(honest)
			p := newPlacer(t)
			p.m.State = s
			if prof, err := p.m.BuildProfile(); prof != nil {
				p.m.Profile = prof
				if slices.ContainsFunc(prof.GPUs, func(g profile.GPU) bool { return slices.Contains(others, g.ID) && g.Entries != nil }) {
					t.Error("others' GPUs are measured")
				}
			} else if err != nil && !strings.Contains(err.Error(), "hostile-") && !strings.Contains(err.Error(), "own-") {
				t.Errorf("no warning about the measurements: %v", err)
			}
			now := time.Now()
			if as := pass(t, p, s, now); !startsJob(as, cluster.KeyOf(honest)) {
				t.Errorf("the honest job does not start: %v", as)
			}
			for _, id := range others {
				i := p.m.View.Cluster.Find(id)
				if i < 0 {
					t.Fatalf("%s is missing", id)
				}
				node, device := p.m.View.Cluster.Group(p.m.View.Cluster.GroupOf(i))
				if n := p.m.View.Cluster.Node(node); !strings.HasPrefix(n.ID, "honest-") || device != "nvidia/gpu/H200" || p.m.View.Cluster.GPU(i).Health.Unhealthy {
					t.Errorf("%s is a %s of %s: %+v", id, device, n.ID, p.m.View.Cluster.GPU(i))
				}
			}
			p.publish(now)
			said[name] = strings.Join(p.Status().Warnings, "; ")
			for _, g := range (query.Picture(p.m, p.nomad, nil)).GPUs() {
				if strings.ContainsFunc(g.ID, func(r rune) bool { return r < ' ' }) {
					t.Errorf("GPU %q is listed", g.ID)
				}
			}
		})
	}
	if path := os.Getenv("PAL_HOSTILE_NODES_REPORT"); path != "" {
		page, rows := hostileNodesReport(hostile.Nodes(10, others...), said)
		writeReport(t, path, page, rows)
	}
}

// hostileNodesReport returns a page of the docs, and a row for each node with the placer's warning.
func hostileNodesReport(nodes []hostile.Node, said map[string]string) (page string, rows [][]string) {
	rows = [][]string{{"the node has", "the warning"}}
	warned := 0
	for _, n := range nodes {
		warning := said[n.Name]
		if warning != "" {
			warned++
		}
		rows = append(rows, []string{cell(n.Name), cell(cmp.Or(warning, "none: bounded or ignored, and logged"))})
	}
	return fmt.Sprintf(`# What hostile nodes do to the placer

Written by `+"`make faults`"+`. The %d nodes of `+"`placer/nomadtest/hostile`"+` register other nodes' GPUs, absurd amounts and malformed
measurements. They join two honest nodes of 8 GPUs, one by one and all together. The honest nodes keep their GPUs, which stay healthy. Only the honest
nodes' own measurements count for these GPUs. A gang of 2 × 8 GPUs starts on the honest nodes (`+"`TestHostileNodes`"+`). The placer warns of %d of the nodes in
`+"`nomad-pal status`"+`. The placer limits or ignores the false data of the other hostile nodes, with a line in its log. The CSV file beside this page has the warnings.
`, len(nodes), warned), rows
}
