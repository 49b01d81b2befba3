// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"encoding/json"
	"slices"
)

// explanation has the fields of `nomad-pal explain -json` that tests read.
type explanation struct {
	State, Note string
	Why         struct{ Text string } `json:"reason"`
	// Reason is Why as text, or the command's output if it fails.
	Reason   string `json:"-"`
	Ready    string
	Decision struct {
		Chosen *struct {
			Cost    float64
			Members []struct {
				Group string
				GPUs  []struct{ ID string } `json:"gpus"`
			}
		}
	}
}

func (b *bed) explain(id string) explanation {
	b.t.Helper()
	out, code := b.pal("explain", "-json", id)
	var e explanation
	if code != 0 {
		e.Reason = out
		return e
	}
	if err := json.Unmarshal([]byte(out), &e); err != nil {
		b.t.Fatalf("explain: %v\n%s", err, out)
	}
	e.Reason = e.Why.Text
	return e
}

// explained are the GPUs that explain names, sorted.
func (b *bed) explained(id string) []string {
	b.t.Helper()
	var ids []string
	if c := b.explain(id).Decision.Chosen; c != nil {
		for _, m := range c.Members {
			for _, u := range m.GPUs {
				ids = append(ids, u.ID)
			}
		}
	}
	slices.Sort(ids)
	return ids
}
