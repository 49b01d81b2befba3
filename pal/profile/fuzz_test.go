// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package profile

import (
	"bytes"
	"testing"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
)

func fuzzProfile(f *testing.F) *Profile {
	f.Helper()
	var samples []Sample
	for i, x := range []float64{1, 1.01, 0.98, 1.3, 3} {
		samples = append(samples, Sample{GPU: string(rune('a' + i)), Model: "m", Key: "k", App: "A", Time: x})
	}
	p, err := Build(samples, DefaultOptions(), nil)
	if err != nil {
		f.Fatal(err)
	}
	return p
}

// A profile that parses supports all operations: Lookup, Score, Build of a next version, Shards
// and Join.
func FuzzParse(f *testing.F) {
	p := fuzzProfile(f)
	f.Add(p.Encode())
	f.Add([]byte(`{"format": "nomad-pal/profile/1", "version": 1, "options": {"method": "edges", "edges": [1], "outlier": 2, "min_gpus": 1}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		q, err := Parse(data)
		if err != nil {
			return
		}
		again, err := Parse(q.Encode())
		if err != nil || !bytes.Equal(again.Encode(), q.Encode()) {
			t.Fatalf("it parses, but its encoded form does not: %v", err)
		}
		for _, g := range q.GPUs {
			for _, e := range g.Entries {
				q.Score(g.Model, attr.Measurement{GPU: g.ID, Key: e.Key, Times: map[pal.AppClass]float64{e.App: 1.5}})
			}
			q.Lookup(g.ID, "A")
		}
		Diff(p, q)
		shards, err := q.Shards(60 << 10)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Join(shards); err != nil {
			t.Fatal(err)
		}
	})
}

// Join does not panic, whatever the variables hold.
func FuzzJoin(f *testing.F) {
	shards, err := fuzzProfile(f).Shards(600)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(shards[0]["of"], shards[0]["sha256"], shards[0]["shard"], shards[0]["data"], shards[1]["shard"], shards[1]["data"])
	f.Add("1", "", "0", "", "0", "H4sI")
	f.Add("-1", "x", "9223372036854775807", "", "", "")
	f.Fuzz(func(t *testing.T, of, sum, i, data, k, more string) {
		one := Shard{"version": "1", "of": of, "sha256": sum, "shard": i, "data": data}
		_, _ = Join([]Shard{one})
		_, _ = Join([]Shard{one, {"version": "1", "of": of, "sha256": sum, "shard": k, "data": more}})
		_, _ = unpack(data + more)
	})
}

// Whatever nodes publish, Build accepts the samples that Consistent keeps, and the profile can be
// stored and read back.
func FuzzSamples(f *testing.F) {
	f.Add("a key=k A=1 B=2;b key=k A=1.1", "b key=k A=1;c A=1e12;d A=1e-12")
	f.Add("a A=1e308;a A=1", "b A=0.5;c A=1e9;d A=1e3")
	f.Fuzz(func(t *testing.T, one, two string) {
		var samples []Sample
		for model, text := range map[string]string{"m": one, "n": two} {
			if ms, err := attr.ParseMeasurements(text); err == nil {
				samples = append(samples, SamplesOf(model, ms)...)
			}
		}
		kept, _ := Consistent(samples)
		p, err := Build(kept, DefaultOptions(), nil)
		if err != nil {
			t.Fatalf("Build refuses what Consistent keeps: %v", err)
		}
		shards, err := p.Shards(60 << 10)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Join(shards); err != nil {
			t.Fatal(err)
		}
	})
}
