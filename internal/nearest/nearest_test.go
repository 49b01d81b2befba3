// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nearest

import "testing"

func TestName(t *testing.T) {
	t.Parallel()
	names := []string{"pal_after", "pal_class", "pal_duration"}
	for name, want := range map[string]string{"pal_clas": "pal_class", "pal_dur": "pal_duration", "pal_klass": "pal_class", "PAL_Clas": "pal_class", "duration": "pal_duration", "pal_x": "", "": ""} {
		if got := Name(name, names); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
	if got := Name("pal_begin", []string{"pal_pin", "pal_class"}); got != "" {
		t.Errorf("alike only in the prefix that all names have: %q", got)
	}
	if got := Name("trian", []string{"sweep", "train"}); got != "train" {
		t.Errorf("two letters swapped: %q", got)
	}
	if got := Name("pal_migration", []string{"pal_duration", "pal_migrate"}); got != "pal_migrate" {
		t.Errorf("as near as another, and begins as it: %q", got)
	}
	if got := Name("n", []string{"json", "t"}); got != "" {
		t.Errorf("of which no letter is left: %q", got)
	}
	if got := Question("TRIAN", []string{"Train"}); got != ` (did you mean "Train"?)` {
		t.Errorf("the question: %q", got)
	}
	if got := Name("x", nil) + Question("x", nil); got != "" {
		t.Errorf("of none: %q", got)
	}
}
