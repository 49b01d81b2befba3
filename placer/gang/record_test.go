// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"slices"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// What a record says of the GPUs that a job was given, and when it says nothing.
func TestPinnedByRecord(t *testing.T) {
	index, other := uint64(7), uint64(8)
	job, edited := &api.Job{JobModifyIndex: &index}, &api.Job{JobModifyIndex: &other}
	pins := rewrite.Pins{Mode: rewrite.ModeGPU, Groups: []rewrite.GroupPins{{Group: "g", GPUs: []string{"a", "b"}}}}
	chosen := &pal.Choice{Members: []pal.ChosenMember{{GPUs: []pal.ChosenGPU{{ID: "a"}, {ID: "b"}}}}}
	whole := Record{JobModifyIndex: index, Decision: pal.Decision{Demand: 2, Chosen: chosen}}
	cut := Record{JobModifyIndex: index, MembersOmitted: 1, Decision: pal.Decision{Demand: 2, Chosen: &pal.Choice{}}}
	many := cut
	many.Decision.Demand = 3
	for _, c := range []struct {
		name string
		r    Record
		job  *api.Job
		want []string
	}{
		{"it names them", whole, job, []string{"a", "b"}},
		{"the job was registered again", whole, edited, []string{"a", "b"}},
		{"members are left out", cut, job, []string{"a", "b"}},
		{"and the job was registered again", cut, edited, nil},
		{"or names others than were given", many, job, nil},
		{"nothing was recorded", Record{JobModifyIndex: index}, job, nil},
	} {
		if got := c.r.Pinned(c.job, pins); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
