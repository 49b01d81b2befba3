// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

//go:build cgo && linux

package nvml

import (
	"maps"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
)

// stallAfter is how long one GPU may keep the others from being read.
const stallAfter = 100 * time.Millisecond

// Sample reads statistics, one GPU after the other: every thread that joins in is
// woken for it, and a node at rest should sleep. When nothing comes for a while,
// somebody else goes on with the next: a GPU that hangs is left out, and not
// asked again while it does.
func (b *Backend) Sample(ids []string) map[string]gpu.Sample {
	byGPU := b.askable(ids)
	todo := make(chan asked, len(byGPU))
	for _, a := range byGPU {
		todo <- a
	}
	close(todo)
	results := make(chan map[string]gpu.Sample, len(byGPU))
	read := func() {
		for a := range todo {
			results <- b.sampleGPU(a)
		}
	}
	go read()
	stall := time.NewTimer(stallAfter)
	defer stall.Stop()
	all, begin := map[string]gpu.Sample{}, time.Now()
	for got := 0; got < len(byGPU); {
		select {
		case out := <-results:
			maps.Copy(all, out)
			got++
		case <-stall.C:
			if time.Since(begin) >= b.within {
				b.giveUp(todo)
				return all
			}
			go read()
		}
		stall.Reset(stallAfter)
	}
	return all
}

// sampleGPU reads the devices of a GPU that was claimed.
func (b *Backend) sampleGPU(a asked) map[string]gpu.Sample {
	defer b.release(a.claimed)
	out := map[string]gpu.Sample{}
	for id, h := range a.handles {
		if s, ok := b.sample(id, h); ok {
			out[id] = s
		}
	}
	return out
}

// giveUp releases the GPUs that nobody has begun to ask.
func (b *Backend) giveUp(todo <-chan asked) {
	for a := range todo {
		b.release(a.claimed)
	}
}

// asked is a GPU that is being asked, with its devices.
type asked struct {
	claimed *gpmState
	handles map[string]handle
}

// askable claims the GPUs of the devices; those that are still being asked are
// left out.
func (b *Backend) askable(ids []string) map[string]asked {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := map[string]asked{}
	for _, id := range ids {
		h, ok := b.handles[id]
		if !ok {
			continue
		}
		a, ok := out[h.physical]
		if !ok {
			a = asked{claimed: b.claim(h.physical), handles: map[string]handle{}}
			if a.claimed == nil {
				continue
			}
			out[h.physical] = a
		}
		a.handles[id] = h
	}
	return out
}

// claim takes the right to ask a GPU for a sample; nil while someone else has
// it. Callers hold mu.
func (b *Backend) claim(physical string) *gpmState {
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
	}
	heat(r, power, &s)
	b.counted(r, power, id, &s)
	g := b.state(id)
	gpm := b.supportsGPM(r, g, h)
	if gpm && b.opts.GPM {
		b.profile(g, id, h, &s)
	}
	if !gpm && h.parent == nil {
		traffic(r, own, &s)
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
// to measure, so GPUs with GPM are not asked: it counts traffic all the time.
func traffic(r *reader, dev nvml.Device, s *gpu.Sample) {
	rate := func(c nvml.PcieUtilCounter) *float64 {
		kb, ok := value(r, "nvmlDeviceGetPcieThroughput", func() (uint32, nvml.Return) { return dev.GetPcieThroughput(c) })
		if !ok {
			return nil
		}
		return gpu.Ptr(float64(kb) / 1000)
	}
	s.PCIeRxMBPerS, s.PCIeTxMBPerS = rate(nvml.PCIE_UTIL_RX_BYTES), rate(nvml.PCIE_UTIL_TX_BYTES)
}
