// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import (
	"encoding/csv"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// gavelClasses are the classes of Gavel's applications by which four explain its pairs best, with
// ResNet-50 in A and the Transformer in B.
var gavelClasses = map[string]int{"resnet-50": 0, "transformer": 1, "lm": 1, "cyclegan": 1, "a3c": 1, "recommendation": 2, "resnet-18": 3}

func gavelRows(t *testing.T, name string) [][]string {
	t.Helper()
	dir := os.Getenv("PAL_DATA")
	if dir == "" {
		t.Skip("PAL_DATA is not set")
	}
	f, err := os.Open(filepath.Join(dir, "gavel", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return rows[1:]
}

// The table of neighbours is the mean of the measured pairs, and explains as much of them as the docs say.
func TestBesideIsGavels(t *testing.T) {
	alone := map[string]float64{}
	for _, r := range gavelRows(t, "throughputs.csv") {
		if r[0] == "v100" && r[1] == "yes" && r[3] == "1" {
			alone[r[2]], _ = strconv.ParseFloat(r[4], 64)
		}
	}
	var of [NumClasses][NumClasses][]float64
	pairs, fit, sum, n := 0, 0, 0.0, 0.0
	for _, r := range gavelRows(t, "pairs.csv") {
		if r[0] != "v100" || r[3] != "1" {
			continue
		}
		a, _ := strconv.ParseFloat(r[4], 64)
		b, _ := strconv.ParseFloat(r[5], 64)
		if pairs++; a == 0 || b == 0 {
			continue
		}
		fit++
		class := func(job string) int { name, _, _ := strings.Cut(job, "/"); return gavelClasses[name] }
		i, k := class(r[1]), class(r[2])
		a, b = a/alone[r[1]], b/alone[r[2]]
		of[i][k] = append(of[i][k], a)
		of[k][i] = append(of[k][i], b)
		sum, n = sum+a+b, n+2
	}
	total, left := 0.0, 0.0
	for i := range of {
		for k, rates := range of[i] {
			mean := 0.0
			for _, r := range rates {
				mean += r / float64(len(rates))
			}
			if math.Abs(mean-beside[i][k]) > 0.006 {
				t.Errorf("%s beside %s: %.3f, the table has %v", AppClasses()[i], AppClasses()[k], mean, beside[i][k])
			}
			for _, r := range rates {
				total, left = total+(r-sum/n)*(r-sum/n), left+(r-mean)*(r-mean)
			}
		}
	}
	explained := 1 - left/total
	t.Logf("%d pairs, %d fit, classes explain %.3f of the variance", pairs, fit, explained)
	if pairs != 676 || math.Abs(explained-0.58) > 0.006 {
		t.Errorf("%d pairs, classes explain %.3f of the variance: the docs say 676 and 58 %%", pairs, explained)
	}
}
