// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/bench/plot"
)

func TestInvocation(t *testing.T) {
	t.Parallel()
	got := invocation("replay", []string{"-nomad", "/n", "--json=/x", "-seed", "3", "-bin", "b", "-extra=false", "-profiles", "/p"})
	if want := []string{"replay", "-seed", "3", "-extra=false"}; !cmp.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
}

// A result file is written completely, or keeps its old content.
func TestWriteAndRead(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"r.json", "r.json.gz"} {
		t.Run(name, func(t *testing.T) { writeAndRead(t, filepath.Join(t.TempDir(), "new", name)) })
	}
}

func writeAndRead(t *testing.T, path string) {
	for _, text := range []string{`{"commit":"a"}`, `{"commit":"b"}`} {
		if err := Write(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	var got Provenance
	if err := Read(path, &got); err != nil || got.Commit != "b" {
		t.Errorf("%+v, %v", got, err)
	}
	if files, err := os.ReadDir(filepath.Dir(path)); err != nil || len(files) != 1 {
		t.Errorf("other files in the folder: %v, %v", files, err)
	}
	if err := Write(path, []byte("{")); err != nil {
		t.Fatal(err)
	}
	if err := Read(path, &got); err == nil {
		t.Error("a truncated file can be read")
	}
	if err := Read(path+"-none", &got); !os.IsNotExist(err) {
		t.Errorf("a missing file: %v", err)
	}
}

// Print writes the lead and the tables of a page.
func TestPrint(t *testing.T) {
	t.Parallel()
	p := plot.Page{Lead: []string{"What it is."}, Sections: []plot.Section{
		{Title: "Drawn", Figures: []plot.Figure{{Name: "a"}}},
		{Title: "Rates", Table: &plot.Table{Head: []string{"nodes", "rate"}, Rows: [][]string{{"100", "3.5"}}}},
	}}
	var b strings.Builder
	Print(&b, p)
	if want := "What it is.\n\nRates\nnodes  rate\n100    3.5\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}
