// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/pal/profile"
)

func TestMergeSamples(t *testing.T) {
	published := []profile.Sample{
		{GPU: "G1", Model: "M", Key: "k", App: "A", Time: 1},
		{GPU: "G1", Model: "M", Key: "k", App: "B", Time: 2},
		{GPU: "G2", Model: "M", Key: "k", App: "A", Time: 3},
	}
	imported := []profile.Sample{
		{GPU: "G1", Key: "own", App: "A", Time: 7},
		{GPU: "G1", Key: "own", App: "A", Time: 8},
		{GPU: "G9", Model: "other", Key: "own", App: "A", Time: 9},
	}
	want := []profile.Sample{
		{GPU: "G1", Model: "M", Key: "k", App: "B", Time: 2},
		{GPU: "G2", Model: "M", Key: "k", App: "A", Time: 3},
		{GPU: "G1", Model: "M", Key: "own", App: "A", Time: 7},
		{GPU: "G1", Model: "M", Key: "own", App: "A", Time: 8},
		{GPU: "G9", Model: "other", Key: "own", App: "A", Time: 9},
	}
	if d := cmp.Diff(want, MergeSamples(published, imported, map[string]string{"G1": "M", "G2": "M"})); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
