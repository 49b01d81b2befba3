// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/pal/profile"
	"github.com/nomad-pal/nomad-pal/placer/measured"
)

func TestShardRows(t *testing.T) {
	var samples []profile.Sample
	for i := range 3000 {
		samples = append(samples, profile.Sample{GPU: fmt.Sprintf("GPU-%036d", i), App: "resnet50", Model: "NVIDIA H200", Key: "k", Time: 1})
	}
	shards, err := shardRows(samples)
	if err != nil {
		t.Fatal(err)
	}
	if len(shards) < 2 {
		t.Fatalf("%d shards, want several", len(shards))
	}
	var got []profile.Sample
	for i, s := range shards {
		if len(s) > profile.ShardBytes {
			t.Errorf("shard %d takes %d bytes", i, len(s))
		}
		rows, err := measured.ReadCSV("shard", strings.NewReader(s), measured.Defaults{})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			got = append(got, r.Sample)
		}
	}
	if d := cmp.Diff(samples, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if shards, err := shardRows(nil); err != nil || shards != nil {
		t.Errorf("no samples: %v, %v", shards, err)
	}
}

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

func TestCheckSource(t *testing.T) {
	if err := CheckSource("lab-3_b"); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"", "a/b", "a b", "../x", strings.Repeat("x", 65)} {
		if err := CheckSource(bad); err == nil {
			t.Errorf("source %q is accepted", bad)
		}
	}
}
