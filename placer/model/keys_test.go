// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"strings"
	"testing"
)

// If a key takes one of several names, the reference describes each name.
func TestKeysNameTheirValues(t *testing.T) {
	t.Parallel()
	named := 0
	for _, k := range Keys() {
		if k.text == nil {
			continue
		}
		err := k.Set(&Config{}, "nonsense")
		if err == nil {
			t.Errorf("%s accepts a value that does not exist", k.Path())
			continue
		}
		_, names, _ := strings.Cut(err.Error(), "it must be one of ")
		for name := range strings.SplitSeq(names, ", ") {
			if named++; len(name) > 1 && !strings.Contains(k.Doc, name+"`") && !strings.Contains(k.Doc, name+"\"`") {
				t.Errorf("the documentation of %s does not name %q", k.Path(), name)
			}
		}
	}
	if named < 10 {
		t.Errorf("found only %d names", named)
	}
}
