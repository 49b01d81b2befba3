// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import (
	"cmp"
	"encoding/csv"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/nomad-pal/nomad-pal/pal/reason"
)

// gavelClasses divides Gavel's applications into the four classes that explain its pairs best.
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

// The previous occupant of a part is not a neighbour, although a search hides the part from the
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
		t.Error("searches leave changes behind")
	}
}

// A what-if restores the state hash and the occupant, although the occupant differs from the gang.
func TestVacate(t *testing.T) {
	parts := DeviceGroup{Name: "m", Shared: true, GPUs: []GPU{{ID: "a::0"}, {ID: "a::1"}}}
	c, err := NewCluster([]Node{{ID: "a", Name: "a", Groups: []DeviceGroup{parts}}}, TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	g := SingleGPUs("there", ClassA, 1)
	g.Sharing = &Sharing{}
	pl, _ := Place(c, g, Policy{Name: PAL})
	c.Take(g, pl)
	u := pl.GPUs()[0]
	c.SetOccupant(u, Occupant{Gang: "there", Class: 1, Sharing: Sharing{Beside: AnyClass, Stays: true}, Parts: 1})
	hash, was := c.stateHash, c.occupancies[u]
	back := c.Vacate(g, pl)
	if c.Taken(u) {
		t.Error("the part is still taken")
	}
	if back(); c.stateHash != hash || c.occupancies[u] != was || !c.Taken(u) {
		t.Errorf("the part has %+v, want %+v; hash %x, want %x", c.occupancies[u], was, c.stateHash, hash)
	}
}

// The cost of neighbours does not depend on the order of a map, although the order of three
// numbers can change the last digit of their sum.
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
	want := ask(c, g).together(0)
	for range 200 {
		if got := ask(c, g).together(0); got != want {
			t.Fatalf("%v, then %v", want, got)
		}
	}
}

