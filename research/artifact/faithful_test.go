// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package artifact

import (
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/bench/workload"
	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/research/pyrandom"
	"github.com/nomad-pal/nomad-pal/sim"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// artifactNames has the artifact's own names of its policies.
var artifactNames = map[string]string{
	"PAL": "pal", "PMFirst": "pm-first",
	"Default-Packed-S": "packed-sticky", "Default-Packed-NS": "packed-nonsticky",
	"Default-Random-S": "random-sticky", "Default-Random-NS": "random-nonsticky",
}

func palData(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("PAL_DATA")
	if dir == "" {
		t.Skip("PAL_DATA is not set: parity with the artifact's own results is not checked")
	}
	return dir
}

// csvRows reads a CSV file as maps from column to value.
func csvRows(t testing.TB, path string) []map[string]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var rows []map[string]string
	for _, r := range all[1:] {
		m := map[string]string{}
		for i, c := range all[0] {
			m[c] = r[i]
		}
		rows = append(rows, m)
	}
	return rows
}

func longhorn(t testing.TB, dir string) Rows {
	t.Helper()
	rows, err := Longhorn(dir).Read()
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func TestParityOfPopulation(t *testing.T) {
	dir := palData(t)
	p, _, err := DrawRows(16, 4, longhorn(t, dir), 42)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Cluster(p, pal.TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range csvRows(t, filepath.Join(dir, "gpus_64_seed42.csv")) {
		for k, class := range pal.AppClasses() {
			want := r["class"+string(class)]
			if got := strconv.FormatFloat(float64(p.Scores[i][k]), 'g', -1, 64); got != want {
				t.Errorf("GPU %d class %s: score %s, want %s", i, class, got, want)
			}
			sf, _ := strconv.ParseFloat(r["sf"+string(class)], 64)
			if got := float64(c.GPU(i).Binned[k]); got-sf > 1e-9 || sf-got > 1e-9 {
				t.Errorf("GPU %d class %s: bin %v, want %v", i, class, got, sf)
			}
		}
	}
}

// run is one configuration of the artifact for one workload.
type run struct {
	workload, policy, order string
}

func (r run) String() string { return r.workload + "/" + r.policy + "/" + r.order }

// runArtifact runs the simulator as the artifact's Sia script does.
func runArtifact(t testing.TB, rows Rows, dir string, r run, onEvent func(Event)) Result {
	t.Helper()
	tr, err := workload.ReadSia(filepath.Join(dir, "sia_workload_"+r.workload+".csv"))
	if err != nil {
		t.Fatal(err)
	}
	p, scores, err := DrawRows(16, 4, rows, 42)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Cluster(p, pal.TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	res, err := Run{Jobs: tr.Jobs, Cluster: c, Policy: artifactNames[r.policy], Order: strings.ToLower(r.order),
		RoundS: 360, LoadPerH: 2, Fillers: true, Scores: scores, Arrivals: pyrandom.New(1), OnEvent: onEvent}.Run()
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func TestParityOfJobs(t *testing.T) {
	dir := palData(t)
	rows := longhorn(t, dir)
	want := map[run][]string{}
	for _, r := range csvRows(t, filepath.Join(dir, "golden", "sia_jobs.csv")) {
		k := run{r["workload"], r["policy"], r["scheduler"]}
		want[k] = append(want[k], fmt.Sprintf("job %s start %s finish %s wait %s", r["job_id"], r["first_start_s"], r["finish_s"], r["wait_s"]))
	}
	if len(want) < 24 {
		t.Fatalf("only %d runs in the golden file", len(want))
	}
	for k, w := range want {
		t.Run(k.String(), func(t *testing.T) {
			var got []string
			for _, j := range runArtifact(t, rows, dir, k, nil).Jobs {
				got = append(got, fmt.Sprintf("job %s start %.0f finish %.0f wait %.1f", j.ID, j.Start, j.Finish, j.Wait))
			}
			if d := cmp.Diff(w, got); d != "" {
				t.Errorf("jobs (-artifact +ours):\n%s", d)
			}
		})
	}
}

func TestParityOfEvents(t *testing.T) {
	dir := palData(t)
	rows := longhorn(t, dir)
	for _, w := range []string{"1", "2", "3", "4"} {
		want := map[run][]string{}
		for _, r := range csvRows(t, filepath.Join(dir, "golden", "sia_events_w"+w+".csv")) {
			k := run{w, r["policy"], r["scheduler"]}
			want[k] = append(want[k], strings.Join([]string{r["time_s"], r["job_id"], r["event"], r["gpus"]}, ","))
		}
		for k, lines := range want {
			t.Run(k.String(), func(t *testing.T) {
				var got []string
				runArtifact(t, rows, dir, k, func(e Event) { got = append(got, e.line()) })
				// The artifact's log ends within the last round.
				got = got[:min(len(got), len(lines))]
				sortFinishes(lines)
				sortFinishes(got)
				if d := cmp.Diff(lines, got); d != "" {
					t.Errorf("events (-artifact +ours):\n%.4000s", d)
				}
			})
		}
	}
}

// sortFinishes sorts finishes at the same time as text: their order in the artifact is that of a
// Python dictionary, and has no effect.
func sortFinishes(lines []string) {
	for i := 0; i < len(lines); {
		j := i
		prefix := lines[i][:strings.Index(lines[i], ",")+1]
		for j < len(lines) && strings.HasPrefix(lines[j], prefix) && strings.HasSuffix(lines[j], ",finish,") {
			j++
		}
		slices.Sort(lines[i:j])
		i = max(j, i+1)
	}
}

// line is the event in the form of the golden logs.
func (e Event) line() string {
	gpus := strings.Trim(fmt.Sprint(e.GPUs), "[]")
	return fmt.Sprintf("%.0f,%d,%s,%s", e.TimeS, e.Job, e.Kind, gpus)
}

func TestNumpyOrder(t *testing.T) {
	ones := slices.Repeat([]int{1}, 17)
	if d := cmp.Diff([]int{0, 9, 15, 14, 13, 12, 11, 10, 8, 1, 7, 6, 5, 4, 3, 2, 16}, numpyOrder(ones)); d != "" {
		t.Errorf("17 equal counts (-numpy +ours):\n%s", d)
	}
	if d := cmp.Diff([]int{1, 3, 0, 2}, numpyOrder([]int{1, 4, 1, 4})); d != "" {
		t.Errorf("4 counts (-numpy +ours):\n%s", d)
	}
}

// TestNumpyDecides: of 18 nodes, one of them half busy, a gang of two gets the node that numpy
// puts first, not the first in order.
func TestNumpyDecides(t *testing.T) {
	p := sim.Population{Nodes: 18, GPUsPerNode: 2, Scores: slices.Repeat([][pal.NumClasses]pal.PMScore{{1, 1, 1, 1}}, 36)}
	c, err := Cluster(p, pal.TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	var got []int
	jobs := []trace.Job{{ID: "one", GPUs: 1, Class: pal.ClassA, IterTimeS: 1, Iterations: 1000}, {ID: "two", GPUs: 2, Class: pal.ClassB, IterTimeS: 1, Iterations: 1000}}
	if _, err := (Run{Jobs: jobs, Cluster: c, Policy: "pal", Order: "fifo", RoundS: 360, OnEvent: func(e Event) {
		if e.Job == 1 && e.Kind == "start" {
			got = e.GPUs
		}
	}}).Run(); err != nil {
		t.Fatal(err)
	}
	node := numpyOrder(append([]int{1}, slices.Repeat([]int{2}, 17)...))[0]
	if node == 1 {
		t.Fatal("numpy also takes the first of the free nodes: the test shows nothing")
	}
	if d := cmp.Diff([]int{2 * node, 2*node + 1}, got); d != "" {
		t.Errorf("GPUs (-numpy +ours):\n%s", d)
	}
}
