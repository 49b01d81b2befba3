// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// mixed is a cluster with a node of two GPUs of each model, in this order.
func mixed(t *testing.T, models ...string) *Cluster {
	var ns []Node
	for _, m := range models {
		g := DeviceGroup{Name: m, GPUs: []GPU{{ID: m + "0"}, {ID: m + "1"}}}
		ns = append(ns, Node{ID: m, Name: m, Groups: []DeviceGroup{g}})
	}
	c, err := NewCluster(ns, TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A gang goes where it ends first.
func TestModelForEachGang(t *testing.T) {
	c := mixed(t, "T4", "A100", "V100")
	for _, tc := range []struct {
		name   string
		speeds Speeds
		busy   string
		only   []bool
		want   string
	}{
		{name: "nothing known: the first model", want: "T4"},
		{name: "the fastest", speeds: Speeds{"A100": 1, "V100": 0.5, "T4": 0.1}, want: "A100"},
		{name: "all alike: the first model", speeds: Speeds{"A100": 1, "V100": 1, "T4": 1}, want: "T4"},
		{name: "a little slower", speeds: Speeds{"A100": 1, "V100": 0.9, "T4": 0.3}, want: "A100"},
		{name: "the fastest is busy", speeds: Speeds{"A100": 1, "V100": 0.5, "T4": 0.1}, busy: "A100", want: "V100"},
		{name: "constraints hold", speeds: Speeds{"A100": 1, "V100": 0.5, "T4": 0.1}, only: []bool{true, false, false}, want: "T4"},
		{name: "an unknown model counts as the slowest", speeds: Speeds{"A100": 1, "V100": 0.5}, want: "A100"},
		{name: "an unknown model is used", speeds: Speeds{"A100": 1, "V100": 0.5}, only: []bool{true, false, false}, want: "T4"},
	} {
		g := SingleGPUs("g", ClassA, 2)
		g.Speeds, g.MemberSets[0].Eligible = tc.speeds, tc.only
		for i := range c.NumGPUs() {
			c.SetTaken(i, tc.busy != "" && strings.HasPrefix(c.GPU(i).ID, tc.busy))
		}
		p := Policy{Name: PAL}
		pl, ok := Place(c, g, p)
		if !ok {
			t.Errorf("%s: does not fit", tc.name)
			continue
		}
		_, got := c.Group(pl.Members[0].Group)
		if got != tc.want {
			t.Errorf("%s: on %s, want %s", tc.name, got, tc.want)
		}
		if speed := tc.speeds.On(got); pl.Speed != speed || len(tc.speeds) > 0 && pl.Cost() != 1/speed {
			t.Errorf("%s: speed %v at cost %v, want %v", tc.name, pl.Speed, pl.Cost(), speed)
		}
		d := Explain(c, g, p)
		if d.Chosen.Cost != pl.Cost() || d.Chosen.Members[0].Device != got {
			t.Errorf("%s: explained as %+v", tc.name, d.Chosen)
		}
	}
}

func TestSpeedsOfRates(t *testing.T) {
	got := SpeedsOf(map[string]float64{"A100": 200, "V100": 100, "T4": 20, "broken": 0})
	if diff := cmp.Diff(Speeds{"A100": 1, "V100": 0.5, "T4": 0.1}, got); diff != "" {
		t.Error(diff)
	}
}

// In a cluster of one model, speeds change nothing.
func TestSpeedsOfOneModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := draw(t)
		c, p := d.cluster(t), policy(rapid.SampledFrom(Policies()).Draw(t, "policy"))
		was := fmt.Sprintf("%+v", Explain(c, d.gang, p))
		plain, _ := Place(c, d.gang, p)
		d.gang.Speeds = Speeds{"gpu": 1}
		known, _ := Place(c, d.gang, p)
		if !slices.Equal(plain.GPUs(), known.GPUs()) || plain.Cost() != known.Cost() {
			t.Fatalf("on %v at cost %v, without speeds on %v at %v", known.GPUs(), known.Cost(), plain.GPUs(), plain.Cost())
		}
		if now := fmt.Sprintf("%+v", Explain(c, d.gang, p)); len(now) != len(was) { // pointers would differ
			t.Fatalf("explained as\n%s\nwithout speeds as\n%s", now, was)
		}
	})
}
