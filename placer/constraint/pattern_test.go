// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package constraint

import (
	"fmt"
	"testing"

	"github.com/hashicorp/nomad/api"
)

// A regular expression is compiled once, not for each node.
func TestPatternsAreCompiledOnce(t *testing.T) {
	const text = "^once$"
	first, err := compiled(text)
	if err != nil {
		t.Fatal(err)
	}
	if !matches(api.ConstraintRegex, "once", text) || matches(api.ConstraintRegex, "twice", text) {
		t.Error("it does not match")
	}
	if again, _ := compiled(text); again != first {
		t.Error("it is compiled again")
	}
	for i := range 2 * patternsKept {
		_, _ = compiled(fmt.Sprint("a", i))
	}
	if n := len(patterns.known); n > patternsKept {
		t.Errorf("%d are cached", n)
	}
}
