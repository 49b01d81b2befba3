// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package rewrite

import (
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"
)

// Any meta that an author writes into a job is read, or refused with an error that
// names the key.
func FuzzParseHints(f *testing.F) {
	for _, kv := range [][2]string{
		{"pal_class", "A"}, {"pal_class", "bert"}, {"pal_pin", "prefer"}, {"pal_locality", "rack"}, {"pal_duration", "90m"},
		{"pal_duration", "2562047h"}, {"pal_duration", "1e9h"}, {"pal_preempt", "true"}, {"pal_migrate", "T"}, {"pal_on_failure", "member"}, {"pal_", ""},
	} {
		f.Add(kv[0], kv[1], kv[0], kv[1])
	}
	f.Add("pal_pin", "gpu", "pal_on_failure", "member")
	f.Fuzz(func(t *testing.T, key, value, key2, value2 string) {
		name := "g"
		job := &api.Job{Meta: map[string]string{key: value}, TaskGroups: []*api.TaskGroup{{Name: &name, Meta: map[string]string{key2: value2}}}}
		h, err := ParseHints(job)
		switch {
		case err != nil:
			if !strings.Contains(err.Error(), "pal_") || h != (Hints{}) {
				t.Fatalf("%v, %+v", err, h)
			}
		case h.Duration < 0:
			t.Fatalf("%+v", h)
		}
	})
}

// Any lists that an author copies from us, or invents, are read safely. Pins that
// were read can be removed and added again.
func FuzzPinned(f *testing.F) {
	f.Add(nodeTarget, "nomad-pal,n1,n2", containsAny, idsTarget, "nomad-pal,g1,g2", containsAny)
	f.Add(nodeTarget, "nomad-pal/class,n1", containsAny, "${device.attr.unique.variability_a_le_3}", idsTarget, containsAny)
	f.Add(nodeTarget, "nomad-pal/nodes,n1", containsAny, idsTarget, "nomad-pal", containsAny)
	f.Add(nodeTarget, "nomad-pal/job,n1", containsAny, "${device.attr.unique.variability_b_le_-9999999999999999999}", idsTarget, containsAny)
	f.Add(nodeTarget, "nomad-pal,,", containsAny, idsTarget, ",nomad-pal", "=")
	f.Fuzz(func(t *testing.T, l, r, op, l2, r2, op2 string) {
		name, count := "g", 1
		job := &api.Job{ID: &name, Constraints: []*api.Constraint{{LTarget: l, RTarget: r, Operand: op}}, TaskGroups: []*api.TaskGroup{{
			Name: &name, Count: &count,
			Constraints: []*api.Constraint{{LTarget: l, RTarget: r, Operand: op}},
			Affinities:  []*api.Affinity{{LTarget: l2, RTarget: r2, Operand: op2}},
			Tasks: []*api.Task{{Name: "t", Resources: &api.Resources{Devices: []*api.RequestedDevice{{
				Name:        "nvidia/gpu",
				Constraints: []*api.Constraint{{LTarget: l2, RTarget: r2, Operand: op2}},
				Affinities:  []*api.Affinity{{LTarget: l2, RTarget: r2, Operand: op2}},
			}}}}},
		}}}
		pins, pinned := Pinned(job)
		pins.GPUs()
		pins.Nodes()
		author := Author(job)
		if _, still := Pinned(author); still && pinned {
			// An author who writes several of our lists loses them one at a
			// time.
			if _, third := Pinned(Author(Author(Author(author)))); third {
				t.Fatalf("pins of %+v cannot be removed", job.TaskGroups[0].Constraints)
			}
		}
		own := Pins{Mode: ModeGPU, Groups: []GroupPins{{Group: "g", Nodes: []string{"n"}, GPUs: []string{"u"}}}}
		out, err := Pin(job, own, Racks{})
		if err != nil {
			t.Fatal(err)
		}
		if back, ok := Pinned(out); !ok || !slices.Equal(back.GPUs(), []string{"u"}) {
			t.Fatalf("pinned to u, read back %+v", back)
		}
	})
}
