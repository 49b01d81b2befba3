// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gpu

import (
	"fmt"
	"testing"
)

// Each kind of answer means the same for every question.
func TestAnswers(t *testing.T) {
	for code, want := range map[int]Answer{
		0: Answered, 3: Unsupported, 13: Unsupported, 25: Unsupported, 4: Denied, 15: Lost, 16: NeedsReset, 1: DriverGone, 9: DriverGone,
		18: DriverGone, 2: Failed, 10: Failed, 17: Failed, 999: Failed, 4711: Failed,
	} {
		if got := KindOf(code); got != want {
			t.Errorf("%d: %d, want %d", code, got, want)
		}
	}
}

func TestFailures(t *testing.T) {
	fs := []Failure{{"nvmlDeviceGetVbiosVersion", 3}, {"nvmlDeviceGetPowerUsage", 999}, {"nvmlDeviceGetArchitecture", 77}, {"nvmlDeviceGetTemperature", 10}}
	SortFailures(fs)
	want := "[nvmlDeviceGetTemperature=10 timeout nvmlDeviceGetPowerUsage=999 unknown error" +
		" nvmlDeviceGetArchitecture=77 see nvmlReturn_t nvmlDeviceGetVbiosVersion=3 not supported]"
	if got := fmt.Sprint(fs); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	for symbol, want := range map[string]string{
		"nvmlDeviceGetName": "nvmlDeviceGetName", "nvmlDeviceGetPciInfo_v3|nvmlDeviceGetPciInfo": "nvmlDeviceGetPciInfo",
		"nvmlDeviceGetGpuFabricInfoV": "nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetVbiosVersion": "nvmlDeviceGetVbiosVersion",
	} {
		if got := BaseName(symbol); got != want {
			t.Errorf("%s: %s, want %s", symbol, got, want)
		}
	}
}
