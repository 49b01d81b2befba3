// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measured_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/profile"
	"github.com/nomad-pal/nomad-pal/placer/measured"
)

func row(at, gpu, model, key string, app pal.AppClass, time, noise float64) measured.Row {
	return measured.Row{At: at, Sample: profile.Sample{GPU: gpu, Model: model, Key: key, App: app, Time: time, Noise: noise}}
}

func TestRead(t *testing.T) {
	for _, c := range []struct {
		name, text string
		model      string
		want       []measured.Row
	}{
		{"table", "gpu,app,time\n# lab 3\nG1,resnet50,1.5\nG2, resnet50 ,1.6\n", "H200", []measured.Row{
			row("f:3", "G1", "H200", "", "resnet50", 1.5, 0), row("f:4", "G2", "H200", "", "resnet50", 1.6, 0),
		}},
		{"columns in any order", "\ufefftime,key,GPU,model,noise,app\n2,k,G1,M,0.01,A\n", "H200", []measured.Row{
			row("f:2", "G1", "M", "k", "A", 2, 0.01),
		}},
		{"array", "[\n {\"gpu\": \"G1\", \"app\": \"A\", \"time\": 2},\n {\"gpu\": \"G2\", \"app\": \"A\", \"time\": 3, \"model\": \"M\"}\n]", "", []measured.Row{
			row(`f: measurement 1 (GPU "G1")`, "G1", "", "", "A", 2, 0), row(`f: measurement 2 (GPU "G2")`, "G2", "M", "", "A", 3, 0),
		}},
		{"report", `{"format": "nomad-pal/measurement/1", "results": [{"gpu": "G1", "model": "M", "key": "k", "apps": [{"app": "A", "ms": 2, "ci": 0.00196, "windows": []}]}]}`,
			"", []measured.Row{row(`f: measurement 1 (GPU "G1")`, "G1", "M", "k", "A", 2, 0.001)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := measured.Read("f", []byte(c.text), c.model)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, got, cmpopts.EquateApprox(0, 1e-12)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestReadErrors(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "f:1: the file is empty"},
		{"head only", "gpu,app,time\n", "f: the file contains no measurements"},
		{"no time", "gpu,app\nG,A\n", `f:1: the header has no column "time" (gpu, app and time are needed)`},
		{"unknown column", "gpu,app,time,colour\n", `f:1: column "colour" is unknown; the columns are gpu, app, time, model, key, noise, rate`},
		{"column twice", "gpu,app,time,gpu\n", `f:1: column "gpu" occurs twice`},
		{"too few cells", "gpu,app,time\nG1,A,1\nG2,A\n", "f:3: wrong number of fields"},
		{"open quote", "gpu,app,time\n\"G1,A,1\n", "f:2: extraneous or missing \" in quoted-field"},
		{"negative time", "gpu,app,time\nG1,A,1\nG2,A,-1\n", "f:3: time -1 is not a positive number"},
		{"no number", "gpu,app,time\nG1,A,fast\n", `f:2: time "fast" is not a number`},
		{"not finite", "gpu,app,time\nG1,A,inf\n", "f:2: time +Inf is not a positive number"},
		{"noise", "gpu,app,time,noise\nG1,A,1,-0.1\n", "f:2: noise -0.1 is neither 0 nor a positive number"},
		{"no GPU", "gpu,app,time\n,A,1\n", "f:2: no GPU id"},
		{"space in a GPU id", "gpu,app,time\nG 1,A,1\n", `f:2: GPU id "G 1" contains a space, ',', ';' or '='`},
		{"GPU id like a comment", "gpu,app,time\n\"#G1\",A,1\n", `f:2: GPU id "#G1" begins with '#', as a comment does`},
		{"unprintable", "gpu,app,time,model\nG1,A,1,\"M\n1\"\n", `f:2: "M\n1" contains characters that cannot be printed`},
		{"no application", "gpu,app,time\nG1,,1\n", "f:2: no application"},
		{"JSON cut short", "[\n{\"gpu\": \"G1\",", "f:2: unexpected EOF"},
		{"JSON of another kind", "[\n\n{\"gpu\": \"G1\", \"app\": \"A\", \"time\": \"1\"}]", "f:3: cannot unmarshal string into Go struct field Sample.Time of type float64"},
		{"JSON field", "[\n{\"gpu\": \"G1\", \"apps\": \"A\"}]", `f:2: unknown field "apps"`},
		{"JSON time", "[\n{\"gpu\": \"G1\", \"app\": \"A\"}\n]", `f: measurement 1 (GPU "G1"): time 0 is not a positive number`},
		{"JSON, no rows", "[]", "f: the file contains no measurements"},
		{"format", `{"format": "x"}`, `f: format "x" is unknown: want "nomad-pal/measurement/1", "nomad-pal/profile/1", a JSON array, or a table`},
		{"report", `{"format": "nomad-pal/measurement/1", "results": [{"gpu": "G1", "apps": [{"app": "A", "ms": -2}]}]}`,
			`f: measurement 1 (GPU "G1"): time -2 is not a positive number`},
		{"empty report", `{"format": "nomad-pal/measurement/1"}`, "f: the file contains no measurements"},
		{"bad profile", `{"format": "nomad-pal/profile/1"}`, "f: profile: version: 0 is less than 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := measured.Read("f", []byte(c.text), "")
			if err == nil || err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

// TestRoundTrip: ReadCSV reads what WriteCSV writes. A profile built from the times of a profile
// equals that profile.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var samples []profile.Sample
		for i := range rapid.IntRange(1, 12).Draw(t, "gpus") {
			samples = append(samples, profile.Sample{
				GPU: "G" + string(rune('a'+i)), Model: "M, the model", Key: "k/1,2", App: "A",
				Time: rapid.Float64Range(0.1, 10).Draw(t, "time"),
			})
		}
		var b bytes.Buffer
		if err := measured.WriteCSV(&b, samples); err != nil {
			t.Fatal(err)
		}
		rows, err := measured.ReadCSV("f", &b, "")
		if err != nil {
			t.Fatal(err)
		}
		var got []profile.Sample
		for _, r := range rows {
			got = append(got, r.Sample)
		}
		if d := cmp.Diff(samples, got); d != "" {
			t.Fatalf("table (-want +got):\n%s", d)
		}
		p, err := profile.Build(samples, profile.DefaultOptions(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if rows, err = measured.Read("p", p.Encode(), ""); err != nil {
			t.Fatal(err)
		}
		got = got[:0]
		for _, r := range rows {
			got = append(got, r.Sample)
		}
		again, err := profile.Build(got, profile.DefaultOptions(), p)
		if err != nil || again != p {
			t.Fatalf("the profile of a profile's times differs: %v", err)
		}
	})
}

// The original measurements of the PAL paper can be read once a header line names their columns.
func TestPALData(t *testing.T) {
	dir := os.Getenv("PAL_DATA")
	if dir == "" {
		t.Skip("PAL_DATA does not name a directory with the PAL artifact's data")
	}
	data, err := os.ReadFile(filepath.Join(dir, "var_longhorn_resnet.csv"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := measured.Read("var_longhorn_resnet.csv", data, ""); err == nil {
		t.Fatal("a table without the column gpu was read")
	}
	data = bytes.Replace(data, []byte("row,uuid,perf,perf_norm"), []byte("app,gpu,time,noise"), 1)
	rows, err := measured.Read("f", data, "V100")
	if err != nil || len(rows) < 100 {
		t.Fatalf("%d rows: %v", len(rows), err)
	}
}