// sharedGPU is a cluster of one GPU in parts, some of them taken by the given gangs.
func sharedGPU(t interface{ Fatal(...any) }, model string, parts int, on ...Occupant) *Cluster {
	g := DeviceGroup{Name: model, Shared: true}
	for i := range parts {
		g.GPUs = append(g.GPUs, GPU{ID: "a::" + strconv.Itoa(i)})
	}
	c, err := NewCluster([]Node{{ID: "a", Name: "a", Groups: []DeviceGroup{g}}}, TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	at := 0
	for _, o := range on {
		for range o.Parts {
			c.SetTaken(at, true)
			c.SetOccupant(at, o)
			at++
		}
	}
	return c
}

const v100 = "nvidia/gpu.shared/Tesla V100-SXM2-16GB-SHARED"

// onePart is a gang of one member that requests one part.
func onePart(id string, class AppClass) Gang {
	g := SingleGPUs(id, class, 1)
	g.Sharing = &Sharing{Beside: AnyClass}
	return g
}

func seen(g Gang) Occupant { return g.occupant(1) }

// A part stays free if the two jobs would together do less work than one alone: by the table, A
// beside A, B or C, and C beside C.
func TestRefusesBadNeighbours(t *testing.T) {
	refuse := Policy{Name: PAL, RefuseBad: true}
	for i, of := range AppClasses() {
		for k, by := range AppClasses() {
			g, there := onePart("g", of), onePart("there", by)
			c := sharedGPU(t, v100, 2, seen(there))
			d := Explain(c, g, refuse)
			if want := beside[i][k]+beside[k][i] >= 1; d.Placed != want {
				t.Errorf("%s beside %s: placed is %v", of, by, d.Placed)
			}
			if !d.Placed && (d.Impossible || d.Reason.Kind != reason.Refused || d.Reason.Needs != 1 || d.Reason.Free != 1) {
				t.Errorf("%s beside %s: %+v", of, by, d.Reason)
			}
			if _, ok := Place(c, g, Policy{Name: PAL}); !ok {
				t.Errorf("%s beside %s is refused without RefuseBad", of, by)
			}
		}
	}
	for _, tc := range []struct {
		name   string
		model  string
		parts  int
		there  []Gang
		gang   Gang
		change func(g, there *Gang)
		want   bool
	}{
		{name: "A takes the only part beside D", there: []Gang{onePart("d", ClassD)}, gang: onePart("g", ClassA), want: true},
		{name: "jobs without a class share, all four", parts: 4, there: []Gang{onePart("b", ClassB), onePart("c", ClassB), onePart("d", ClassB)}, gang: onePart("g", ClassB), want: true},
		{name: "an idle GPU", gang: onePart("g", ClassA), want: true},
		{name: "a service takes any part", there: []Gang{onePart("a", ClassA)}, gang: onePart("g", ClassA), change: func(g, _ *Gang) { g.Sharing.Stays = true }, want: true},
		{name: "nobody waits for a service's part", there: []Gang{onePart("a", ClassA)}, gang: onePart("g", ClassA), change: func(_, there *Gang) { there.Sharing.Stays = true }, want: true},
		{name: "the table does not apply to another model", model: "Tesla T4", there: []Gang{onePart("a", ClassA)}, gang: onePart("g", ClassA), want: true},
		{name: "nor to four jobs on it", model: "Tesla T4", parts: 4, there: []Gang{onePart("a", ClassA), onePart("b", ClassC), onePart("c", ClassA)}, gang: onePart("g", ClassA), want: true},
		{name: "earlier runs apply to another model", model: "Tesla T4", there: []Gang{onePart("a", ClassA)}, gang: onePart("g", ClassA), change: func(g, _ *Gang) { g.Sharing.Slower[0] = 2.2 }},
		{name: "earlier runs override the table", there: []Gang{onePart("a", ClassA)}, gang: onePart("g", ClassA), change: func(g, there *Gang) { g.Sharing.Slower[0], there.Sharing.Slower[0] = 1.2, 1.3 }, want: true},
		{name: "its author lets its members share", there: []Gang{onePart("g", ClassA)}, gang: onePart("g", ClassA), change: func(g, _ *Gang) { g.Sharing.Self = true }, want: true},
	} {
		if tc.change != nil {
			var there *Gang
			if len(tc.there) > 0 {
				there = &tc.there[0]
			}
			tc.change(&tc.gang, there)
		}
		var on []Occupant
		for _, g := range tc.there {
			on = append(on, seen(g))
		}
		c := sharedGPU(t, cmp.Or(tc.model, v100), max(2, tc.parts), on...)
		if _, ok := Place(c, tc.gang, refuse); ok != tc.want {
			t.Errorf("%s: placed is %v", tc.name, ok)
		}
	}
}

// A gang is refused a part if and only if all jobs together would then do less work than the
// present ones do now.
func TestRefusedIsLessWork(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(id string) Gang {
			g := onePart(id, rapid.SampledFrom(AppClasses()).Draw(t, "class"))
			for k := range g.Sharing.Slower {
				g.Sharing.Slower[k] = rapid.SampledFrom([]float64{0, 0, 1, 1.5, 2, 4}).Draw(t, "slower")
			}
			return g
		}
		var all []Occupant
		for i := range rapid.IntRange(0, 3).Draw(t, "there") {
			all = append(all, seen(draw(strconv.Itoa(i))))
		}
		c, g := sharedGPU(t, v100, 4, all...), draw("g")
		work := func(all []Occupant) (sum float64) {
			for i, o := range all {
				longer := 1.0
				for k, by := range all {
					if k != i {
						longer += costOf(o, by)
					}
				}
				sum += 1 / longer
			}
			return sum
		}
		before, after := work(all), work(append(slices.Clone(all), seen(g)))
		_, ok := Place(c, g, Policy{Name: PAL, RefuseBad: true})
		if less := after < before-1e-6; ok == less && math.Abs(after-before) > 1e-6 {
			t.Fatalf("work before %v, after %v: placed is %v", before, after, ok)
		}
	})
}
