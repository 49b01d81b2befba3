// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/nomad/structs"
)

func TestASeedGivesItsOwnGPUs(t *testing.T) {
	one := generate{nodes: 3, gpus: 8, seed: 1, rack: 2}.all()
	two := generate{nodes: 2, gpus: 8, seed: 2, rack: 2}.all()
	more := generate{nodes: 5, gpus: 8, seed: 1, rack: 2}.all()
	if one[1].NodeResources.Devices[0].Instances[0].ID == two[1].NodeResources.Devices[0].Instances[0].ID {
		t.Error("two seeds share a GPU id")
	}
	if diff := cmp.Diff(one, more[:3]); diff != "" {
		t.Errorf("the first nodes change when more are generated:\n%s", diff)
	}
	if rack := one[2].Meta["rack"]; rack != "r0001" {
		t.Errorf("the third node is in rack %q, want r0001, because a rack has two nodes", rack)
	}
}

// Every GPU of class k is in all lists from k on, and each count is its list's length: the contract
// of pal/attr.
func TestClassListsNestAndAreCounted(t *testing.T) {
	for _, n := range (generate{nodes: 40, gpus: 8, seed: 3}).all() {
		a := n.NodeResources.Devices[0].Attributes
		for _, app := range []string{"a", "b", "c"} {
			inner := ""
			for k := 1; k <= 5; k++ {
				list, _ := a[fmt.Sprintf("unique.variability_%s_le_%d", app, k)].GetString()
				count, _ := a[fmt.Sprintf("variability_%s_le_%d_count", app, k)].GetInt()
				ids := strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
				if int64(len(ids)) != count {
					t.Errorf("node %s: class %s %d has %d ids, count %d", n.Name, app, k, len(ids), count)
				}
				for _, id := range strings.FieldsFunc(inner, func(r rune) bool { return r == ',' }) {
					if !strings.Contains(list, id) {
						t.Errorf("node %s: %s is in class %s %d, not in %d", n.Name, id, app, k-1, k)
					}
				}
				inner = list
			}
			if len(strings.Split(inner, ",")) != 8 {
				t.Errorf("node %s: class %s 5 is %q, want all 8 GPUs", n.Name, app, inner)
			}
		}
	}
}

func TestTheGroupsTimeWinsOverTheJobs(t *testing.T) {
	for _, c := range []struct {
		name       string
		job, group map[string]string
		want       string
	}{
		{"neither", nil, nil, "0s limited=false <nil>"},
		{"job", map[string]string{secondsKey: "2.5"}, nil, "2.5s limited=true <nil>"},
		{"both", map[string]string{secondsKey: "2"}, map[string]string{secondsKey: "0"}, "0s limited=true <nil>"},
		{"words", map[string]string{secondsKey: "two"}, nil, `0s limited=false meta sim_seconds = "two" is not a number of seconds`},
		{"past", map[string]string{secondsKey: "-1"}, nil, `0s limited=false meta sim_seconds = "-1" is not a number of seconds`},
	} {
		t.Run(c.name, func(t *testing.T) {
			job := &structs.Job{Meta: c.job, TaskGroups: []*structs.TaskGroup{{Name: "g", Meta: c.group}}}
			d, limited, err := duration(&structs.Allocation{Job: job, TaskGroup: "g"})
			if got := fmt.Sprintf("%v limited=%v %v", time.Duration(d), limited, err); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}
