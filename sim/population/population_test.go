// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package population

import (
	"math"
	"math/rand/v2"
	"regexp"
	"sort"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/pal/profile"
)

func draw(t *testing.T, s Spec, seed uint64) []GPU {
	t.Helper()
	gpus, err := Draw(s, rand.New(rand.NewPCG(seed, 0)))
	if err != nil {
		t.Fatal(err)
	}
	return gpus
}

func TestTablesAreWellFormed(t *testing.T) {
	if n := len(Tables()); n != 7 {
		t.Fatalf("%d tables, want 7", n)
	}
	for _, tb := range Tables() {
		if len(tb.Quantiles) != len(Probabilities()) || !sort.Float64sAreSorted(tb.Quantiles) {
			t.Errorf("%s/%s: %d quantiles, want %d ascending", tb.Cluster, tb.App, len(tb.Quantiles), len(Probabilities()))
		}
		if m := tb.Quantile(0.5); math.Abs(m-1) > 0.001 || tb.Quantile(1) >= OutlierFrom {
			t.Errorf("%s/%s: median %v, largest %v", tb.Cluster, tb.App, m, tb.Quantile(1))
		}
		if (tb.OutlierShare > 0) != (len(tb.OutlierQuantiles) > 0) {
			t.Errorf("%s/%s: outlier share %v with %d quantiles", tb.Cluster, tb.App, tb.OutlierShare, len(tb.OutlierQuantiles))
		}
	}
}

func TestDrawIsStable(t *testing.T) {
	s := Spec{Cluster: "longhorn", Nodes: 16, GPUsPerNode: 4, Outliers: Exactly(1)}
	if diff := cmp.Diff(draw(t, s, 42), draw(t, s, 42)); diff != "" {
		t.Fatalf("the same seed draws another cluster:\n%s", diff)
	}
	if cmp.Equal(draw(t, s, 42), draw(t, s, 43)) {
		t.Error("another seed draws the same cluster")
	}
	with, without := draw(t, s, 42), draw(t, Spec{Cluster: "longhorn", Nodes: 16, GPUsPerNode: 4}, 42)
	bad := 0
	for i := range with {
		if with[i].Scores[0] >= OutlierFrom {
			bad++
			if without[i].Scores[0] >= OutlierFrom {
				t.Errorf("outlier with score %v, %v without", with[i].Scores[0], without[i].Scores[0])
			}
			with[i].Scores[0], with[i].Times[0], with[i].Rates[0] = without[i].Scores[0], without[i].Times[0], without[i].Rates[0]
		}
	}
	if bad != 1 {
		t.Errorf("%d outliers, want 1", bad)
	}
	if diff := cmp.Diff(without, with); diff != "" {
		t.Errorf("an outlier changes other GPUs:\n%s", diff)
	}
}

// A GPU that takes longer does less work per second.
func TestRates(t *testing.T) {
	for cluster, compute := range map[string]float64{"longhorn": 15.7, "frontera": 11.2} {
		for _, g := range draw(t, Spec{Cluster: cluster, Nodes: 2, GPUsPerNode: 2, Outliers: Exactly(1)}, 1) {
			if got := g.Rates[0] * g.Scores[0]; math.Abs(got-compute) > 1e-9 {
				t.Errorf("%s: a GPU of score %v does %v TFLOP/s, the median GPU %v", cluster, g.Scores[0], g.Rates[0], compute)
			}
		}
	}
}

func TestDrawFollowsTheTables(t *testing.T) {
	s := Spec{Cluster: "longhorn", Nodes: 2000, GPUsPerNode: 4, Outliers: AsMeasured()}
	gpus := draw(t, s, 1)
	ids := map[string]bool{}
	var a []float64
	outliers := 0
	uuid := regexp.MustCompile(`^GPU-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	for _, g := range gpus {
		ids[g.ID] = true
		if !uuid.MatchString(g.ID) {
			t.Fatalf("id %q", g.ID)
		}
		if g.Scores[0] >= OutlierFrom {
			outliers++
		} else {
			a = append(a, g.Scores[0])
		}
	}
	if len(ids) != 8000 {
		t.Errorf("%d different ids, want 8000", len(ids))
	}
	sort.Float64s(a)
	table, _ := find(Tables(), "longhorn", "resnet50")
	for _, p := range []float64{.05, .25, .5, .75, .95} {
		if got, want := profile.Quantile(a, p), table.Quantile(p); math.Abs(got-want) > 0.004 {
			t.Errorf("quantile %v of class A is %.4f, the table has %.4f", p, got, want)
		}
	}
	if share := float64(outliers) / 8000; math.Abs(share-0.0142) > 0.004 {
		t.Errorf("share of outliers %v, want the measured 0.0142", share)
	}
}

func TestDrawLayout(t *testing.T) {
	gpus := draw(t, Spec{Cluster: "longhorn", Nodes: 2, GPUsPerNode: 4}, 1)
	g := gpus[6]
	if g.Node != 1 || g.BusID != "0000:12:00.0" || g.NUMA != 1 {
		t.Errorf("third GPU of the second node: %+v", g)
	}
	// Lonestar6 has only ResNet-50, so the other classes use Longhorn's tables.
	gpus = draw(t, Spec{Cluster: "lonestar6", Nodes: 1, GPUsPerNode: 1}, 1)
	if got := gpus[0].Times[3]; got < 60000 || got > 70000 {
		t.Errorf("class D on lonestar6 takes %v, want Longhorn's about 66046", got)
	}
}

func TestDrawErrors(t *testing.T) {
	for want, s := range map[string]Spec{
		`cluster "x" is unknown`:                      {Cluster: "x", Nodes: 1, GPUsPerNode: 1},
		"0 nodes with 4 GPUs":                         {Cluster: "longhorn", GPUsPerNode: 4},
		"3 outliers, want 0 to 2, the number of GPUs": {Cluster: "longhorn", Nodes: 1, GPUsPerNode: 2, Outliers: Exactly(3)},
	} {
		if _, err := Draw(s, rand.New(rand.NewPCG(1, 0))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
