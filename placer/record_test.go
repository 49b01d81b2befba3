// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

// A decision on any number of GPUs fits a variable, and says what was left out.
func TestRecordFits(t *testing.T) {
	for _, members := range []int{1, 100, 3000} {
		c := &pal.Choice{}
		for i := range members {
			c.Members = append(c.Members, pal.ChosenMember{
				Group: "workers", Node: fmt.Sprintf("node-%d", i), NodeID: strings.Repeat("f", 36), Device: "nvidia/gpu/NVIDIA H200",
				GPUs: []pal.ChosenGPU{{ID: "GPU-" + strings.Repeat("e", 36), PMScore: 1.003, Class: 2}},
			})
		}
		packed := *c
		text, err := encode(Record{Job: "j", Decision: pal.Decision{Chosen: c, Packed: &packed}})
		if err != nil || len(text) > recordBytes {
			t.Fatalf("%d members take %d bytes: %v", members, len(text), err)
		}
		var r Record
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			t.Fatal(err)
		}
		if got := len(r.Decision.Chosen.Members) + r.MembersOmitted; got != members {
			t.Errorf("%d members: %d kept and %d said to be omitted", members, len(r.Decision.Chosen.Members), r.MembersOmitted)
		}
		if len(c.Members) != members {
			t.Errorf("the decision itself was cut to %d members", len(c.Members))
		}
	}
}

// Nomad allows few characters in paths.
func TestRecordPath(t *testing.T) {
	allowed := regexp.MustCompile(`^[a-zA-Z0-9_~/-]{1,128}$`)
	seen := map[string]string{}
	for _, id := range []string{"train", "train.v2", "a/b", "a b", strings.Repeat("x", 300), "täglich", "train/dispatch-1700000000-abcdef01"} {
		path := recordPath(nomad.JobKey{Namespace: "default", ID: id})
		if !allowed.MatchString(path) {
			t.Errorf("%q: path %q", id, path)
		}
		if other, dup := seen[path]; dup {
			t.Errorf("%q and %q share %q", id, other, path)
		}
		seen[path] = id
	}
	if got := recordPath(nomad.JobKey{Namespace: "team", ID: "train"}); got != "nomad-pal/decisions/team/train" {
		t.Errorf("a plain name is not readable: %q", got)
	}
	if got := recordPath(nomad.JobKey{Namespace: "team", ID: "train.v2"}); !strings.HasPrefix(got, "nomad-pal/decisions/team/~") {
		t.Errorf("a hashed name is not below its namespace: %q", got)
	}
	if got := recordPath(nomad.JobKey{Namespace: strings.Repeat("n", 120), ID: "train"}); !allowed.MatchString(got) {
		t.Errorf("a long namespace: path %q", got)
	}
}
