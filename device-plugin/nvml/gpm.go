// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

//go:build cgo && linux

package nvml

import (
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
)

// gpmState is the state of a GPU between two samples. The state belongs to the goroutine that
// claimed the GPU.
type gpmState struct {
	busy  bool
	asked bool // it is known whether the GPU has GPM
	has   bool
	last  map[string]nvml.GpmSample // by device id
	caps  map[string]capTime        // by device id
}

// capTime is the total time that the clocks have been held down, in nanoseconds.
type capTime struct {
	at             time.Time
	power, thermal float64
}

// capped computes the share of the time since the last sample in which power or heat held the
// clocks down.
func (g *gpmState) capped(r *reader, dev nvml.Device, id string, s *gpu.Sample) {
	values := fields(r, dev, nvml.FI_DEV_PERF_POLICY_POWER, nvml.FI_DEV_PERF_POLICY_THERMAL)
	power, okPower := values[nvml.FI_DEV_PERF_POLICY_POWER]
	thermal, okThermal := values[nvml.FI_DEV_PERF_POLICY_THERMAL]
	if !okPower && !okThermal {
		return
	}
	now := capTime{time.Now(), power, thermal}
	last, seen := g.caps[id]
	g.caps[id] = now
	ns := float64(now.at.Sub(last.at).Nanoseconds())
	if !seen || ns <= 0 {
		return
	}
	share := func(now, last float64) *float64 { return new(min(100, max(0, 100*(now-last)/ns))) }
	if okPower {
		s.PowerCapPercent = share(now.power, last.power)
	}
	if okThermal {
		s.ThermalCapPercent = share(now.thermal, last.thermal)
	}
}

// profile reads the profiling metrics (Hopper and later) for the time since the last sample.
func (b *Backend) profile(g *gpmState, id string, h handle, s *gpu.Sample) {
	sample, ret := b.lib.GpmSampleAlloc()
	if ret != nvml.SUCCESS {
		return
	}
	if h.parent == nil {
		ret = h.dev.GpmSampleGet(sample)
	} else {
		ret = h.parent.GpmMigSampleGet(h.gi, sample)
	}
	if ret != nvml.SUCCESS {
		sample.Free()
		return
	}
	last := g.last[id]
	g.last[id] = sample
	if last == nil {
		return
	}
	b.metrics(last, sample, s)
	last.Free()
}

func (b *Backend) supportsGPM(r *reader, g *gpmState, h handle) bool {
	if g.asked {
		return g.has
	}
	dev := h.dev
	if h.parent != nil {
		dev = h.parent
	}
	g.asked = true
	for _, symbol := range []string{"nvmlGpmSampleAlloc", "nvmlGpmSampleGet", "nvmlGpmSampleFree", "nvmlGpmMetricsGet"} {
		if !b.symbols.has(symbol) {
			return false
		}
	}
	if h.parent != nil && !b.symbols.has("nvmlGpmMigSampleGet") {
		return false
	}
	support, ok := value(r, "nvmlGpmQueryDeviceSupport", dev.GpmQueryDeviceSupport)
	g.has = ok && support.IsSupportedDevice != 0
	return g.has
}

// metrics computes the loads between two samples from which the placer classifies jobs.
func (b *Backend) metrics(last, now nvml.GpmSample, s *gpu.Sample) {
	get := nvml.GpmMetricsGetType{NumMetrics: 2, Sample1: last, Sample2: now}
	get.Metrics[0].MetricId = uint32(nvml.GPM_METRIC_ANY_TENSOR_UTIL)
	get.Metrics[1].MetricId = uint32(nvml.GPM_METRIC_DRAM_BW_UTIL)
	if b.lib.GpmMetricsGet(&get) != nvml.SUCCESS {
		return
	}
	for i, into := range []**float64{&s.TensorActivePercent, &s.DRAMActivePercent} {
		if nvml.Return(get.Metrics[i].NvmlReturn) == nvml.SUCCESS {
			*into = new(get.Metrics[i].Value)
		}
	}
}
