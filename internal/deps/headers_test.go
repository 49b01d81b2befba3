// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deps

import (
	"strings"
	"testing"
)

// Each file of code says whose it is, and under which licence: not so generated ones,
// and data.
func TestHeaders(t *testing.T) {
	files := tracked(t, "*.go", "*.sh", "*.mk", "*.c", "Makefile", ".ci/*")
	if len(files) < 500 {
		t.Errorf("%d files", len(files))
	}
	for _, name := range files {
		text := read(t, name)
		head := text[:min(len(text), 300)]
		if !strings.Contains(head, "Copyright (c) The nomad-pal Authors") || !strings.Contains(head, "SPDX-License-Identifier: MPL-2.0") {
			t.Errorf("%s says nothing of its licence", name)
		}
	}
}
