// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

//go:build cgo && linux

package nvml

import (
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
)

// growth tracks how fast a counter grows.
type growth struct {
	at    time.Time
	count float64
	fast  bool // verdict on the last rate
}

// next returns the state after a reading. fast judges the rate per second over at least the time
// span, given the previous verdict (was). The previous verdict stays until the time span has
// passed, because scans triggered by events can be close together. The previous verdict also stays
// if the counter was reset.
func (g growth) next(now time.Time, count float64, span time.Duration, fast func(perSecond float64, was bool) bool) growth {
	took := now.Sub(g.at)
	switch {
	case g.at.IsZero() || count < g.count:
		return growth{now, count, g.fast}
	case took < span:
		return g
	}
	return growth{now, count, fast((count-g.count)/took.Seconds(), g.fast)}
}

// grows adds a reading of a counter and reports whether the counter grows too fast.
func (b *Backend) grows(counter string, count float64, span time.Duration, fast func(perSecond float64, was bool) bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.counters[counter].next(time.Now(), count, span, fast)
	b.counters[counter] = g
	return g.fast
}

// replaysOver is the minimum time over which a rate of PCIe replays is computed.
const replaysOver = 30 * time.Second

// signals reads the values that decide health. [gpu.Questions] says how a failed question
// counts against a GPU.
func (b *Backend) signals(r *reader, dev nvml.Device, uuid string) gpu.Signals {
	var s gpu.Signals
	if v, ok := fields(r, dev, nvml.FI_DEV_GET_GPU_RECOVERY_ACTION)[nvml.FI_DEV_GET_GPU_RECOVERY_ACTION]; ok {
		s.Recovery = new(int(v))
	}
	remapFailed, ok := value(r, "nvmlDeviceGetRemappedRows", func() (failed bool, ret nvml.Return) {
		_, _, _, failed, ret = dev.GetRemappedRows()
		return failed, ret
	})
	s.RemapFailed = remapFailed
	if !ok {
		s.RetiredPages, s.RetirementPending = retiredPages(r, dev)
	}
	if e, ok := value(r, "nvmlDeviceGetSramEccErrorStatus", dev.GetSramEccErrorStatus); ok {
		s.SRAMFault = e.BThresholdExceeded != 0
	}
	reasons, _ := throttleReasons(r, dev)
	has := func(bit uint64) bool { return reasons&bit != 0 }
	s.PowerBrake = has(nvml.ClocksThrottleReasonHwPowerBrakeSlowdown)
	s.ThermalSlowdown = has(nvml.ClocksThrottleReasonHwThermalSlowdown) || has(nvml.ClocksThrottleReasonHwSlowdown) && !s.PowerBrake
	s.FabricLimits = fabricLimits(r, dev)
	s.NVLinkErrors = b.nvlinkErrors(r, dev, uuid)
	s.PCIeDegraded = b.pcieDegraded(r, dev, uuid)
	vitals(r, dev)
	return s
}

// vitals asks questions that every GPU answers. vitals ignores the answers, because only a failure
// to answer matters.
func vitals(r *reader, dev nvml.Device) {
	value(r, "nvmlDeviceGetTemperature", func() (uint32, nvml.Return) { return dev.GetTemperature(nvml.TEMPERATURE_GPU) })
	value(r, "nvmlDeviceGetUtilizationRates", dev.GetUtilizationRates)
	value(r, "nvmlDeviceGetClockInfo", func() (uint32, nvml.Return) { return dev.GetClockInfo(nvml.CLOCK_SM) })
	value(r, "nvmlDeviceGetPowerUsage", dev.GetPowerUsage)
}

func throttleReasons(r *reader, dev nvml.Device) (uint64, bool) {
	if v, ok := value(r, "nvmlDeviceGetCurrentClocksEventReasons", dev.GetCurrentClocksEventReasons); ok {
		return v, true
	}
	return value(r, "nvmlDeviceGetCurrentClocksThrottleReasons", dev.GetCurrentClocksThrottleReasons)
}

