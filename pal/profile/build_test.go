// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package profile

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
)

const model = "NVIDIA H200"

// fleet returns samples of class A with these times, for GPU-00, GPU-01 and so on.
func fleet(times ...float64) []Sample {
	var out []Sample
	for i, x := range times {
		out = append(out, Sample{GPU: fmt.Sprintf("GPU-%02d", i), Model: model, Key: "k", App: pal.ClassA, Time: x})
	}
	return out
}

// twenty has scores 0.96…1.055 around a median of 1, without an outlier.
func twenty() []float64 {
	var xs []float64
	for i := range 20 {
		xs = append(xs, 2*(0.955+0.005*float64(i)))
	}
	return xs
}

func mustBuild(t *testing.T, s []Sample, o Options, prev *Profile) *Profile {
	t.Helper()
	p, err := Build(s, o, prev)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Parse(p.Encode()); err != nil {
		t.Fatalf("the profile that Build made does not parse: %v", err)
	}
	return p
}

func classOf(t *testing.T, p *Profile, gpu string) Entry {
	t.Helper()
	e, ok := p.Lookup(gpu, pal.ClassA)
	if !ok {
		t.Fatalf("GPU %s is not in the profile", gpu)
	}
	return e
}

func TestBuildNormalizesToTheMedianGPU(t *testing.T) {
	p := mustBuild(t, fleet(twenty()...), DefaultOptions(), nil)
	g, ok := p.Group(model, pal.ClassA, "k")
	if !ok || g.Provisional || g.SingleClass || g.Dropped != 0 || g.Measured != 20 {
		t.Fatalf("group %+v, %v", g, ok)
	}
	if diff := cmp.Diff(2*1.0025, g.Reference, approx); diff != "" {
		t.Errorf("reference (-want +got)\n%s", diff)
	}
	var classes []int
	for i := range 20 {
		classes = append(classes, classOf(t, p, fmt.Sprintf("GPU-%02d", i)).Class)
	}
	want := []int{1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4}
	if diff := cmp.Diff(want, classes); diff != "" {
		t.Errorf("classes (-want +got)\n%s", diff)
	}
	if e := classOf(t, p, "GPU-00"); float64(e.Value) != g.Values[0] || e.Class != 1 {
		t.Errorf("class %d with value %v, want class 1 with %v", e.Class, e.Value, g.Values[0])
	}
}

func TestBuildBadGPU(t *testing.T) {
	p := mustBuild(t, fleet(append(twenty(), 2*2.8)...), DefaultOptions(), nil)
	g, _ := p.Group(model, pal.ClassA, "k")
	if g.Dropped != 1 {
		t.Errorf("%d GPUs dropped from the reference, want only the bad one", g.Dropped)
	}
	e := classOf(t, p, "GPU-20")
	if !e.Outlier || e.Class != MaxClass || e.Score < 2.7 || e.Value != e.Score {
		t.Errorf("the bad GPU is %+v, want an outlier in a bin of its own", e)
	}
	// Of two GPUs one is bad. Build finds it, although the reference is provisional.
	p = mustBuild(t, fleet(1, 3), DefaultOptions(), nil)
	if e := classOf(t, p, "GPU-01"); !e.Outlier || e.Class != MaxClass || !p.Groups[0].Provisional {
		t.Errorf("of two GPUs, the bad one is %+v", e)
	}
	if e := classOf(t, p, "GPU-00"); e.Score != 1 || e.Class != 2 && e.Class != 1 {
		t.Errorf("of two GPUs, the good one is %+v", e)
	}
}

func TestBuildProvisionalReference(t *testing.T) {
	p := mustBuild(t, fleet(1, 1, 1.05, 1.2), DefaultOptions(), nil)
	for gpu, want := range map[string]int{"GPU-00": 2, "GPU-02": 3, "GPU-03": 3} {
		if e := classOf(t, p, gpu); e.Class != want || !p.Groups[0].Provisional {
			t.Errorf("%s: %+v, want provisional class %d", gpu, e, want)
		}
	}
	p = mustBuild(t, fleet(5), DefaultOptions(), nil)
	if e := classOf(t, p, "GPU-00"); e.Score != 1 || e.Class != 1 {
		t.Errorf("a lone GPU is %+v, want score 1 in class 1", e)
	}
}

