// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package rewrite_test

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// docs/reference/hints.md has a row for each hint, and for no other. The error on an
// unknown hint lists those that there are.
func TestHintsReference(t *testing.T) {
	_, err := rewrite.ParseHints(&api.Job{Meta: map[string]string{"pal_nonsense": "1"}})
	if err == nil {
		t.Fatal("pal_nonsense is a hint")
	}
	var known, documented []string
	for _, name := range regexp.MustCompile(`pal_\w+`).FindAllString(err.Error(), -1) {
		if name != "pal_nonsense" {
			known = append(known, name)
		}
	}
	page, err := os.ReadFile("../../docs/reference/hints.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `(pal_\\w+)` \\|").FindAllStringSubmatch(string(page), -1) {
		documented = append(documented, m[1])
	}
	slices.Sort(known)
	slices.Sort(documented)
	if d := cmp.Diff(known, documented); d != "" {
		t.Errorf("hints (-) and rows of the page (+):\n%s", d)
	}
	if len(known) < 10 {
		t.Errorf("found %d hints only", len(known))
	}
}
