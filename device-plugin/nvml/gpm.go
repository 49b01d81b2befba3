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
	pcie  pcieTraffic
}

// capTime is the total time that the clocks have been held down, in nanoseconds.
type capTime struct {
	at             time.Time
	power, thermal float64
}

// counted reads the temperature of the memory. It also computes the share of the time since the
// last sample in which power or heat held the clocks down.
func (g *gpmState) counted(r *reader, dev nvml.Device, id string, s *gpu.Sample) {
	values := fields(r, dev, nvml.FI_DEV_MEMORY_TEMP, nvml.FI_DEV_PERF_POLICY_POWER, nvml.FI_DEV_PERF_POLICY_THERMAL)
	if t := values[nvml.FI_DEV_MEMORY_TEMP]; t > 0 { // 0 means that the memory has no sensor
		s.MemoryTemperatureC = new(int64(t))
	}
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

// metrics computes the metrics between two samples. NVML's PCIe and NVLink rates are in MiB/s.
func (b *Backend) metrics(last, now nvml.GpmSample, s *gpu.Sample) {
	const mibToMB = 1.048576
	wants := []struct {
		id    nvml.GpmMetricId
		into  **float64
		scale float64
	}{
		{nvml.GPM_METRIC_SM_UTIL, &s.SMActivePercent, 1},
		{nvml.GPM_METRIC_SM_OCCUPANCY, &s.SMOccupancyPercent, 1},
		{nvml.GPM_METRIC_ANY_TENSOR_UTIL, &s.TensorActivePercent, 1},
		{nvml.GPM_METRIC_DRAM_BW_UTIL, &s.DRAMActivePercent, 1},
		{nvml.GPM_METRIC_PCIE_RX_PER_SEC, &s.PCIeRxMBPerS, mibToMB},
		{nvml.GPM_METRIC_PCIE_TX_PER_SEC, &s.PCIeTxMBPerS, mibToMB},
		{nvml.GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC, &s.NVLinkRxMBPerS, mibToMB},
		{nvml.GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC, &s.NVLinkTxMBPerS, mibToMB},
	}
	get := nvml.GpmMetricsGetType{NumMetrics: uint32(len(wants)), Sample1: last, Sample2: now}
	for i, w := range wants {
		get.Metrics[i].MetricId = uint32(w.id)
	}
	if b.lib.GpmMetricsGet(&get) != nvml.SUCCESS {
		return
	}
	for i, w := range wants {
		if nvml.Return(get.Metrics[i].NvmlReturn) == nvml.SUCCESS {
			*w.into = new(get.Metrics[i].Value * w.scale)
		}
	}
}
