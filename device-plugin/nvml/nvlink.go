// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

//go:build cgo && linux

package nvml

import (
	"fmt"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
)

// fabric is the state of a GPU's multi-GPU NVLink.
type fabric struct {
	state, status, health uint32
	clique                string
}

func readFabric(r *reader, dev nvml.Device) (fabric, bool) {
	return value(r, "nvmlDeviceGetGpuFabricInfoV", func() (fabric, nvml.Return) {
		info, ret := dev.GetGpuFabricInfoV().V2()
		return fabric{uint32(info.State), info.Status, info.HealthMask, clique(info.ClusterUuid, info.CliqueId)}, ret
	})
}

// clique names a multi-node NVLink domain; "" if there is none.
func clique(cluster [16]uint8, id uint32) string {
	if cluster == [16]uint8{} {
		return ""
	}
	return fmt.Sprintf("%x-%x-%x-%x-%x.%d", cluster[:4], cluster[4:6], cluster[6:8], cluster[8:10], cluster[10:], id)
}

// fabricLimits returns codes for the problems of an NVSwitch fabric that affect the GPU. Some
// machines report that the fabric is not set up, or has failed, although CUDA works.
func fabricLimits(r *reader, dev nvml.Device) []string {
	f, ok := readFabric(r, dev)
	switch {
	case !ok || f.state == nvml.GPU_FABRIC_STATE_NOT_SUPPORTED:
		return nil
	case f.state != nvml.GPU_FABRIC_STATE_COMPLETED:
		return []string{gpu.FabricNotReady}
	case nvml.Return(f.status) != nvml.SUCCESS:
		return []string{gpu.FabricFailed}
	}
	limits := healthLimits(f.health)
	wrong := fabricConfig(f.health)
	if wrong != "" {
		limits = append(limits, wrong)
	}
	slices.Sort(limits)
	return limits
}

// healthLimits decodes the health mask, in which each question has two bits, and the value 1 means
// yes.
func healthLimits(mask uint32) []string {
	var out []string
	for _, q := range []struct {
		shift uint
		limit string
	}{
		{nvml.GPU_FABRIC_HEALTH_MASK_SHIFT_DEGRADED_BW, "bandwidth"},
		{nvml.GPU_FABRIC_HEALTH_MASK_SHIFT_ROUTE_RECOVERY, "route-recovery"},
		{nvml.GPU_FABRIC_HEALTH_MASK_SHIFT_ROUTE_UNHEALTHY, "route-unhealthy"},
		{nvml.GPU_FABRIC_HEALTH_MASK_SHIFT_ACCESS_TIMEOUT_RECOVERY, "access-timeout-recovery"},
	} {
		if mask>>q.shift&3 == 1 {
			out = append(out, q.limit)
		}
	}
	return out
}

// fabricConfig returns the error in the configuration, or "".
func fabricConfig(mask uint32) string {
	names := [...]string{"", "", "incorrect-sysguid", "incorrect-chassis-sn", "no-partition", "insufficient-nvlinks",
		"incompatible-gpu-fw", "invalid-location", "gpu-state-invalid"}
	what := mask >> nvml.GPU_FABRIC_HEALTH_MASK_SHIFT_INCORRECT_CONFIGURATION & nvml.GPU_FABRIC_HEALTH_MASK_WIDTH_INCORRECT_CONFIGURATION
	partition := mask >> nvml.GPU_FABRIC_HEALTH_MASK_SHIFT_PARTITION_ASSIGNED & nvml.GPU_FABRIC_HEALTH_MASK_WIDTH_PARTITION_ASSIGNED
	switch {
	case int(what) >= len(names):
		return fmt.Sprintf("config-%d", what)
	case names[what] != "":
		return names[what]
	case partition == nvml.GPU_FABRIC_HEALTH_MASK_PARTITION_ASSIGNED_FALSE:
		return "no-partition"
	}
	return ""
}

const (
	// noisyFrom is the number of errors per second, on all NVLinks of a GPU, that makes the GPU
	// degraded. DCGM uses this limit for one link. A degraded GPU recovers if the number falls
	// below quietBelow.
	noisyFrom  = 100.0
	quietBelow = 10.0
	// noiseOver is the minimum time over which a rate is computed.
	noiseOver = time.Second
)

// nvlinkErrors reports whether the number of packets on the GPU's links that were damaged or sent
// again grows fast.
func (b *Backend) nvlinkErrors(r *reader, dev nvml.Device, uuid string) bool {
	count, ok := linkErrorCount(r, dev)
	return ok && b.grows("NVLink errors of "+uuid, count, noiseOver, noisy)
}

func noisy(perSecond float64, was bool) bool {
	return perSecond > noisyFrom || was && perSecond >= quietBelow
}

// linkErrorCount adds up the GPU's error counters: totals (up to Hopper), or counters of each link
// (NVLink 5).
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
	return sum, ok
}
