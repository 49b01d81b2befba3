// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package request

import (
	"strings"
	"testing"
)

func TestAddressable(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]bool{
		"train": true, "plan": true, "ml/train": true, "a.b": true, "../up": true, "evaluate/planned": true,
		"etl/periodic-1700000000": true, "train/dispatch-1700000000-1a2b": true,
		strings.Repeat("x", 1000): true, strings.Repeat("x", 1001): false,
		".": false, "..": false, "evaluate/plan": false, "ml/evaluate": false, "a/b/versions": false, "x/periodic/force": false,
	} {
		if err := Addressable(id); (err == nil) != want {
			t.Errorf("%.50s: %v", id, err)
		}
	}
}
