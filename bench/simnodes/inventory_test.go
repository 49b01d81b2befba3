// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/nomad/structs"
)

func TestDumpReadsBackAsTheSameNodes(t *testing.T) {
	args := []string{"-nodes", "3", "-gpus", "4", "-seed", "7", "-rack", "2"}
	var dump bytes.Buffer
	if err := run(t.Context(), append(args, "-dump"), &dump, &dump); err != nil {
		t.Fatal(err)
	}
	read, err := readInventory(&dump, "dump")
	if err != nil {
		t.Fatal(err)
	}
	got, err := read.build()
	if err != nil {
		t.Fatal(err)
	}
	o, err := parse(args, &dump)
	if err != nil {
		t.Fatal(err)
	}
	want, err := o.generate.inventory().build()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("generated (-), dumped and read (+):\n%s", diff)
	}
	if rack := got[2].Meta["rack"]; rack != "r0001" {
		t.Errorf("the third node is in rack %q, want r0001: two nodes make a rack", rack)
	}
}

func TestASeedGivesItsOwnGPUs(t *testing.T) {
	one := generate{nodes: 2, gpus: 8, seed: 1, model: "m"}.inventory()
	two := generate{nodes: 2, gpus: 8, seed: 2, model: "m"}.inventory()
	more := generate{nodes: 5, gpus: 8, seed: 1, model: "m"}.inventory()
	if one.Nodes[1].Groups[0].Instances[0].ID == two.Nodes[1].Groups[0].Instances[0].ID {
		t.Error("two seeds share a GPU id")
	}
	if diff := cmp.Diff(one.Nodes, more.Nodes[:2]); diff != "" {
		t.Errorf("the first nodes change when more are asked for:\n%s", diff)
	}
}

// Every GPU of class k is in all lists from k on, and each count is its list's length: the contract of pal/attr.
func TestClassListsNestAndAreCounted(t *testing.T) {
	for _, n := range (generate{nodes: 40, gpus: 8, seed: 3, model: "m"}).inventory().Nodes {
		a := n.Groups[0].Attributes
		for _, app := range []string{"a", "b", "c"} {
			inner := ""
			for k := 1; k <= 5; k++ {
				list := a[fmt.Sprintf("unique.variability_%s_le_%d", app, k)].(string)
				count := a[fmt.Sprintf("variability_%s_le_%d_count", app, k)].(int)
				ids := strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
				if len(ids) != count {
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

func TestABadInventoryNamesNodeAndField(t *testing.T) {
	const good = `{"id":"1","secret_id":"2","name":"n"`
	for _, c := range []struct{ name, text, want string }{
		{"no nodes", `{"nodes":[]}`, `reading inventory "f": no nodes`},
		{"unknown key", `{"nodes":[{"ip":"x"}]}`, `reading inventory "f": json: unknown field "ip"`},
		{"no secret", `{"nodes":[{"id":"1","name":"n"}]}`, `node 0 ("n"): id, secret_id and name are needed`},
		{"twice", `{"nodes":[` + good + `},` + good + `}]}`, `node 1 ("n"): id "1" is that of node 0`},
		{"no instance", `{"nodes":[` + good + `,"groups":[{"name":"H200"}]}]}`,
			`node 0 ("n"): device group "H200": a name and at least one instance are needed`},
		{"bad attribute", `{"nodes":[` + good + `,"groups":[{"name":"H200","instances":[{"id":"g"}],"attributes":{"x":[1]}}]}]}`,
			`node 0 ("n"): device group "H200": attribute "x": a value of type []interface {}`},
		{"bad unit", `{"nodes":[` + good + `,"groups":[{"name":"H200","instances":[{"id":"g"}],"attributes":{"t":{"value":1,"unit":"C"}}}]}]}`,
			`node 0 ("n"): device group "H200": attribute "t": unrecognized unit "C"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			inv, err := readInventory(strings.NewReader(c.text), "f")
			if err == nil {
				_, err = inv.build()
			}
			if err == nil || err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
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
