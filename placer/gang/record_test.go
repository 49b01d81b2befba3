// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/request"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// Pinned returns the GPUs in a record, or nil if the record does not show them.
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

// describingWorld describes a placement by its gang and its number of members.
type describingWorld struct{ *fakeWorld }

func (w describingWorld) Describe(g pal.Gang, p pal.Placement) *pal.Choice {
	return &pal.Choice{Members: []pal.ChosenMember{{Group: fmt.Sprintf("%d of %s", len(p.Members), g.ID)}}}
}

// A placer crashed before it recorded its decision. The next one reads from Nomad all that explain
// shows about the gang: its name, its request, its GPUs, and since when it has them.
func TestReconstruct(t *testing.T) {
	w := describingWorld{newFakeWorld()}
	w.holds = []int{1, 2}
	g := &Lifecycle{memory: memory{known: known{Observed: Observed{Job: plainJob("j", 7), Pins: somePins("g1", "g2")}, Record: &Record{Namespace: "default", Job: "j"}}}}
	g.Pins.Mode = rewrite.ModeClass
	g.Request = request.Request{Gang: pal.Gang{ID: "default/j", Class: pal.ClassB, MemberSets: []pal.MemberSet{{Members: 2, GPUs: 1}}}}
	g.reconstruct(w)
	want := &Record{
		Namespace: "default", Job: "j", Mode: rewrite.ModeClass, Decided: time.Unix(0, 7),
		Decision: pal.Decision{
			Gang: "default/j", Class: pal.ClassB, Policy: "pal", Demand: 2, Placed: true,
			Chosen: &pal.Choice{Members: []pal.ChosenMember{{Group: "2 of default/j"}}},
		},
		Note: g.Record.Note,
	}
	if d := cmp.Diff(want, g.Record); d != "" || g.Record.Note == "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// A gang waited for ten minutes and was started, but no member ran, so it waited again. Its second
// start is not recorded. Its wait time counts only once.
func TestStartsAgainAfterNoMemberCame(t *testing.T) {
	at := func(m int) time.Time { return time.Unix(1e9, 0).Add(time.Duration(m) * time.Minute) }
	r := Record{Submitted: at(0), Decided: at(10), Waited: 10 * time.Minute}
	r.startsAgain(&api.Job{SubmitTime: new(at(15).UnixNano())})
	if r.Waited != 15*time.Minute {
		t.Errorf("waited %v, want 15 minutes", r.Waited)
	}
}
