// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package simulate

import (
	"bytes"
	"strings"
	"testing"
)

// The head of a report has the seed only once, although the name of a generated trace has it,
// too.
func TestSeedIsSaidOnce(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	if code := (Command{}).Run([]string{"-jobs", "5", "-nodes", "4"}, &out, &errs); code != 0 {
		t.Fatal(errs.String())
	}
	if head, _, _ := strings.Cut(out.String(), "\n"); strings.Count(head, "seed 42") != 1 {
		t.Error(head)
	}
}
