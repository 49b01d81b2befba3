// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package attr

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/nomad-pal/nomad-pal/pal"
)

// Attributes read back as they were published, in any order.
func TestMeasurementsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var ms []Measurement
		for i := range rapid.IntRange(0, 4).Draw(t, "gpus") {
			m := Measurement{GPU: fmt.Sprintf("GPU-%d", i), Key: rapid.StringMatching(`[a-z0-9/.]{0,9}`).Draw(t, "key"), Times: map[pal.AppClass]float64{}}
			for _, c := range rapid.SliceOfDistinct(rapid.SampledFrom(pal.AppClasses()), rapid.ID[pal.AppClass]).Draw(t, "classes") {
				m.Times[c] = float64(rapid.IntRange(1, 999999).Draw(t, "time")) / 1000
			}
			ms = append(ms, m)
		}
		text := FormatMeasurements(ms)
		got, err := ParseMeasurements(text)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(ms, got); diff != "" {
			t.Fatal(diff)
		}
		for i, j := 0, len(ms)-1; i < j; i, j = i+1, j-1 {
			ms[i], ms[j] = ms[j], ms[i]
		}
		if FormatMeasurements(ms) != text {
			t.Fatal("the text depends on the order of measurements")
		}
	})
}

// The error for a bad text names the entry and the field.
func TestBadMeasurements(t *testing.T) {
	for text, want := range map[string]string{
		"GPU-1 A=1;;GPU-2 A=1": "no GPU id",
		"GPU-1 A":              `field "A" has no '='`,
		"GPU-1 A=0":            `field "A=0" is not a positive number`,
		"GPU-1 A=-1":           "not a positive number",
		"GPU-1 A=NaN":          "not a positive number",
		"GPU-1 A=+Inf":         "not a positive number",
		"GPU-1 A=fast":         "not a positive number",
		"GPU-1 A=1e308":        "1e+308 is not between",
		"GPU-1 A=1e-300":       "1e-300 is not between",
		"GPU-1 " + strings.Repeat("x", MaxName+1) + "=1":       "has 257 bytes, more than 256",
		"GPU-1 key=" + strings.Repeat("x", MaxName+1) + " A=1": "has 257 bytes, more than 256",
		strings.Repeat("GPU-1 A=1;", MaxGPUs) + "GPU-2 A=1":    "there are 257 measurements, but a node has at most 256 GPUs",
		"GPU-1" + manyApps(MaxApplications+1):                  "17 applications, more than 16",
		"GPU-1 A=1" + strings.Repeat(" ", 1<<20):               "bytes, but at most",
	} {
		if _, err := ParseMeasurements(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80q: %v, want %q", text, err, want)
		}
	}
}

func manyApps(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, " app%d=1", i)
	}
	return b.String()
}

func FuzzParseMeasurements(f *testing.F) {
	f.Add("GPU-1 key=k A=1.5 B=2;GPU-2 A=3")
	f.Add("")
	f.Add("GPU-1 A=1e308;GPU-2 A=1e-308")
	f.Add("GPU-1 A=1e12 =1 key= B=0x1p-3")
	f.Fuzz(func(t *testing.T, s string) {
		ms, err := ParseMeasurements(s)
		if err != nil {
			return
		}
		for _, m := range ms {
			for app, v := range m.Times {
				if err := CheckValue(v); err != nil {
					t.Fatalf("%q of %q: %v", app, m.GPU, err)
				}
			}
		}
		again, err := ParseMeasurements(FormatMeasurements(ms))
		if err != nil || len(again) != len(ms) {
			t.Fatalf("%q parses, its canonical form does not: %v", s, err)
		}
	})
}

// Jobs name these attributes in constraints, so the names must not change.
func TestNames(t *testing.T) {
	got := []string{List(pal.ClassA, 2), ListCount(pal.ClassA, 2), NUMA(1), NUMACount(1), Island(0), IslandCount(0)}
	want := []string{
		"unique.variability_a_le_2", "variability_a_le_2_count",
		"unique.numa_1", "numa_1_count", "unique.nvlink_island_0", "nvlink_island_0_count",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestIDs(t *testing.T) {
	for _, ids := range [][]string{nil, {"a"}, {"a", "b"}} {
		if diff := cmp.Diff(ids, SplitIDs(JoinIDs(ids))); diff != "" {
			t.Error(diff)
		}
	}
}

// A prefix of a GPU's id selects all of its parts; with a part number it selects that part.
func TestShortIDs(t *testing.T) {
	for _, c := range []struct {
		id, beginning string
		begins        bool
	}{
		{"GPU-8d3f", "GPU-8d", true},
		{"GPU-8d3f", "GPU-8d3f", true},
		{"GPU-8d3f", "GPU-9", false},
		{"GPU-8d3f", "GPU-8d::1", false},
		{"GPU-8d3f::1", "GPU-8d", true},
		{"GPU-8d3f::1", "GPU-8d::1", true},
		{"GPU-8d3f::1", "GPU-8d::", false},
		{"GPU-8d3f::12", "GPU-8d::1", false},
		{"GPU-8d3f::1", "GPU-9::1", false},
	} {
		if got := Begins(c.id, c.beginning); got != c.begins {
			t.Errorf("%s begins with %s: %v", c.id, c.beginning, got)
		}
	}
	for id, want := range map[string]string{"GPU-8d3f": "GPU-8", "GPU-8d3f::12": "GPU-8::12", "GPU": "GPU", "G::1": "G::1"} {
		if got := Shorten(id, len("GPU-8")); got != want {
			t.Errorf("%s shortened: %s, want %s", id, got, want)
		}
	}
}