// retiredPages returns the number of retired pages (before Ampere), and whether more are
// retired at the next reset.
func retiredPages(r *reader, dev nvml.Device) (sum *int64, pending bool) {
	for _, cause := range []nvml.PageRetirementCause{nvml.PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS, nvml.PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR} {
		pages, ok := value(r, "nvmlDeviceGetRetiredPages", func() ([]uint64, nvml.Return) { return dev.GetRetiredPages(cause) })
		if !ok {
			continue
		}
		n := int64(len(pages))
		if sum != nil {
			n += *sum
		}
		sum = &n
	}
	waits, _ := value(r, "nvmlDeviceGetRetiredPagesPendingStatus", dev.GetRetiredPagesPendingStatus)
	return sum, waits == nvml.FEATURE_ENABLED
}

// fields returns the values of those fields that the GPU has.
func fields(r *reader, dev nvml.Device, ids ...uint32) map[uint32]float64 {
	values := make([]nvml.FieldValue, len(ids))
	for i, id := range ids {
		values[i].FieldId = id
	}
	out := make(map[uint32]float64, len(ids))
	for _, v := range answered(r, dev, values) {
		out[v.FieldId], _ = fieldValue(v)
	}
	return out
}

// answered queries fields, and returns the fields that the GPU has. Ids from 251 on were renumbered
// between driver branches and are never queried.
func answered(r *reader, dev nvml.Device, asked []nvml.FieldValue) []nvml.FieldValue {
	values, _ := value(r, "nvmlDeviceGetFieldValues", func() ([]nvml.FieldValue, nvml.Return) { return asked, dev.GetFieldValues(asked) })
	return slices.DeleteFunc(values, func(v nvml.FieldValue) bool {
		_, ok := fieldValue(v)
		return nvml.Return(v.NvmlReturn) != nvml.SUCCESS || !ok
	})
}

// fieldValue returns the value of a field, whose unused bytes have undefined content. ok is false
// if NVML does not have the value.
func fieldValue(fv nvml.FieldValue) (v float64, ok bool) {
	raw := binary.LittleEndian.Uint64(fv.Value[:])
	switch nvml.ValueType(fv.ValueType) {
	case nvml.VALUE_TYPE_DOUBLE:
		return math.Float64frombits(raw), true
	case nvml.VALUE_TYPE_UNSIGNED_INT:
		return float64(uint32(raw)), available(uint32(raw))
	case nvml.VALUE_TYPE_SIGNED_INT:
		return float64(int32(raw)), true
	case nvml.VALUE_TYPE_SIGNED_LONG_LONG:
		return float64(int64(raw)), true
	case nvml.VALUE_TYPE_UNSIGNED_SHORT:
		return float64(uint16(raw)), true
	}
	return float64(raw), available(raw)
}

// widthVaries is the first generation of PCIe whose idle links use fewer lanes (L0p). For example,
// an idle Vera Rubin GPU uses 2 of 16 lanes.
const widthVaries = 6

// pcieDegraded reports whether the link has less than half of its lanes, or more replays per minute
// and lane than a bit error rate of 1e-12 explains. Both are DCGM's limits.
func (b *Backend) pcieDegraded(r *reader, dev nvml.Device, uuid string) bool {
	width, okWidth := value(r, "nvmlDeviceGetCurrPcieLinkWidth", dev.GetCurrPcieLinkWidth)
	most, okMost := value(r, "nvmlDeviceGetMaxPcieLinkWidth", dev.GetMaxPcieLinkWidth)
	gen, _ := value(r, "nvmlDeviceGetCurrPcieLinkGeneration", dev.GetCurrPcieLinkGeneration)
	narrow := okWidth && okMost && 2*width < most && gen < widthVaries
	count, ok := value(r, "nvmlDeviceGetPcieReplayCounter", dev.GetPcieReplayCounter)
	if !ok || !available(count) {
		return narrow
	}
	return b.grows("PCIe replays of "+uuid, float64(count), replaysOver, above(replayLimit(gen, width))) || narrow
}

// replayLimit returns the maximum number of replays per minute of a healthy link.
func replayLimit(generation, lanes int) float64 {
	limits := [...]float64{0, 0.15, 0.3, 0.48, 0.96, 1.92, 3.84}
	if generation < 1 || generation >= len(limits) || lanes < 1 {
		return math.Inf(1)
	}
	return limits[generation] * float64(lanes)
}

// above returns a function that reports whether a rate per second is above a limit per minute.
func above(perMinute float64) func(perSecond float64, _ bool) bool {
	return func(perSecond float64, _ bool) bool { return 60*perSecond > perMinute }
}
