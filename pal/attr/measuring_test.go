// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package attr

import (
	"maps"
	"testing"
)

// Accounts of measurements read back as written, even an empty list; anything else is an error.
func TestAccounts(t *testing.T) {
	for _, of := range []map[string]Account{nil, {}, {"GPU-a": {Last: "2026-11-27T08:00:00Z", Provisional: true}, "GPU-b": {Unable: "no kernel"}}} {
		got, err := ParseAccounts(FormatAccounts(of))
		if err != nil || !maps.Equal(got, of) {
			t.Errorf("%v: %v, %v", of, got, err)
		}
	}
	for _, text := range []string{"x", "[]", `{"GPU-a": 1}`} {
		if got, err := ParseAccounts(text); err == nil {
			t.Errorf("%q: %v and no error", text, got)
		}
	}
}