func TestBuildSpreadWithinNoiseIsOneClass(t *testing.T) {
	var times []float64
	for i := range 200 {
		times = append(times, 1+0.00004*float64(i))
	}
	times = append(times, 1.2)
	p := mustBuild(t, fleet(times...), DefaultOptions(), nil)
	for i := range 200 {
		if e := classOf(t, p, fmt.Sprintf("GPU-%02d", i)); e.Class != 1 {
			t.Fatalf("GPU %d: %+v, want class 1", i, e)
		}
	}
	if e := classOf(t, p, "GPU-200"); e.Class != MaxClass {
		t.Errorf("the one GPU that differs from the others is %+v, want class %d", e, MaxClass)
	}
	// One bad GPU among few does not turn the noise of the others into classes.
	p = mustBuild(t, fleet(1, 1.001, 1.002, 1.0005, 0.9995, 1.003, 0.999, 1.0015, 2.9), DefaultOptions(), nil)
	if e := classOf(t, p, "GPU-02"); e.Class != 1 || classOf(t, p, "GPU-08").Class != MaxClass {
		t.Errorf("beside an outlier: %+v, want class 1", e)
	}
	noisy := fleet(twenty()...)
	for i := range noisy {
		noisy[i].Noise = 0.03
	}
	p = mustBuild(t, noisy, DefaultOptions(), nil)
	if g, _ := p.Group(model, pal.ClassA, "k"); !g.SingleClass || g.Noise != 0.03 {
		t.Errorf("9 %% of spread at 3 %% of noise: %+v, want a single class", g)
	}
}

// Scores that differ by little more than the runs of a single GPU are one class, although their
// spread exceeds six times the noise. Scores with real tails are not.
func TestBuildScoresOfNoiseAreOneClass(t *testing.T) {
	for _, tc := range []struct {
		noise  float64
		tail   int // number of GPUs at 1.12
		single bool
	}{{0.007, 0, true}, {0.003, 0, false}, {0.007, 4, false}} {
		var times []float64
		for i := range 60 {
			z := math.Sqrt2 * math.Erfinv(2*(float64(i)+0.5)/60-1)
			times = append(times, 1+0.01*z)
		}
		for i := range tc.tail {
			times[59-i] = 1.12
		}
		samples := fleet(times...)
		for i := range samples {
			samples[i].Noise = tc.noise
		}
		p := mustBuild(t, samples, DefaultOptions(), nil)
		if g, _ := p.Group(model, pal.ClassA, "k"); g.SingleClass != tc.single {
			t.Errorf("noise %v, %d GPUs in the tail: single class %v (spread %.4f), want %v", tc.noise, tc.tail, g.SingleClass, g.Spread, tc.single)
		}
	}
}

// A group whose spread is near the limit does not change back and forth.
func TestBuildSingleClassHasHysteresis(t *testing.T) {
	var p *Profile
	for i, step := range []struct {
		width  float64 // of the scores; the spread is just below it
		single bool
	}{{0.0095, true}, {0.0110, true}, {0.0130, false}, {0.0095, false}, {0.0070, true}} {
		var times []float64
		for k := range 101 {
			times = append(times, 1+step.width*(float64(k)/100-0.5))
		}
		p = mustBuild(t, fleet(times...), DefaultOptions(), p)
		if g, _ := p.Group(model, pal.ClassA, "k"); g.SingleClass != step.single {
			t.Errorf("step %d, spread %.5f: single class %v, want %v", i+1, g.Spread, g.SingleClass, step.single)
		}
	}
}

func TestBuildHysteresis(t *testing.T) {
	// Eleven GPUs at the median keep the median fixed.
	base := []float64{0.96, 0.97, 0.98, 1.02, 1.03, 1.04, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}
	steps := []struct {
		name    string
		score   float64 // of GPU-17
		class   int
		pending int
	}{
		{"first seen", 1.000, 2, 0},
		{"over the edge by less than the hysteresis", 1.013, 2, 0},
		{"beyond it once", 1.017, 2, 3},
		{"back", 1.012, 2, 0},
		{"beyond it again", 1.0171, 2, 3},
		{"beyond it twice", 1.0172, 3, 0},
		{"just below the edge", 1.008, 3, 0},
		{"far worse at once", 1.15, 5, 0},
	}
	var p *Profile
	for _, s := range steps {
		samples := fleet(append(base, s.score)...)
		p = mustBuild(t, samples, DefaultOptions(), p)
		e := classOf(t, p, "GPU-17")
		if e.Class != s.class || e.Pending != s.pending {
			g, _ := p.Group(model, pal.ClassA, "k")
			t.Fatalf("%s: score %.4f (reference %v) gives class %d pending %d, want %d pending %d",
				s.name, e.Score, g.Reference, e.Class, e.Pending, s.class, s.pending)
		}
		if again := mustBuild(t, samples, DefaultOptions(), p); again != p {
			t.Fatalf("%s: the same samples again give another profile:\n%s", s.name, cmp.Diff(string(p.Encode()), string(again.Encode())))
		}
	}
	if p.Version < 2 {
		t.Errorf("version %d after changes", p.Version)
	}
}

