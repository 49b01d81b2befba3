// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measure

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/nomad-pal/nomad-pal/device-plugin/cuda"
	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/pal"
)

func TestSummarize(t *testing.T) {
	near := cmpopts.EquateApprox(0, 1e-9)
	s := summarize([]float64{10, 12, 10, 12, 10, 12, 10, 12, 11})
	want := summary{Median: 11, Sigma: 1.4826 / 11, CI: 1.96 * 1.2533 * 1.4826 / 11 / 3}
	if diff := cmp.Diff(want, s, near); diff != "" {
		t.Errorf("alternating values (-want +got)\n%s", diff)
	}
	// Neighboring windows that are alike count for less, so the same values in ascending order have
	// a wider interval.
	if sorted := summarize([]float64{10, 10, 10, 10, 11, 12, 12, 12, 12}); sorted.CI < 2*s.CI || sorted.Median != 11 {
		t.Errorf("values that drift: %+v, alternating: %+v", sorted, s)
	}
	if s := summarize([]float64{5, 5}); !math.IsInf(s.CI, 1) || s.Median != 5 {
		t.Errorf("two windows: %+v", s)
	}
	if s := summarize([]float64{5, 5, 5, 5}); s.CI != 0 || s.Sigma != 0 {
		t.Errorf("constant values: %+v", s)
	}
}

func TestSteady(t *testing.T) {
	for _, tc := range []struct {
		xs   []float64
		want bool
	}{{nil, false}, {[]float64{1}, false}, {[]float64{100, 100, 100.1, 100.1}, true}, {[]float64{90, 95, 98, 100}, false}} {
		if got := steady(tc.xs, 0.002); got != tc.want {
			t.Errorf("%v: %v, want %v", tc.xs, got, tc.want)
		}
	}
}

func readings(throttle ...string) []reading {
	var rs []reading
	for i, s := range throttle {
		c, p := 1500+10*float64(i), 690.0
		rs = append(rs, reading{throttle: s, clock: &c, power: &p})
	}
	return rs
}

