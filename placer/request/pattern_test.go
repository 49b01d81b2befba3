// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package request

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/cluster/clustertest"
)

// The work to check one job against a node is limited, and the author is told.
func TestTooMuchInAJob(t *testing.T) {
	regex := func(text string) []*api.Constraint {
		return []*api.Constraint{{LTarget: "${node.unique.name}", Operand: "regexp", RTarget: text}}
	}
	for _, c := range []struct {
		name   string
		change func(*api.Job)
		want   string
	}{
		{"usual", func(j *api.Job) { j.Constraints = regex(`^(gpu|node)-[0-9]{2,4}\.rack[1-9]\.example\.(com|net)$`) }, ""},
		{"none", func(j *api.Job) { j.Constraints = regex(`(`) }, "error parsing regexp: missing closing )"}, // Nomad refuses it, too
		{"no version", func(j *api.Job) {
			j.Constraints = []*api.Constraint{{LTarget: "${attr.nomad.version}", Operand: "version", RTarget: "new"}}
		}, `constraint "${attr.nomad.version} version new": malformed constraint: new`},
		{"no operator", func(j *api.Job) {
			j.TaskGroups[0].Affinities = []*api.Affinity{{LTarget: "${meta.rack}", Operand: "setcontains", RTarget: "1"}}
		}, `affinity "${meta.rack} setcontains 1": Nomad has no operator "setcontains" (did you mean "set_contains"?)`},
		{"a long one", func(j *api.Job) { j.Constraints = regex(strings.Repeat("(a|b|c)*", 200)) }, "regular expression is too large"},
		{"a text of 1 MB", func(j *api.Job) { j.Constraints = regex(strings.Repeat("a", 1<<20)) }, "regular expression is too large"},
		{"a short one that grows", func(j *api.Job) { j.Constraints = regex(`(a?){1000}(b?){1000}`) }, "regular expression is too large"},
		{"at a device", func(j *api.Job) {
			j.TaskGroups[0].Tasks[0].Resources.Devices[0].Constraints = regex(`(a?){1000}`)
		}, "regular expression is too large"},
		{"an affinity", func(j *api.Job) {
			j.TaskGroups[0].Tasks[0].Affinities = []*api.Affinity{{LTarget: "a", Operand: "regexp", RTarget: `(a?){1000}`}}
		}, "regular expression is too large"},
		{"many constraints", func(j *api.Job) {
			for range 1001 {
				j.TaskGroups[0].Constraints = append(j.TaskGroups[0].Constraints, regex("a")...)
			}
		}, "more constraints and affinities than the 1000 that nomad-pal accepts"},
		{"many groups", func(j *api.Job) {
			for i := range 1000 {
				g, name := *j.TaskGroups[0], fmt.Sprint("g", i)
				g.Name = &name
				j.TaskGroups = append(j.TaskGroups, &g)
			}
		}, "the job has 1001 task groups"},
	} {
		job := clustertest.SmallJob("j", 7, true)
		c.change(job)
		err := Servable(job)
		if said := fmt.Sprint(err); (err == nil) != (c.want == "") || !strings.Contains(said, c.want) {
			t.Errorf("%s: %.200s, want %q", c.name, said, c.want)
		}
	}
}

// The cache does not grow with each change of a job.
func TestEligibilityIsBounded(t *testing.T) {
	s := cluster.NewState()
	s.PutNode(clustertest.Node("n", "ready", 7, "A"))
	v, err := NewView(s, options())
	if err != nil {
		t.Fatal(err)
	}
	for i := range eligibilityKept + 10 {
		job := clustertest.SmallJob("j", 7, true)
		job.Constraints = []*api.Constraint{{LTarget: "${attr.x}", Operand: "!=", RTarget: fmt.Sprint(i)}}
		r, err := v.Request(job)
		if err != nil {
			t.Fatalf("%d: %+v, %v", i, r, err)
		}
		v.Avoid(&r, map[string]bool{"host-n": true})
	}
	if n := len(v.eligibility); n > eligibilityKept {
		t.Errorf("%d requests are remembered", n)
	}
	if n := len(v.avoiding); n > eligibilityKept {
		t.Errorf("%d lists of nodes to avoid are remembered", n)
	}
	for key := range v.eligibility {
		if len(key) > 64 {
			t.Fatalf("a key of %d bytes", len(key))
		}
	}
}
