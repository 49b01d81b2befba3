// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package replay

import "testing"

// A playground may have GPUs of only one model.
func TestDrawTwoModels(t *testing.T) {
	t.Parallel()
	for others, models := range []int{1, 2} {
		g, source, err := DrawTwoModels(2, others, 4, 1, 1)
		if err != nil {
			t.Fatalf("%d others: %v", others, err)
		}
		is := map[string]bool{}
		for _, u := range g.All {
			is[u.Model] = true
		}
		if len(g.All) != (2+others)*4 || len(is) != models {
			t.Errorf("%d others: %d GPUs of models %v, from %s", others, len(g.All), is, source)
		}
	}
}