func TestLimitedBy(t *testing.T) {
	half := 50.0
	for _, tc := range []struct {
		name string
		rs   []reading
		want Limit
	}{
		{"nothing known", nil, LimitUnknown},
		{"never", readings("none", "idle", "none"), LimitNone},
		{"power in 1 of 5", readings("none", "power-cap", "none", "none", "none"), LimitPower},
		{"power in 1 of 6", readings("none", "power-cap", "none", "none", "none", "none"), LimitNone},
		{"a reason without a name", readings("other", "none"), LimitUnknown},
		{"a reason without a name beside power", readings("other", "power-cap"), LimitPower},
		{"heat counts more", readings("power-cap", "power-cap,sw-thermal", "power-cap"), LimitThermal},
		{"the driver counted", []reading{{powerPart: &half}}, LimitPower},
		{"the driver counted only heat", []reading{{thermoPart: &half}}, LimitThermal},
	} {
		if got := limitedBy(tc.rs); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

func TestWindowIsAnnotated(t *testing.T) {
	w := Repetition{Ms: 80}
	w.annotate(readings("power-cap", "none", "power-cap,hw-thermal"))
	if *w.ClockMHz != 1510 || *w.PowerW != 690 || w.TempC != nil || w.Throttle != "power-cap,hw-thermal" || w.Dropped != "hw-thermal" {
		t.Errorf("%+v", w)
	}
	w = Repetition{Ms: 80}
	w.annotate(readings("power-cap"))
	if w.Dropped != "" {
		t.Errorf("a window at the power cap is dropped: %q", w.Dropped)
	}
}

// A GPU that heat holds down all the time has that speed.
func TestMostlyHotWindowsCount(t *testing.T) {
	ready := &childReady{Class: pal.ClassA, Kernel: "wgmma1"}
	s := session{plan: DefaultPlan()}
	s.finish(ready, []Repetition{{Ms: 90, Dropped: "hw-thermal"}, {Ms: 92, Dropped: "hw-thermal"}, {Ms: 80}}, nil)
	a := s.result.Apps[0]
	if a.Ms != 90 || a.LimitedBy != LimitThermal {
		t.Errorf("%+v", a)
	}
	s = session{plan: DefaultPlan()}
	s.finish(ready, []Repetition{{Ms: 90, Dropped: "hw-thermal"}, {Ms: 80}, {Ms: 80}}, nil)
	if a := s.result.Apps[0]; a.Ms != 80 || a.LimitedBy != LimitUnknown {
		t.Errorf("%+v", a)
	}
	s = session{plan: DefaultPlan()}
	s.finish(ready, []Repetition{{Ms: 90, Dropped: sdcDropped}}, nil)
	if len(s.result.Apps) != 0 {
		t.Errorf("a wrong result counts: %+v", s.result.Apps)
	}
}

// devices are GPUs as the driver describes them.
func devices() map[string]cuda.Device {
	return map[string]cuda.Device{
		"h200":    {Name: "NVIDIA H200", Major: 9, SMs: 132, ClockMHz: 1980, MemClockMHz: 3201, BusBits: 6144, MemoryBytes: 140 << 30},
		"a100":    {Name: "NVIDIA A100-SXM4-80GB", Major: 8, SMs: 108, ClockMHz: 1410, MemClockMHz: 1593, BusBits: 5120, MemoryBytes: 80 << 30},
		"v100":    {Name: "Tesla V100-SXM2-16GB", Major: 7, SMs: 80, ClockMHz: 1530, MemClockMHz: 877, BusBits: 4096, MemoryBytes: 16 << 30},
		"rtx5000": {Name: "Quadro RTX 5000", Major: 7, Minor: 5, SMs: 48, ClockMHz: 1815, MemClockMHz: 7001, BusBits: 256, MemoryBytes: 16 << 30},
		"b200":    {Name: "NVIDIA B200", Major: 10, SMs: 148, ClockMHz: 1965, MemClockMHz: 3996, BusBits: 8192, MemoryBytes: 180 << 30},
		"rtxpro":  {Name: "NVIDIA RTX PRO 6000 Blackwell Server Edition", Major: 12, SMs: 188, ClockMHz: 2617, MemClockMHz: 14001, BusBits: 512, MemoryBytes: 96 << 30},
		"gb10":    {Name: "NVIDIA GB10", Major: 12, Minor: 1, SMs: 48, ClockMHz: 2418, MemClockMHz: 8533, BusBits: 256, MemoryBytes: 122570 << 20, Integrated: true},
		"orin":    {Name: "Orin", Major: 8, Minor: 7, SMs: 16, ClockMHz: 1300, MemClockMHz: 1300, BusBits: 128, MemoryBytes: 30623 << 20, Integrated: true},
		"h20":     {Name: "NVIDIA H20", Major: 9, SMs: 78, ClockMHz: 1980, MemClockMHz: 2619, BusBits: 6144, MemoryBytes: 96 << 30},
	}
}

// A key stands for this work. Changing any of it makes all measured times incomparable:
// give the kernel a new version, and only then change this test.
func TestWorkIsFixedPerModel(t *testing.T) {
	want := map[string]string{
		"h200 A": "wgmma1*54000", "h200 B": "8*(wgmma1*3400,triad1*134086656*3)", "h200 C": "triad1*134086656*49", "h200 D": "gather1*570/4294967296",
		"a100 A": "mma1*110000", "a100 B": "8*(mma1*6900,triad1*133595136*1)", "a100 C": "triad1*133595136*20", "a100 D": "gather1*290/4294967296",
		"v100 A": "ffma1*48000", "v100 B": "8*(ffma1*3000,triad1*66846720*1)", "v100 C": "triad1*66846720*18", "v100 D": "gather1*170/2147483648",
	}
	got := map[string]string{}
	for _, name := range []string{"h200", "a100", "v100"} {
		dev := devices()[name]
		for _, class := range pal.AppClasses() {
			got[name+" "+string(class)] = describe(dev, class, strongest(dev))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func strongest(d cuda.Device) kernel {
	for _, k := range computeKernels() {
		if k.suits(d) {
			return k
		}
	}
	return kernel{}
}

// The computed peaks match the vendor's published ones, in TFLOP/s and GB/s.
func TestPeaks(t *testing.T) {
	for _, tc := range []struct {
		device                string
		clock                 float64
		tensor, fp32, memoryG float64
	}{
		{"h20", 1850, 148, 36.9, 4023}, {"h200", 1830, 989, 61.8, 4917}, {"a100", 1410, 312, 19.5, 2039}, {"v100", 1530, 0, 15.7, 898},
		{"b200", 1856, 2250, 70.3, 8184}, {"rtxpro", 2617, 503.8, 126, 1792}, {"rtx5000", 1815, 0, 11.15, 448},
		{"gb10", 2418, 118.8, 29.7, 0}, {"orin", 1300, 42.5, 5.3, 0},
	} {
		d := devices()[tc.device]
		for what, v := range map[string][2]float64{
			"tensor": {tensorPeak(d, tc.clock) / 1e12, tc.tensor}, "fp32": {fp32Peak(d, tc.clock) / 1e12, tc.fp32},
			"memory": {memoryPeak(d, 0) / 1e9, tc.memoryG},
		} {
			if math.Abs(v[0]-v[1]) > 0.01*v[1] {
				t.Errorf("%s %s: %.4g, published %.4g", tc.device, what, v[0], v[1])
			}
		}
	}
}

// A unit fits into the memory and takes about 80 ms. If the peak is not known, as for memory that
// the GPU shares with the processor, the unit takes this long at 80 % (gather: 10 %) of 273 GB/s.
func TestUnitsFitEveryModel(t *testing.T) {
	for name, d := range devices() {
		k := strongest(d)
		if n := triadSteps(d); 3*16*n > d.MemoryBytes/2 || n%(4*4*uint64(d.SMs)*512) != 0 {
			t.Errorf("%s: triad of %d steps", name, n)
		}
		ms := 1e3 * float64(k.iterations(d, unitMs)) * k.workPerIteration(d) / (k.peak(d, float64(d.ClockMHz)) * k.expected)
		if ms < 75 || ms > 85 {
			t.Errorf("%s: a unit of %s takes %.1f ms on a healthy GPU", name, k.id, ms)
		}
		peak := memoryPeak(d, 0)
		if peak == 0 {
			peak = 273e9
		}
		triad := 1e3 * float64(triadLaunches(d, unitMs)) * 48 * float64(triadSteps(d)) / (0.8 * peak)
		g := gatherKernel()
		gather := 1e3 * float64(g.iterations(d, unitMs)) * g.workPerIteration(d) / (0.1 * peak / sectorBytes)
		if triad < 60 || triad > 100 || gather < 75 || gather > 85 {
			t.Errorf("%s: a unit takes %.1f ms (triad) and %.1f ms (gather)", name, triad, gather)
		}
	}
}

func TestTelemetryIsPutToItsWindow(t *testing.T) {
	start := time.Now()
	tel := &telemetry{}
	for i, clock := range []int64{1000, 1100, 1200, 1300} {
		tel.add(newReading(start.Add(time.Duration(i)*time.Second), gpu.Sample{SMClockMHz: new(clock), Throttle: new("none")}))
	}
	w := Repetition{}
	w.annotate(tel.between(start.Add(time.Second), start.Add(2*time.Second)))
	if *w.ClockMHz != 1150 || w.PowerW != nil {
		t.Errorf("%+v", w)
	}
}

// A rate is judged at the measured clock, not only at the largest one.
func TestImplausibleAtTheMeasuredClock(t *testing.T) {
	ready := &childReady{Kernel: idWGMMA, Peak: 1070, ClockMHz: 1980, ClockBound: true}
	for _, tc := range []struct {
		rate, clock float64
		want        string
	}{
		{780, 1500, ""}, {780, 345, "780 TFLOP/s is not plausible: at 345 MHz the hardware cannot exceed 186.4"},
		{1060, 1950, ""}, {1060, 0, ""}, {1250, 2400, ""}, {1500, 2400, "1500 TFLOP/s is not plausible: at 2400 MHz the hardware cannot exceed 1297"},
		{1200, 1980, "1200 TFLOP/s is not plausible: the hardware cannot exceed 1070"},
	} {
		a := App{Rate: tc.rate, Unit: "TFLOP/s"}
		if got := a.judge(ready, tc.clock, 0); got != tc.want {
			t.Errorf("%v at %v MHz: %q, want %q", tc.rate, tc.clock, got, tc.want)
		}
	}
}

// Peaks agree with the vendor's published rates for each model, in TFLOP/s at a clock.
func TestTensorPeaks(t *testing.T) {
	for _, tc := range []struct {
		model string
		major int
		minor int
		sms   int
		mhz   float64
		want  float64
	}{
		{"NVIDIA H20", 9, 0, 78, 1850, 148}, {"NVIDIA H20-3e", 9, 0, 78, 1850, 148},
		{"NVIDIA H100 80GB HBM3", 9, 0, 132, 1830, 989}, {"NVIDIA H100 PCIe", 9, 0, 114, 1620, 756}, {"NVIDIA H100 NVL", 9, 0, 132, 1545, 835},
		{"NVIDIA H200", 9, 0, 132, 1830, 989}, {"NVIDIA GH200 480GB", 9, 0, 132, 1830, 989},
		{"NVIDIA A100-SXM4-80GB", 8, 0, 108, 1410, 312}, {"NVIDIA A100 80GB PCIe", 8, 0, 108, 1410, 312}, {"NVIDIA A30", 8, 0, 56, 1440, 165},
		{"NVIDIA A10", 8, 6, 72, 1695, 125}, {"NVIDIA A10G", 8, 6, 80, 1710, 70}, {"NVIDIA A2", 8, 6, 10, 1770, 18},
		{"NVIDIA L40S", 8, 9, 142, 2520, 362}, {"NVIDIA L40", 8, 9, 142, 2490, 181}, {"NVIDIA L4", 8, 9, 58, 2040, 121},
		{"NVIDIA L20", 8, 9, 92, 2520, 119.5},
	} {
		peak := tensorPeak(cuda.Device{Name: tc.model, Major: tc.major, Minor: tc.minor, SMs: tc.sms}, tc.mhz) / 1e12
		if math.Abs(peak-tc.want) > 0.02*tc.want {
			t.Errorf("%s: %.4g TFLOP/s, want %v", tc.model, peak, tc.want)
		}
	}
}
