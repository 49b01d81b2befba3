// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/query"
)

// Addresses are in the order of members, because the first member is usually the rendezvous. Nomad
// lists allocations in any order.
func TestAddressesByMember(t *testing.T) {
	got := byMember([]address{{"w", 10, "w10"}, {"w", 2, "w2"}, {"ps", 1, "ps1"}, {"w", 0, "w0"}, {"w", 2, "w2, canary"}})
	if want := []string{"ps1", "w0", "w2", "w2, canary", "w10"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// The glossary ends the explanation of a job. Addresses come before the next steps.
func TestAddressesBeforeNextSteps(t *testing.T) {
	var out bytes.Buffer
	b := &base{io: streams{out: &out}}
	e := &query.Explanation{Job: "j", State: gang.Waiting, Submitted: time.Now(), Ask: "Do this."}
	printExplanation(b, e, func() { b.section("Addresses", []string{row("Member"), row("w[0]")}) })
	if text := out.String(); strings.Index(text, "Addresses") > strings.Index(text, "Do this.") {
		t.Error(text)
	}
}
