// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"strings"
	"testing"
	"time"
)

// Without GPUs of a second model nothing is said of them.
func TestExplain(t *testing.T) {
	t.Parallel()
	for _, two := range []bool{true, false} {
		said := explain(typed{twoModels: two}, time.Now())
		if strings.Contains(said, "RTX") != two || strings.Contains(said, "light") != two {
			t.Errorf("two models %v:\n%s", two, said)
		}
	}
}
