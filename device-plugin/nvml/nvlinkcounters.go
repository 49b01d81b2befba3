// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

//go:build cgo && linux

package nvml

import (
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

const (
	// noisyFrom is the number of errors per second, on all NVLinks of a GPU, that makes the GPU
	// degraded. DCGM uses this limit for one link. A degraded GPU recovers if the number falls
	// below quietBelow.
	noisyFrom  = 100.0
	quietBelow = 10.0
	// noiseOver is the minimum time over which a rate is computed.
	noiseOver = time.Second
)

// nvlinkErrors returns the number of packets on the GPU's links that were damaged or sent again, or
// nil if the number is unknown. often reports whether the number grows fast.
func (b *Backend) nvlinkErrors(r *reader, dev nvml.Device, uuid string) (n *int64, often bool) {
	count, ok := linkErrorCount(r, dev)
	if !ok {
		return nil, false
	}
	return new(int64(count)), b.grows("NVLink errors of "+uuid, count, noiseOver, noisy)
}

func noisy(perSecond float64, was bool) bool {
	return perSecond > noisyFrom || was && perSecond >= quietBelow
}

// linkErrorCount adds up the GPU's error counters. One call is enough if the GPU has totals (up to
// Hopper) or counters of each link (NVLink 5). Otherwise linkErrorCount asks for each link.
func linkErrorCount(r *reader, dev nvml.Device) (sum float64, ok bool) {
	values := []nvml.FieldValue{
		{FieldId: nvml.FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL}, {FieldId: nvml.FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL},
		{FieldId: nvml.FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL}, {FieldId: nvml.FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL},
	}
	for link := range uint32(nvml.NVLINK_MAX_LINKS) {
		values = append(values, nvml.FieldValue{FieldId: nvml.FI_DEV_NVLINK_COUNT_RCV_ERRORS, ScopeId: link},
			nvml.FieldValue{FieldId: nvml.FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS, ScopeId: link})
	}
	for _, v := range answered(r, dev, values) {
		n, _ := fieldValue(v)
		sum, ok = sum+n, true
	}
	if ok {
		return sum, true
	}
	for link := range nvml.NVLINK_MAX_LINKS {
		n, answered := 0.0, false
		for _, kind := range []nvml.NvLinkErrorCounter{nvml.NVLINK_ERROR_DL_REPLAY, nvml.NVLINK_ERROR_DL_RECOVERY, nvml.NVLINK_ERROR_DL_CRC_FLIT, nvml.NVLINK_ERROR_DL_CRC_DATA} {
			if v, has := value(r, "nvmlDeviceGetNvLinkErrorCounter", func() (uint64, nvml.Return) { return dev.GetNvLinkErrorCounter(link, kind) }); has && available(v) {
				n, answered = n+float64(v), true
			}
		}
		if !answered {
			break
		}
		sum, ok = sum+n, true
	}
	return sum, ok
}
