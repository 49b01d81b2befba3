// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nomad-pal/nomad-pal/sim"
)

// The bench of users runs the requested regimes, also on generated workloads. It compares with
// the regime without estimates, and with earlier results.
func TestUsers(t *testing.T) {
	t.Setenv("PAL_DATA", madeUp(t))
	dir := t.TempDir()
	o := options{json: filepath.Join(dir, "u.json"), tables: filepath.Join(dir, "u.md"), workers: 2, ofUsers: true}
	if err := o.compile("small$", "^no estimates|^exact|^half may be stopped$"); err != nil {
		t.Fatal(err)
	}
	for i, against := range []string{"", o.json} {
		o.against, o.of = against, " under the same queue"
		if err := o.users(); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(o.tables)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), "NaN") || strings.Count(string(b), "| no estimates | 3 | 1.000 | 1.00 |") != 1+i {
			t.Errorf("the tables:\n%s", b)
		}
		if got := strings.Count(string(b), "| exact estimates | 3 |"); got != 1+i || strings.Contains(string(b), "itself under the same queue") != (i > 0) {
			t.Errorf("exact estimates are in %d tables:\n%s", got, b)
		}
	}
	text, err := os.ReadFile(o.json)
	if err != nil {
		t.Fatal(err)
	}
	var fs []felt
	if err := json.Unmarshal(text, &fs); err != nil {
		t.Fatal(err)
	}
	for _, f := range fs {
		if f.Part != reported || f.AvgJCT <= 0 || f.P99 < 0.5 || f.MostStops > 0 && f.Regime != stopHalf {
			t.Errorf("%+v", f)
		}
	}
	if len(fs) != 9 {
		t.Errorf("%d results, want 3 loads × 3", len(fs))
	}
	o.against = o.tables
	if err := o.users(); err == nil {
		t.Error("tables contain no results")
	}
}

// The CSV file has all tables of a page, and the page has those of the half with which no rules
// were chosen.
func TestPageWithCells(t *testing.T) {
	table := func(n string) string {
		return "| | cells | worst |\n|---|---|---|\n| no estimates | 36 | " + n + " |\n\n"
	}
	page := "# Title\n\n## First\n\nText.\n\n" + halves[0] + ":\n\n" + table("1, 2") + halves[1] + ":\n\n" + table("3")
	got, err := cellsOfTables([]byte(page))
	want := "section,half,regime,column,value\n" +
		"First," + halves[0] + ",no estimates,cells,36\nFirst," + halves[0] + `,no estimates,worst,"1, 2"` +
		"\nFirst," + halves[1] + ",no estimates,cells,36\nFirst," + halves[1] + ",no estimates,worst,3\n"
	if err != nil || string(got) != want {
		t.Errorf("%v:\n%s", err, got)
	}
	if got, want := string(withoutChosen([]byte(page))), "# Title\n\n## First\n\nText.\n\n"+halves[1]+":\n\n"+table("3"); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	alone := strings.Split(page, halves[1])[0]
	if got := string(withoutChosen([]byte(alone))); got != alone {
		t.Errorf("a page with only one half became:\n%s", got)
	}
}

// The figures of a cell, compared with results computed by hand.
func TestFelt(t *testing.T) {
	var f felt
	f.measure(sim.Outcome{LostGPUh: 1, Jobs: []sim.JobResult{
		{GPUs: 8, WorkS: 100, Submit: 0, Finish: 300, Wait: 200, HeldS: 3600, Runs: 3},
		{GPUs: 1, WorkS: 100, Submit: 0, Finish: 100, HeldS: 3600, Runs: 1},
		{GPUs: 1, WorkS: 100, Submit: 0, Finish: -1},
	}})
	if f.AvgJCT != 200 || f.P99 != 3 || f.WideWorst != 200 || f.MostStops != 2 || f.Lost != round(1./9) || f.Makespan != 300 {
		t.Errorf("%+v", f)
	}
}

// Each job is compared with itself. In the first cell, jobs with estimates take two thirds of the
// time that the same jobs take without, although in the first run the jobs without estimates take
// less.
func TestEachJobOverItself(t *testing.T) {
	fs := []felt{
		{Trace: "t", Part: reported, Regime: honest, Half: 200, Others: 100},
		{Trace: "t", Part: reported, Regime: honestOther, Half: 500, Others: 200},
		{Trace: "u", Part: reported, Regime: honest, Half: 100, Others: 100},
		{Trace: "u", Part: reported, Regime: honestOther, Half: 100, Others: 104},
	}
	var b bytes.Buffer
	sidesTables(&b, fs)
	if want := "| each job, relative to itself | 2 | 0.825 | 1.02 | 1 |"; !strings.Contains(b.String(), want) {
		t.Errorf("no line %q in\n%s", want, b.String())
	}
}