func TestKeysAndModelsAreNotMixed(t *testing.T) {
	slow := fleet(twenty()...)
	for i := range slow {
		slow[i].GPU, slow[i].Key, slow[i].Time = "GPU-x"+slow[i].GPU, "500W", slow[i].Time*3
	}
	p := mustBuild(t, append(fleet(twenty()...), slow...), DefaultOptions(), nil)
	a, b := classOf(t, p, "GPU-03"), classOf(t, p, "GPU-xGPU-03")
	if len(p.Groups) != 2 || a.Class != b.Class {
		t.Errorf("%d groups; the same GPU at 700 W is %+v, at 500 W %+v", len(p.Groups), a, b)
	}
	if got := p.Score(model, attr.Measurement{GPU: "n", Key: "300W", Times: map[pal.AppClass]float64{"A": 2}})["A"]; !got.Unmeasured || got.Class != MaxClass {
		t.Errorf("a time under an unknown key gets the entry %+v", got)
	}
	if got := p.Score("other", attr.Measurement{GPU: "n", Key: "k", Times: map[pal.AppClass]float64{"A": 2}})["A"]; !got.Unmeasured {
		t.Errorf("a time of an unknown model gets the entry %+v", got)
	}
}

func TestUnmeasuredGPUsAreInTheLastClass(t *testing.T) {
	o := DefaultOptions()
	o.Known = map[string]string{"GPU-00": model, "GPU-dark": model}
	p := mustBuild(t, fleet(twenty()...), o, nil)
	e, ok := p.Lookup("GPU-dark", pal.ClassA)
	if ok || e.Class != MaxClass || !e.Unmeasured {
		t.Errorf("an unmeasured GPU is %+v, %v", e, ok)
	}
	if e, ok := p.Lookup("GPU-00", pal.ClassA); !ok || e.Unmeasured {
		t.Errorf("a measured one is %+v, %v", e, ok)
	}
}

// An application that was timed itself is separate from the classes.
func TestApplicationsOfTheirOwn(t *testing.T) {
	own := fleet(twenty()...)[:10]
	for i := range own {
		own[i].App, own[i].Time = "resnet50", float64(100+i)
	}
	p := mustBuild(t, append(fleet(twenty()...), own...), DefaultOptions(), nil)
	if e, ok := p.Lookup("GPU-00", "resnet50"); !ok || e.App != "resnet50" || e.Time != 100 {
		t.Errorf("timed application: %+v, %v", e, ok)
	}
	if e, ok := p.Lookup("GPU-15", "resnet50"); ok || !e.Unmeasured {
		t.Errorf("a GPU on which it was not timed: %+v, %v", e, ok)
	}
	if e := classOf(t, p, "GPU-00"); e.App != pal.ClassA {
		t.Errorf("its class: %+v", e)
	}
}

func TestBuildErrors(t *testing.T) {
	edit := func(f func(*Options)) Options { o := DefaultOptions(); f(&o); return o }
	for _, tc := range []struct {
		name    string
		samples []Sample
		options Options
		want    string
	}{
		{"negative time", fleet(1, -2), DefaultOptions(), `sample 2 (GPU "GPU-01", application "A"): time -2 is not a positive number`},
		{"no model", []Sample{{GPU: "g", App: "A", Time: 1}}, DefaultOptions(), "no model"},
		{"bad application", []Sample{{GPU: "g", Model: "m", App: "a b", Time: 1}}, DefaultOptions(), `application name "a b"`},
		{"two keys", []Sample{{GPU: "g", Model: "m", Key: "x", App: "A", Time: 1}, {GPU: "g", Model: "m", Key: "y", App: "A", Time: 1}},
			DefaultOptions(), `GPU "g" has application "A" under the keys "x" and "y", which cannot be compared`},
		{"two models", []Sample{{GPU: "g", Model: "m", App: "A", Time: 1}, {GPU: "g", Model: "n", App: "B", Time: 1}},
			DefaultOptions(), `GPU "g" has samples of two models, "m" and "n"`},
		{"edges descend", nil, edit(func(o *Options) { o.Edges = []float64{1, 0.9} }), "edges: [1 0.9] are not positive and ascending"},
		{"too many edges", nil, edit(func(o *Options) { o.Edges = make([]float64, 5) }), "edges: 5 given, want 1 to 4"},
		{"hysteresis", nil, edit(func(o *Options) { o.Hysteresis = -1 }), "hysteresis: -1"},
		{"outlier", nil, edit(func(o *Options) { o.Outlier = 1 }), "outlier: 1 is not above the last edge 1.06"},
	} {
		_, err := Build(tc.samples, tc.options, nil)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q", tc.name, err, tc.want)
		}
	}
}

