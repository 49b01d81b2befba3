// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"slices"
	"testing"
)

// Addresses are in the order of members, because the first member is usually the rendezvous. Nomad
// lists allocations in any order.
func TestAddressesByMember(t *testing.T) {
	got := byMember([]address{{"w", 10, "w10"}, {"w", 2, "w2"}, {"ps", 1, "ps1"}, {"w", 0, "w0"}, {"w", 2, "w2, canary"}})
	if want := []string{"ps1", "w0", "w2", "w2, canary", "w10"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
