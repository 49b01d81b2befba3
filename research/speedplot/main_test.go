// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"encoding/xml"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const output = `goos: linux
BenchmarkJobs/jobs=100000/gpus=10000-2    1    5800000000 ns/op    0.27 utilisation    58.0 µs/job
BenchmarkJobs/jobs=10000/gpus=10000-2     1     700000000 ns/op    0.04 utilisation    70.5 µs/job
BenchmarkJobs/jobs=10000/gpus=1000-2      1     700000000 ns/op    0.43 utilisation    40.0 µs/job
BenchmarkFaithful-2    3    32309698 ns/op
`

func TestRead(t *testing.T) {
	got, err := read(strings.NewReader(output))
	if err != nil {
		t.Fatal(err)
	}
	want := []point{{10000, 1000, 40}, {10000, 10000, 70.5}, {100000, 10000, 58}}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(point{})); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if _, err := read(strings.NewReader("PASS\n")); err == nil {
		t.Error("no benchmark lines should be an error")
	}
}

func TestDraw(t *testing.T) {
	points, err := read(strings.NewReader(output))
	if err != nil {
		t.Fatal(err)
	}
	svg := draw(points)
	d := xml.NewDecoder(strings.NewReader(svg))
	circles := 0
	for {
		tok, err := d.Token()
		if tok == nil {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := tok.(xml.StartElement); ok && e.Name.Local == "circle" {
			circles++
		}
	}
	if circles != len(points) {
		t.Errorf("%d points drawn, want %d", circles, len(points))
	}
}
