// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

//go:build cgo && linux

package nvml

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
)

// counters are readings that only their growth says something about.
type counters struct {
	replays replays
	links   linkErrors
}

// replays counts the PCIe packets that were sent again.
type replays struct {
	at    time.Time
	count int
	many  bool // as of the last whole replaysOver
}

// replaysOver is the shortest time that a rate of replays is taken over.
const replaysOver = 30 * time.Second

// signals reads what decides about health. What a GPU does not answer says
// nothing against it.
func (b *Backend) signals(r *reader, dev nvml.Device, uuid string) gpu.Signals {
	var s gpu.Signals
	if v, ok := fields(r, dev, nvml.FI_DEV_GET_GPU_RECOVERY_ACTION)[nvml.FI_DEV_GET_GPU_RECOVERY_ACTION]; ok {
		s.Recovery = new(int(v))
	}
	type remap struct{ pending, failed bool }
	if m, ok := value(r, "nvmlDeviceGetRemappedRows", func() (remap, nvml.Return) {
		_, _, pending, failed, ret := dev.GetRemappedRows()
		return remap{pending, failed}, ret
	}); ok {
		s.RemapPending, s.RemapFailed = m.pending, m.failed
	} else {
		s.RetiredPages = retiredPages(r, dev)
	}
	if e, ok := value(r, "nvmlDeviceGetSramEccErrorStatus", dev.GetSramEccErrorStatus); ok {
		s.SRAMFault = e.BThresholdExceeded != 0
	}
	reasons, _ := throttleReasons(r, dev)
	s.ThermalSlowdown = reasons&(hwThermal) != 0 || reasons&hwSlowdown != 0 && reasons&hwBrake == 0
	s.PowerBrake = reasons&hwBrake != 0
	s.Fabric, s.FabricLimits = fabricState(r, dev)
	s.NVLinkErrors = b.nvlinkErrors(r, dev, uuid)
	s.PCIeDegraded = b.pcieDegraded(r, dev, uuid)
	return s
}

// Bits of the clocks event reasons.
const (
	gpuIdle     = 0x1
	appClocks   = 0x2
	swPowerCap  = 0x4
	hwSlowdown  = 0x8
	syncBoost   = 0x10
	swThermal   = 0x20
	hwThermal   = 0x40
	hwBrake     = 0x80
	displayClok = 0x100
)

func throttleReasons(r *reader, dev nvml.Device) (uint64, bool) {
	if v, ok := value(r, "nvmlDeviceGetCurrentClocksEventReasons", dev.GetCurrentClocksEventReasons); ok {
		return v, true
	}
	return value(r, "nvmlDeviceGetCurrentClocksThrottleReasons", dev.GetCurrentClocksThrottleReasons)
}

// retiredPages counts the pages retired before Ampere.
func retiredPages(r *reader, dev nvml.Device) int {
	n := 0
	for _, cause := range []nvml.PageRetirementCause{nvml.PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS, nvml.PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR} {
		pages, _ := value(r, "nvmlDeviceGetRetiredPages", func() ([]uint64, nvml.Return) { return dev.GetRetiredPages(cause) })
		n += len(pages)
	}
	return n
}

// fields asks for field values, and returns those that the GPU has. Ids from 251
// on were renumbered between driver branches and are never asked for.
func fields(r *reader, dev nvml.Device, ids ...uint32) map[uint32]float64 {
	values := make([]nvml.FieldValue, len(ids))
	for i, id := range ids {
		values[i].FieldId = id
	}
	if _, ok := value(r, "nvmlDeviceGetFieldValues", func() (struct{}, nvml.Return) { return struct{}{}, dev.GetFieldValues(values) }); !ok {
		return nil
	}
	out := make(map[uint32]float64, len(ids))
	for _, v := range values {
		if nvml.Return(v.NvmlReturn) == nvml.SUCCESS && fieldAvailable(v) {
			out[v.FieldId] = fieldNumber(v)
		}
	}
	return out
}

// fieldAvailable is available for a field, whose unused bytes may hold anything.
func fieldAvailable(fv nvml.FieldValue) bool {
	raw := binary.LittleEndian.Uint64(fv.Value[:])
	switch nvml.ValueType(fv.ValueType) {
	case nvml.VALUE_TYPE_UNSIGNED_INT:
		return available(uint32(raw))
	case nvml.VALUE_TYPE_UNSIGNED_LONG, nvml.VALUE_TYPE_UNSIGNED_LONG_LONG:
		return available(raw)
	}
	return true
}

func fieldNumber(fv nvml.FieldValue) float64 {
	raw := binary.LittleEndian.Uint64(fv.Value[:])
	switch nvml.ValueType(fv.ValueType) {
	case nvml.VALUE_TYPE_DOUBLE:
		return math.Float64frombits(raw)
	case nvml.VALUE_TYPE_UNSIGNED_INT:
		return float64(uint32(raw))
	case nvml.VALUE_TYPE_SIGNED_INT:
		return float64(int32(raw))
	case nvml.VALUE_TYPE_SIGNED_LONG_LONG:
		return float64(int64(raw))
	case nvml.VALUE_TYPE_UNSIGNED_SHORT:
		return float64(uint16(raw))
	}
	return float64(raw)
}

// pcieDegraded: less than half of the lanes, or more packets sent again a
// minute and lane than a bit error rate of 1e-12 explains (DCGM's limits).
func (b *Backend) pcieDegraded(r *reader, dev nvml.Device, uuid string) bool {
	width, okWidth := value(r, "nvmlDeviceGetCurrPcieLinkWidth", dev.GetCurrPcieLinkWidth)
	most, okMost := value(r, "nvmlDeviceGetMaxPcieLinkWidth", dev.GetMaxPcieLinkWidth)
	narrow := okWidth && okMost && 2*width < most
	count, ok := value(r, "nvmlDeviceGetPcieReplayCounter", dev.GetPcieReplayCounter)
	if !ok || !available(count) {
		return narrow
	}
	gen, _ := value(r, "nvmlDeviceGetCurrPcieLinkGeneration", dev.GetCurrPcieLinkGeneration)
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.counters[uuid]
	c.replays = c.replays.next(time.Now(), count, replayLimit(gen, width))
	b.counters[uuid] = c
	return narrow || c.replays.many
}

// replayLimit is how many replays a minute a link may have.
func replayLimit(generation, lanes int) float64 {
	limits := [...]float64{0, 0.15, 0.3, 0.48, 0.96, 1.92, 3.84}
	if generation < 1 || generation >= len(limits) || lanes < 1 {
		return math.Inf(1)
	}
	return limits[generation] * float64(lanes)
}

// next is what is known after a reading. Until enough time has passed for another
// rate the last verdict stays: scans that an event asks for come close together.
func (r replays) next(now time.Time, count int, limit float64) replays {
	if r.at.IsZero() || count < r.count { // counters that went back were reset
		return replays{at: now, count: count, many: r.many}
	}
	if now.Sub(r.at) < replaysOver {
		return r
	}
	return replays{at: now, count: count, many: float64(count-r.count)/now.Sub(r.at).Minutes() > limit}
}
