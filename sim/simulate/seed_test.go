// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package simulate

import (
	"bytes"
	"strings"
	"testing"
)

// The seed stands once in the head of a report: a generated trace has it in its name.
func TestSeedIsSaidOnce(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	if code := Run([]string{"-jobs", "5", "-nodes", "4"}, &out, &errs, nil); code != 0 {
		t.Fatal(errs.String())
	}
	if head, _, _ := strings.Cut(out.String(), "\n"); strings.Count(head, "seed 42") != 1 {
		t.Error(head)
	}
}
