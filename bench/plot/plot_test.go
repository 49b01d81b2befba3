// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package plot

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTicks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		ticks  func(lo, hi float64) (float64, float64, []float64)
		lo, hi float64
		want   []float64
	}{
		{"round", linearTicks, 0, 10, []float64{0, 2, 4, 6, 8, 10}},
		{"beyond the highest", linearTicks, 0, 64.8, []float64{0, 20, 40, 60, 80}},
		{"below zero", linearTicks, -3, 4, []float64{-4, -2, 0, 2, 4}},
		{"one value", linearTicks, 0, 0, []float64{0, 0.2, 0.4, 0.6, 0.8, 1}},
		{"nearly one value", linearTicks, 1, math.Nextafter(1, 2), []float64{1, 1.0000002, 1.0000004, 1.0000006, 1.0000008, 1.000001}},
		{"two decades", logTicks, 1, 80, []float64{1, 2, 5, 10, 20, 50, 100}},
		{"inside a decade", logTicks, 3, 4, []float64{2, 5}},
		{"four decades", logTicks, 0.02, 300, []float64{0.01, 0.1, 1, 10, 100, 1000}},
		{"one value on a tick", logTicks, 10, 10, []float64{10, 20}},
	} {
		first, last, got := c.ticks(c.lo, c.hi)
		if !cmp.Equal(got, c.want, cmp.Comparer(near)) || first != got[0] || last != got[len(got)-1] {
			t.Errorf("%s: ticks %v from %v to %v, want %v", c.name, got, first, last, c.want)
		}
	}
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(b)) }

func TestScale(t *testing.T) {
	t.Parallel()
	s := newScale(Axis{Log: true}, []float64{1, 100, 0, math.Inf(1), math.NaN()})
	if got := s.at(10); !near(got, 0.5) {
		t.Errorf("10 lies at %v between 1 and 100, want the middle", got)
	}
	if s = newScale(Axis{Log: true}, nil); !(s.min > 0 && s.min < s.max && s.max <= 10) {
		t.Errorf("a logarithmic axis without values goes from %v to %v", s.min, s.max)
	}
	s = newScale(Axis{}, []float64{4})
	if s.min != 0 || s.at(4) != 1 || s.at(40) != 1 || s.at(-1) != 0 {
		t.Errorf("a linear axis goes from %v to %v and puts 4 at %v, 40 at %v and -1 at %v", s.min, s.max, s.at(4), s.at(40), s.at(-1))
	}
}

func TestDistribution(t *testing.T) {
	t.Parallel()
	got := Distribution([]float64{3, 1}, 4) // two of the four values are missing
	if want := []Point{{1, 25}, {3, 50}}; !cmp.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
}

func TestNumber(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{0: "0", 0.0123: "0.0123", 7: "7", 1.235: "1.24", 99.7: "100", 5000: "5000", 10_000: "10k", 250_000: "250k", 2e6: "2M", -12: "-12"} {
		if got := Number(v); got != want {
			t.Errorf("Number(%v) = %q, want %q", v, got, want)
		}
	}
}

// figures returns difficult figures: no values, values that no axis can show, texts with markup.
func figures() []Figure {
	return []Figure{
		Lines{Name: "empty", Title: "empty"}.Figure(),
		Lines{Name: "lines", Title: "a < b & <script>", X: Axis{Log: true, Label: "<x>"}, Marks: true,
			Series: []Series{{Name: `"s"`, Colour: 9, Points: []Point{{0, 1}, {1, math.NaN()}, {2, math.Inf(1)}, {3, 1}}}}}.Figure(),
		Lines{Name: "steps", Steps: true, Series: []Series{{Dashed: true, Points: []Point{{1, 1}, {2, 5}}}}}.Figure(),
		Bars{Name: "none"}.Figure(),
		Bars{Name: "bars", Beside: "a & b", Bars: []Bar{{Name: "<i>", Value: 3, Low: 2, High: 4, Beside: 1, Note: "<n>"}, {}}}.Figure(),
	}
}

func TestFiguresAreWellFormed(t *testing.T) {
	t.Parallel()
	for _, f := range figures() {
		text := f.File()
		d := xml.NewDecoder(strings.NewReader(text))
		for {
			_, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v\n%s", f.Name, err, text)
			}
		}
		for _, bad := range []string{"NaN", "Inf", "<script", "<i>", "<n>"} {
			if strings.Contains(text, bad) {
				t.Errorf("%s contains %s", f.Name, bad)
			}
		}
		if text != f.File() {
			t.Errorf("%s differs between two drawings", f.Name)
		}
	}
}

// A step goes horizontally at the old height, then up.
func TestSteps(t *testing.T) {
	t.Parallel()
	if text := figures()[2].File(); !strings.Contains(text, "M380.0 260.0L696.0 260.0L696.0 36.0") {
		t.Errorf("this step is missing in %s", text)
	}
}

func TestPage(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	p := Page{Title: "a < b", Lead: []string{"<p>"}, Sections: []Section{{Title: "s", Notes: []string{"n"},
		Table: &Table{Head: []string{"h"}, Rows: [][]string{{"<td>"}}}, Figures: figures()}}}
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	if strings.Count(text, "<svg") != len(figures()) || !strings.Contains(text, "<h1>a &lt; b</h1>") || !strings.Contains(text, "<td>&lt;td&gt;</td>") {
		t.Errorf("page:\n%s", text)
	}
	if strings.Contains(text, "src=") || strings.Contains(text, "href=") {
		t.Error("the page needs other files")
	}
}
