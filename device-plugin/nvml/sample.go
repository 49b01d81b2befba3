// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

//go:build cgo && linux

package nvml

import (
	"strings"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
)

// Sample reads statistics, one goroutine a GPU: one that hangs is left out, and
// not asked again while it does.
func (b *Backend) Sample(ids []string) map[string]gpu.Sample {
	b.mu.Lock()
	byGPU := map[string][]string{}
	handles := make(map[string]handle, len(ids))
	for _, id := range ids {
		if h, ok := b.handles[id]; ok {
			handles[id] = h
			byGPU[h.physical] = append(byGPU[h.physical], id)
		}
	}
	b.mu.Unlock()
	out := map[string]gpu.Sample{}
	var mu sync.Mutex
	done := make(chan struct{}, len(byGPU))
	waiting := 0
	for physical, members := range byGPU {
		claimed := b.claim(physical)
		if claimed == nil {
			continue // still being asked
		}
		waiting++
		go func() {
			defer func() { b.release(claimed); done <- struct{}{} }()
			for _, id := range members {
				s, ok := b.sample(id, handles[id])
				if ok {
					mu.Lock()
					out[id] = s
					mu.Unlock()
				}
			}
		}()
	}
	timeout := time.NewTimer(answerWithin)
	defer timeout.Stop()
	for ; waiting > 0; waiting-- {
		select {
		case <-done:
		case <-timeout.C:
			waiting = 1
		}
	}
	mu.Lock()
	defer mu.Unlock()
	complete := make(map[string]gpu.Sample, len(out))
	for id, s := range out {
		complete[id] = s
	}
	return complete
}

// claim takes the right to ask a GPU for a sample; nil while someone else has it.
func (b *Backend) claim(physical string) *gpmState {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.gpm[physical]
	if g == nil {
		g = &gpmState{}
		b.gpm[physical] = g
	}
	if g.busy {
		return nil
	}
	g.busy = true
	return g
}

func (b *Backend) release(g *gpmState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g.busy = false
}

// sample reads one device.
func (b *Backend) sample(id string, h handle) (gpu.Sample, bool) {
	b.conn.RLock()
	defer b.conn.RUnlock()
	if !b.up {
		return gpu.Sample{}, false
	}
	r := &reader{sym: b.symbols}
	var s gpu.Sample
	own := h.dev
	power := h.dev
	if h.parent != nil {
		power, s.ParentPowerAndTemperature = h.parent, true
	}
	memory(r, own, &s)
	if h.parent == nil {
		utilization(r, own, &s)
		faults(r, own, &s)
		traffic(r, own, &s)
	}
	heat(r, power, &s)
	b.capTimes(r, power, id, &s)
	if b.opts.GPM {
		b.profile(r, id, h, &s)
	}
	if r.lost {
		s.NoSampleReason = "gpu lost"
	}
	return s, true
}

func memory(r *reader, dev nvml.Device, s *gpu.Sample) {
	if m, ok := value(r, "nvmlDeviceGetMemoryInfo", dev.GetMemoryInfo); ok {
		s.MemoryUsedMiB, s.MemoryTotalMiB = gpu.Ptr(int64(m.Used>>20)), gpu.Ptr(int64(m.Total>>20))
	}
	if m, ok := value(r, "nvmlDeviceGetBAR1MemoryInfo", dev.GetBAR1MemoryInfo); ok {
		s.BAR1UsedMiB, s.BAR1TotalMiB = gpu.Ptr(int64(m.Bar1Used>>20)), gpu.Ptr(int64(m.Bar1Total>>20))
	}
}

func utilization(r *reader, dev nvml.Device, s *gpu.Sample) {
	if u, ok := value(r, "nvmlDeviceGetUtilizationRates", dev.GetUtilizationRates); ok {
		s.GPUPercent, s.MemoryPercent = gpu.Ptr(int64(u.Gpu)), gpu.Ptr(int64(u.Memory))
	}
	first := func(ask func() (uint32, uint32, nvml.Return)) func() (uint32, nvml.Return) {
		return func() (uint32, nvml.Return) { v, _, ret := ask(); return v, ret }
	}
	s.EncoderPercent = number(r, "nvmlDeviceGetEncoderUtilization", 1, first(dev.GetEncoderUtilization))
	s.DecoderPercent = number(r, "nvmlDeviceGetDecoderUtilization", 1, first(dev.GetDecoderUtilization))
}

