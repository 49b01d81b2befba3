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

// If Sample takes longer than stallAfter, it asks all remaining GPUs in parallel. stallAfter is at
// least the interval of statistics. A shorter timer would cause extra wakeups, because Go wakes up
// even for a stopped timer.
const stallAfter = time.Second

// Sample reads the statistics of one GPU after the other, because each further thread would cost a
// wakeup, and an idle node should sleep. A GPU that hangs is left out, and is not asked again until
// its calls return.
func (b *Backend) Sample(ids []string) map[string]gpu.Sample {
	byGPU := b.askable(ids)
	todo, answers := make(chan asked, len(byGPU)), make(chan map[string]gpu.Sample, len(byGPU))
	for _, a := range byGPU {
		todo <- a
	}
	close(todo)
	read := func() {
		for a := range todo {
			answers <- b.sampleGPU(a)
		}
	}
	go read()
	stall, stalled := min(stallAfter, b.within/2), false
	timer := time.NewTimer(stall)
	defer timer.Stop()
	all := map[string]gpu.Sample{}
	for open := len(byGPU); open > 0; {
		select {
		case some := <-answers:
			maps.Copy(all, some)
			open--
		case <-timer.C:
			if stalled {
				return all
			}
			stalled = true
			timer.Reset(b.within - stall)
			for range len(todo) {
				go read()
			}
		}
	}
	return all
}

// sampleGPU reads the devices of a claimed GPU.
func (b *Backend) sampleGPU(a asked) map[string]gpu.Sample {
	defer b.release(a.claimed)
	out := map[string]gpu.Sample{}
	for id, h := range a.handles {
		if s, ok := b.sample(a.claimed, id, h); ok {
			out[id] = s
		}
	}
	return out
}

// asked is a claimed GPU, with the devices to read.
type asked struct {
	claimed *gpmState
	handles map[string]handle
}

// askable claims the GPUs of the devices, except those that are still being asked.
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

