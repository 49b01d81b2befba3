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

// gavelClasses divides Gavel's applications among four classes so that these explain its pairs best.
// ResNet-50 is in A, the Transformer in B.
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

// The table of neighbours is the mean of the pairs measured on a V100 that fit in memory.
func TestBesideIsGavels(t *testing.T) {
	alone := map[string]float64{}
	for _, r := range gavelRows(t, "throughputs.csv") {
		if r[0] == "v100" && r[1] == "yes" && r[3] == "1" {
			alone[r[2]], _ = strconv.ParseFloat(r[4], 64)
		}
	}
	var sum, n [NumClasses][NumClasses]float64
	for _, r := range gavelRows(t, "pairs.csv") {
		if r[0] != "v100" || r[3] != "1" {
			continue
		}
		a, _ := strconv.ParseFloat(r[4], 64)
		b, _ := strconv.ParseFloat(r[5], 64)
		if a == 0 || b == 0 {
			continue
		}
		class := func(job string) int { name, _, _ := strings.Cut(job, "/"); return gavelClasses[name] }
		i, k := class(r[1]), class(r[2])
		sum[i][k], n[i][k] = sum[i][k]+a/alone[r[1]], n[i][k]+1
		sum[k][i], n[k][i] = sum[k][i]+b/alone[r[2]], n[k][i]+1
	}
	for i := range sum {
		for k := range sum[i] {
			if mean := sum[i][k] / n[i][k]; math.Abs(mean-beside[i][k]) > 0.006 {
				t.Errorf("%s beside %s: %.3f, the table has %v", AppClasses()[i], AppClasses()[k], mean, beside[i][k])
			}
		}
	}
}

// The previous holder of a part is nobody's neighbour, although a search hides the part from the
// gang.
func TestFormerOccupant(t *testing.T) {
	var nodes []Node
	for _, id := range []string{"a", "b"} {
		parts := DeviceGroup{Name: "m", Shared: true, GPUs: []GPU{{ID: id + "::0"}, {ID: id + "::1"}, {ID: id + "::2"}}}
		nodes = append(nodes, Node{ID: id, Name: id, Groups: []DeviceGroup{parts}})
	}
	c, err := NewCluster(nodes, TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	before := c.stateHash
	last := c.Find("b::2")
	c.SetTaken(last, true)
	c.SetOccupant(last, Occupant{Gang: "former", Class: 0, Sharing: Sharing{Beside: AnyClass}, Parts: 1})
	alone := SingleGPUs("alone", ClassA, 2)
	alone.Sharing = &Sharing{}
	if pl, ok := Place(c, alone, Policy{Name: PAL}); ok {
		t.Errorf("it is beside another job on %v", pl.GPUs())
	}
	c.SetTaken(last, false)
	for range 2 {
		pl, ok := Place(c, alone, Policy{Name: PAL})
		if !ok {
			t.Fatal("it does not fit on two idle GPUs")
		}
		c.Take(alone, pl)
		c.Release(alone, pl)
	}
	if c.stateHash != before {
		t.Error("searches leave something behind")
	}
}

// The cost of neighbours does not depend on the order of a map, although sums of three numbers can
// differ in their last digit by order.
func TestNeighboursAddUpInOneOrder(t *testing.T) {
	var gpus []GPU
	for i := range 12 {
		gpus = append(gpus, GPU{ID: "a::" + strconv.Itoa(i)})
	}
	c, err := NewCluster([]Node{{ID: "a", Name: "a", Groups: []DeviceGroup{{Name: "m", Shared: true, GPUs: gpus}}}}, TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	for i, parts := range []int{3, 6, 7, 10, 10} {
		c.SetTaken(i, true)
		c.SetOccupant(i, Occupant{Gang: strconv.Itoa(i), Class: i % 2, Sharing: Sharing{Beside: AnyClass}, Parts: parts})
	}
	g := SingleGPUs("g", ClassA, 1)
	g.Sharing = &Sharing{Beside: AnyClass}
	want := c.together(&g, 0)
	for range 200 {
		if got := c.together(&g, 0); got != want {
			t.Fatalf("%v, then %v", want, got)
		}
	}
}
