// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deps

import (
	"strings"
	"testing"
)

// Each Go file names its copyright holder and licence, except generated files and data.
func TestHeaders(t *testing.T) {
	files := tracked(t, "*.go", "*.sh", "*.mk", "*.c", "Makefile", ".ci/*")
	if len(files) < 500 {
		t.Errorf("%d files", len(files))
	}
	for _, name := range files {
		text := read(t, name)
		head := text[:min(len(text), 300)]
		if !strings.Contains(head, "Copyright (c) The nomad-pal Authors") || !strings.Contains(head, "SPDX-License-Identifier: MPL-2.0") {
			t.Errorf("%s  does not name its licence", name)
		}
	}
}
