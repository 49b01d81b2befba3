// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package profile

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
)

func TestParseErrors(t *testing.T) {
	good := string(mustBuild(t, fleet(twenty()...), DefaultOptions(), nil).Encode())
	for _, tc := range []struct{ name, old, new, want string }{
		{"not JSON", good, "GPU-1 1.0\n", "profile: byte"},
		{"cut off", good[300:], "", "unexpected EOF"},
		{"two profiles", good, good + good, "more data after the profile"},
		{"format", Format, "nomad-pal/profile/9", `format is "nomad-pal/profile/9"`},
		{"version", `"version": 1`, `"version": 0`, "version: 0 is less than 1"},
		{"options", `"hysteresis": 0.005`, `"hysteresis": 2`, "options: hysteresis: 2"},
		{"reference", `"reference": 2.005`, `"reference": -1`, `group 1 (model "NVIDIA H200", app "A", key "k"): reference -1`},
		{"class", `"class": 4`, `"class": 9`, `gpu "GPU-16": app "A": class 9 is not in 1…5`},
		{"order", `"GPU-07"`, `"GPU-99"`, `gpu 9 ("GPU-08") has no id, is out of order`},
		{"group gone", `"key": "k",
     "time"`, `"key": "z",
     "time"`, `gpu "GPU-00": app "A": no group for model "NVIDIA H200", key "z"`},
	} {
		bad := strings.Replace(good, tc.old, tc.new, 1)
		if bad == good {
			t.Fatalf("%s: %q is not in\n%s", tc.name, tc.old, good)
		}
		if _, err := Parse([]byte(bad)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q", tc.name, err, tc.want)
		}
	}
}

// A later version may add fields. An older reader must still accept the profile.
func TestParseIgnoresUnknownFields(t *testing.T) {
	good := string(mustBuild(t, fleet(twenty()...), DefaultOptions(), nil).Encode())
	if _, err := Parse([]byte(strings.Replace(good, `"format"`, `"colour": "blue", "format"`, 1))); err != nil {
		t.Error(err)
	}
}

func TestShards(t *testing.T) {
	s := fleet(twenty()...)
	for i := range s {
		s[i].Model = "Grafikkarte für Büro"
	}
	p := mustBuild(t, s, DefaultOptions(), nil)
	for _, max := range []int{257, 300, 301, 302, 1000, 60 << 10} {
		shards, err := p.Shards(max)
		if err != nil {
			t.Fatal(err)
		}
		for _, sh := range shards {
			size := 0
			for k, v := range sh {
				size += len(k) + len(v)
			}
			if limit := max; limit > 300 && size > limit {
				t.Errorf("a shard of %d bytes, at most %d allowed", size, limit)
			}
		}
		if q, err := Join(shards); err != nil || string(q.Encode()) != string(p.Encode()) {
			t.Errorf("shards of %d do not restore the profile: %v", max, err)
		}
	}
	if shards, err := p.Shards(60 << 10); err != nil || len(shards) != 1 || len(shards[0]["data"]) > len(p.Encode())/4 {
		t.Errorf("%d shards of %d bytes of JSON, not compressed: %v", len(shards), len(p.Encode()), err)
	}
}

func TestJoinErrors(t *testing.T) {
	p := mustBuild(t, fleet(twenty()...), DefaultOptions(), nil)
	q := mustBuild(t, fleet(append(twenty(), 3)...), DefaultOptions(), p)
	ps, _ := p.Shards(500)
	qs, _ := q.Shards(500)
	broken := Shard{}
	maps.Copy(broken, ps[1])
	broken["data"] = strings.Replace(broken["data"], broken["data"][:1], "?", 1)
	for _, tc := range []struct {
		name   string
		shards []Shard
		want   string
	}{
		{"none", nil, "no shards"},
		{"one missing", ps[1:], fmt.Sprintf("profile version 1: %d of %d shards", len(ps)-1, len(ps))},
		{"twice the same", append([]Shard{ps[1]}, ps[1:]...), "out of range or appears twice"},
		{"mixed versions", append([]Shard{qs[0]}, ps[1:]...), "mixed"},
		{"changed", append([]Shard{ps[0], broken}, ps[2:]...), "checksum is wrong"},
	} {
		if tc.name == "mixed versions" {
			for i := range tc.shards {
				tc.shards[i]["of"] = ps[0]["of"]
			}
			tc.shards[0]["of"] = ps[0]["of"]
		}
		if _, err := Join(tc.shards); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q", tc.name, err, tc.want)
		}
	}
}

func TestDiffTellsWhatPeopleShouldSee(t *testing.T) {
	old := mustBuild(t, fleet(twenty()...), DefaultOptions(), nil)
	times := append(twenty(), 2)[1:] // each GPU gets the next one's time, and GPU-19 gets 2.0
	times[3] = 7
	cur := mustBuild(t, fleet(times[:19]...), DefaultOptions(), old)
	var lines []string
	for _, e := range Diff(old, cur) {
		lines = append(lines, e.String())
	}
	want := []string{
		"GPU GPU-03 (NVIDIA H200), application A: outlier, PM score 3.474, class 5",
		"GPU GPU-19 (NVIDIA H200), application A: no longer measured, previously class 4",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got := Diff(cur, cur); got != nil {
		t.Errorf("no change gives %v", got)
	}
	if got := len(Diff(nil, old)); got != 20 {
		t.Errorf("the first profile gives %d events, want 20 added", got)
	}
}

func TestSamplesOfPublishedValues(t *testing.T) {
	ms, err := attr.ParseMeasurements("GPU-1 key=k A=1.5 B=2;GPU-2 key=k A=1.6")
	if err != nil {
		t.Fatal(err)
	}
	want := []Sample{
		{GPU: "GPU-1", Model: model, Key: "k", App: pal.ClassA, Time: 1.5},
		{GPU: "GPU-1", Model: model, Key: "k", App: pal.ClassB, Time: 2},
		{GPU: "GPU-2", Model: model, Key: "k", App: pal.ClassA, Time: 1.6},
	}
	if diff := cmp.Diff(want, SamplesOf(model, ms)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