// Whatever the times, the order of samples does not matter, and JSON and shards restore the same
// profile. On its first measurement a slower GPU is never in a lower class, every list of values
// is ascending, and scoring the same times again gives the same entries.
func TestBuildProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		times := rapid.SliceOfN(rapid.Float64Range(0.8, 4), 1, 40).Draw(t, "times")
		o := DefaultOptions()
		samples := fleet(times...)
		p, err := Build(samples, o, nil)
		if err != nil {
			t.Fatal(err)
		}
		shuffled := append([]Sample(nil), samples...)
		rand.New(rand.NewPCG(1, 2)).Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		q, err := Build(shuffled, o, nil)
		if err != nil || string(q.Encode()) != string(p.Encode()) {
			t.Fatalf("another order of the samples gives another profile (%v)", err)
		}
		shards, err := p.Shards(700)
		if err != nil {
			t.Fatal(err)
		}
		joined, err := Join(shards)
		if err != nil || string(joined.Encode()) != string(p.Encode()) {
			t.Fatalf("shards do not restore the profile (%v)", err)
		}
		if diff := cmp.Diff(p, joined, cmpopts.EquateEmpty(), cmp.AllowUnexported(Profile{}, groupID{})); diff != "" {
			t.Fatalf("joined profile differs (-want +got)\n%s", diff)
		}
		checkOrder(t, p, samples)
	})
}

func checkOrder(t *rapid.T, p *Profile, samples []Sample) {
	for _, s := range samples {
		a, _ := p.Lookup(s.GPU, s.App)
		again := p.Score(s.Model, attr.Measurement{GPU: s.GPU, Key: s.Key, Times: map[pal.AppClass]float64{s.App: s.Time}})[s.App]
		if again.Score != a.Score || again.Value != a.Value {
			t.Fatalf("scoring %s again gives %+v, the profile has %+v", s.GPU, again, a)
		}
		for _, r := range samples {
			b, _ := p.Lookup(r.GPU, r.App)
			if a.Score < b.Score && (a.Class > b.Class || a.Value > b.Value) {
				t.Fatalf("%+v is faster than %+v but in a later class", a, b)
			}
		}
	}
}

// Build refuses a time that is far from all others. Score ignores one that is impossibly short, so
// that a wrong time does not make a GPU the fastest; one that is far too long is an outlier. Parse accepts every profile that Build makes,
// however widely its times differ.
func TestAbsurdTimes(t *testing.T) {
	sample := func(gpu string, time float64) Sample {
		return Sample{GPU: gpu, Model: "m", Key: "k", App: "A", Time: time}
	}
	usual := []Sample{sample("a", 1), sample("b", 1.01), sample("c", 0.99)}
	for _, time := range []float64{1e-9, 9e-4, 1100, 1e11} {
		_, err := Build(append(slices.Clone(usual), sample("odd", time)), DefaultOptions(), nil)
		if err == nil || !strings.Contains(err.Error(), `GPU "odd": application "A": time`) {
			t.Errorf("time %v: error %v", time, err)
		}
		p, err := Build(usual, DefaultOptions(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if e := p.Score("m", attr.Measurement{GPU: "odd", Key: "k", Times: map[pal.AppClass]float64{"A": time}})["A"]; e.Unmeasured != (time < 1) || e.Class != MaxClass {
			t.Errorf("time %v of a GPU measured later: %+v", time, e)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		var samples []Sample
		for i := range rapid.IntRange(1, 12).Draw(t, "gpus") {
			samples = append(samples, sample(fmt.Sprint(i), math.Pow(10, rapid.Float64Range(-300, 300).Draw(t, "exponent")/rapid.SampledFrom([]float64{1, 60, 100}).Draw(t, "range"))))
		}
		kept, _ := Consistent(samples)
		p, err := Build(kept, DefaultOptions(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse(p.Encode()); err != nil {
			t.Fatalf("the profile that Build made cannot be read: %v", err)
		}
	})
}