// heat reads power, temperature and clocks.
func heat(r *reader, dev nvml.Device, s *gpu.Sample) {
	if mw, ok := value(r, "nvmlDeviceGetPowerUsage", dev.GetPowerUsage); ok {
		s.PowerW = gpu.Ptr(float64(mw) / 1000)
	}
	s.PowerLimitW = number(r, "nvmlDeviceGetEnforcedPowerLimit", 1000, dev.GetEnforcedPowerLimit)
	s.TemperatureC = number(r, "nvmlDeviceGetTemperature", 1, func() (uint32, nvml.Return) { return dev.GetTemperature(nvml.TEMPERATURE_GPU) })
	s.SMClockMHz = number(r, "nvmlDeviceGetClockInfo", 1, func() (uint32, nvml.Return) { return dev.GetClockInfo(nvml.CLOCK_SM) })
	s.MemoryClockMHz = number(r, "nvmlDeviceGetClockInfo", 1, func() (uint32, nvml.Return) { return dev.GetClockInfo(nvml.CLOCK_MEM) })
	if mj, ok := value(r, "nvmlDeviceGetTotalEnergyConsumption", dev.GetTotalEnergyConsumption); ok {
		s.EnergyJ = gpu.Ptr(float64(mj) / 1000)
	}
	if t, ok := field(r, dev, nvml.FI_DEV_MEMORY_TEMP); ok {
		s.MemoryTemperatureC = gpu.Ptr(int64(t))
	}
	if reasons, ok := throttleReasons(r, dev); ok {
		s.Throttle = gpu.Ptr(reasonNames(reasons))
	}
}

func reasonNames(bits uint64) string {
	var out []string
	for _, n := range []struct {
		bit  uint64
		name string
	}{
		{gpuIdle, "idle"}, {appClocks, "application-clocks"}, {swPowerCap, "power-cap"}, {hwSlowdown, "hw-slowdown"}, {syncBoost, "sync-boost"},
		{swThermal, "sw-thermal"}, {hwThermal, "hw-thermal"}, {hwBrake, "power-brake"}, {displayClok, "display-clocks"},
	} {
		if bits&n.bit != 0 {
			out = append(out, n.name)
		}
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, ",")
}

// faults reads error counters.
func faults(r *reader, dev nvml.Device, s *gpu.Sample) {
	at := func(where nvml.MemoryLocation) *int64 {
		return number(r, "nvmlDeviceGetMemoryErrorCounter", 1, func() (uint64, nvml.Return) {
			return dev.GetMemoryErrorCounter(nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.VOLATILE_ECC, where)
		})
	}
	s.ECCL1, s.ECCL2, s.ECCMemory = at(nvml.MEMORY_LOCATION_L1_CACHE), at(nvml.MEMORY_LOCATION_L2_CACHE), at(nvml.MEMORY_LOCATION_DEVICE_MEMORY)
	s.ECCUncorrected = number(r, "nvmlDeviceGetTotalEccErrors", 1, func() (uint64, nvml.Return) {
		return dev.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)
	})
	type remap struct {
		correctable, uncorrectable int
		pending, failed            bool
	}
	if m, ok := value(r, "nvmlDeviceGetRemappedRows", func() (remap, nvml.Return) {
		c, u, pending, failed, ret := dev.GetRemappedRows()
		return remap{c, u, pending, failed}, ret
	}); ok {
		s.RemapCorrectable, s.RemapUncorrectable = gpu.Ptr(int64(m.correctable)), gpu.Ptr(int64(m.uncorrectable))
		s.RemapPending, s.RemapFailed = &m.pending, &m.failed
	}
	s.PCIeReplays = number(r, "nvmlDeviceGetPcieReplayCounter", 1, dev.GetPcieReplayCounter)
}

// traffic reads PCIe throughput (KB/s in NVML). Each call takes the driver 20 ms
// to measure, so GPUs with GPM take it from there.
func traffic(r *reader, dev nvml.Device, s *gpu.Sample) {
	if r.sym.has("nvmlGpmSampleGet") {
		if support, ok := value(r, "nvmlGpmQueryDeviceSupport", dev.GpmQueryDeviceSupport); ok && support.IsSupportedDevice != 0 {
			return
		}
	}
	rate := func(c nvml.PcieUtilCounter) *float64 {
		kb, ok := value(r, "nvmlDeviceGetPcieThroughput", func() (uint32, nvml.Return) { return dev.GetPcieThroughput(c) })
		if !ok {
			return nil
		}
		return gpu.Ptr(float64(kb) / 1000)
	}
	s.PCIeRxMBPerS, s.PCIeTxMBPerS = rate(nvml.PCIE_UTIL_RX_BYTES), rate(nvml.PCIE_UTIL_TX_BYTES)
}