// claim returns the right to sample a GPU; nil if another goroutine has this right. Callers hold
// mu.
func (b *Backend) claim(physical string) *gpmState {
	g := b.gpm[physical]
	if g == nil {
		g = &gpmState{last: map[string]nvml.GpmSample{}, caps: map[string]capTime{}}
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

// owns reports whether a claim belongs to the present initialization of NVML. Handles of an earlier
// initialization are invalid.
func (b *Backend) owns(g *gpmState, physical string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.gpm[physical] == g
}

// sample reads one device of a claimed GPU.
func (b *Backend) sample(g *gpmState, id string, h handle) (gpu.Sample, bool) {
	b.conn.RLock()
	defer b.conn.RUnlock()
	if !b.up || !b.owns(g, h.physical) {
		return gpu.Sample{}, false
	}
	r := &reader{sym: b.symbols}
	var s gpu.Sample
	power := h.dev
	if h.parent != nil {
		power, s.ParentPowerAndTemperature = h.parent, true
	}
	b.memory(r, h, &s)
	if h.parent == nil {
		utilization(r, h.dev, &s)
		corrected(r, h.dev, &s)
	}
	heat(r, power, &s)
	g.capped(r, power, id, &s)
	if b.supportsGPM(r, g, h) {
		b.profile(g, id, h, &s)
	}
	if r.lost {
		s.NoSampleReason = "gpu lost"
	}
	return s, true
}

func (b *Backend) memory(r *reader, h handle, s *gpu.Sample) {
	dev := h.dev
	// NVIDIA's documents differ on whether Used of version 2 includes Reserved.
	if m, ok := value(r, "nvmlDeviceGetMemoryInfo_v2", dev.GetMemoryInfo_v2); ok && m.Total > 0 && available(m.Total) && m.Free+m.Reserved <= m.Total {
		s.MemoryUsedMiB, s.MemoryTotalMiB = mebibytes(m.Total-m.Free), mebibytes(m.Total)
		s.MemoryAllocatedMiB = mebibytes(m.Total - m.Free - m.Reserved)
	} else if m, ret := answer(r, "nvmlDeviceGetMemoryInfo", dev.GetMemoryInfo); sharesMemory(m, ret) && h.parent == nil {
		s.MemoryTotalMiB, s.MemoryUsedMiB = b.systemMemoryMiB()
		s.SharesMemory = true
	} else if ret == nvml.SUCCESS {
		s.MemoryUsedMiB, s.MemoryTotalMiB = mebibytes(m.Used), mebibytes(m.Total)
	}
	if m, ok := value(r, "nvmlDeviceGetBAR1MemoryInfo", dev.GetBAR1MemoryInfo); ok {
		s.BAR1UsedMiB, s.BAR1TotalMiB = mebibytes(m.Bar1Used), mebibytes(m.Bar1Total)
	}
}

func utilization(r *reader, dev nvml.Device, s *gpu.Sample) {
	if u, ok := value(r, "nvmlDeviceGetUtilizationRates", dev.GetUtilizationRates); ok && available(u.Gpu) {
		s.GPUPercent, s.MemoryPercent = new(int64(u.Gpu)), new(int64(u.Memory))
	}
	s.EncoderPercent = number(r, "nvmlDeviceGetEncoderUtilization", 1, first(dev.GetEncoderUtilization))
	s.DecoderPercent = number(r, "nvmlDeviceGetDecoderUtilization", 1, first(dev.GetDecoderUtilization))
}

// heat reads the power, the temperature and the clocks.
func heat(r *reader, dev nvml.Device, s *gpu.Sample) {
	if mw, ok := value(r, "nvmlDeviceGetPowerUsage", dev.GetPowerUsage); ok && available(mw) {
		s.PowerW = new(float64(mw) / 1000)
	}
	s.PowerLimitW = number(r, "nvmlDeviceGetEnforcedPowerLimit", 1000, dev.GetEnforcedPowerLimit)
	s.TemperatureC = number(r, "nvmlDeviceGetTemperature", 1, func() (uint32, nvml.Return) { return dev.GetTemperature(nvml.TEMPERATURE_GPU) })
	s.SMClockMHz = number(r, "nvmlDeviceGetClockInfo", 1, func() (uint32, nvml.Return) { return dev.GetClockInfo(nvml.CLOCK_SM) })
	if reasons, ok := throttleReasons(r, dev); ok {
		s.Throttle = new(reasonNames(reasons))
	}
}

// reasonNames returns the names of the clock event reasons whose bits are set, lowest bit first.
func reasonNames(bits uint64) string {
	var out []string
	for i, name := range []string{
		"idle", "application-clocks", gpu.ThrottlePower, gpu.ThrottleHWSlowdown, "sync-boost", gpu.ThrottleSWThermal,
		gpu.ThrottleHWThermal, gpu.ThrottleBrake, "display-clocks",
	} {
		if bits&(1<<i) != 0 {
			out = append(out, name)
		}
	}
	if bits >= 1<<9 { // R615 has reasons beyond these nine
		out = append(out, gpu.ThrottleOther)
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, ",")
}

// corrected reads the counters of corrected memory errors.
func corrected(r *reader, dev nvml.Device, s *gpu.Sample) {
	at := func(where nvml.MemoryLocation) *int64 {
		return number(r, "nvmlDeviceGetMemoryErrorCounter", 1, func() (uint64, nvml.Return) {
			return dev.GetMemoryErrorCounter(nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.VOLATILE_ECC, where)
		})
	}
	s.ECC.L1 = at(nvml.MEMORY_LOCATION_L1_CACHE)
	s.ECC.L2 = at(nvml.MEMORY_LOCATION_L2_CACHE)
	s.ECC.Memory = at(nvml.MEMORY_LOCATION_DEVICE_MEMORY)
}
