// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import (
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Compare with the GPUs that the PAL artifact chooses on its worked example: 120 single
// allocations of all classes, policies and penalties.
func TestArtifactAllocations(t *testing.T) {
	dir := os.Getenv("PAL_DATA")
	if dir == "" {
		t.Skip("PAL_DATA is not set: the artifact's own choices are not compared")
	}
	scores, cases := table(t, dir, "ex_gpus.csv"), table(t, dir, "ex_alloc_cases.csv")
	if len(scores) != 8 || len(cases) < 100 {
		t.Fatalf("%d GPUs and %d cases", len(scores), len(cases))
	}
	policies := map[string]Policy{"pmfirst": {Name: PMFirst}, "packed": {Name: Packed}}
	for _, row := range cases {
		for column, want := range row {
			lf, isPAL := strings.CutPrefix(column, "pal_lf")
			p, known := policies[column]
			if isPAL {
				p = Policy{Name: PAL}
			} else if lf = "1.7"; !known {
				continue
			}
			c := exampleCluster(t, scores, lf)
			free := strings.Fields(row["free"])
			for i := range c.NumGPUs() {
				c.SetTaken(i, !slices.Contains(free, strconv.Itoa(i)))
			}
			n, _ := strconv.Atoi(row["n"])
			class := AppClass(strings.TrimPrefix(row["class"], "class"))
			got := "-"
			if pl, ok := Place(c, SingleGPUs("x", class, n), p); ok {
				got = sortedInts(pl.GPUs())
			}
			if want != "-" {
				want = sortedFields(want)
			}
			if got != want {
				t.Errorf("%s free=%q n=%d %s: got %s, the artifact %s", class, row["free"], n, column, got, want)
			}
		}
	}
}

// exampleCluster bins each class with k-means into two groups. At penalties away from ties the
// choice depends only on this grouping.
func exampleCluster(t *testing.T, rows []map[string]string, lf string) *Cluster {
	low := [NumClasses]float64{0.8758169935, 0.979791395, 0.9771986971, 0.9946134085}
	high := [NumClasses]float64{1.1241830065, 1.020208605, 1.0228013029, 1.0053865915}
	split := [NumClasses]float64{1.2, 1.02, 1.02, 1.005}
	nodes := make([]Node, 2)
	for i, r := range rows {
		u := GPU{ID: strconv.Itoa(i)}
		for k, class := range AppClasses() {
			s, err := strconv.ParseFloat(r["class"+string(class)], 64)
			if err != nil {
				t.Fatal(err)
			}
			u.Scores[k], u.Binned[k] = PMScore(s), PMScore(low[k])
			if s > split[k] {
				u.Binned[k] = PMScore(high[k])
			}
		}
		n := &nodes[i/4]
		n.Name = fmt.Sprint(i / 4)
		if n.Groups == nil {
			n.Groups = []DeviceGroup{{Name: "gpu"}}
		}
		n.Groups[0].GPUs = append(n.Groups[0].GPUs, u)
	}
	across, err := strconv.ParseFloat(lf, 64)
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewCluster(nodes, TwoTier(across))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func sortedInts(is []int) string {
	is = slices.Clone(is)
	slices.Sort(is)
	return strings.Trim(fmt.Sprint(is), "[]")
}

func sortedFields(s string) string {
	var is []int
	for _, f := range strings.Fields(s) {
		i, _ := strconv.Atoi(f)
		is = append(is, i)
	}
	return sortedInts(is)
}

func table(t *testing.T, dir, name string) []map[string]string {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var out []map[string]string
	for _, r := range rows[1:] {
		m := map[string]string{}
		for i, v := range r {
			m[rows[0][i]] = v
		}
		out = append(out, m)
	}
	return out
}
