// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gpu

import "testing"

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"NVIDIA H200": "NVIDIA H200", "NVIDIA \xff\x01": "NVIDIA ??", "": "", "a\u202eb": "a?b", "a\u00a0b": "a?b",
	} {
		if got := Printable(in); got != want {
			t.Errorf("Printable(%q) is %q, want %q", in, got, want)
		}
	}
}
