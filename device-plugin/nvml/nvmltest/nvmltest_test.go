// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nvmltest

import (
	"debug/elf"
	"errors"
	"testing"
)

// The fake library has every function that nomad-device-nvidia calls. Otherwise that plugin
// would fail the conformance suite at a missing function, and not at its own defects.
func TestFunctionsOfTheIncumbent(t *testing.T) {
	path, err := Build(t.TempDir())
	if errors.Is(err, ErrNoCompiler) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	lib, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer lib.Close()
	symbols, err := lib.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	has := map[string]bool{}
	for _, s := range symbols {
		has[s.Name] = s.Section != elf.SHN_UNDEF
	}
	for _, name := range []string{
		"nvmlInit_v2", "nvmlShutdown", "nvmlErrorString", "nvmlSystemGetDriverVersion",
		"nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByUUID", "nvmlDeviceGetUUID", "nvmlDeviceGetName",
		"nvmlDeviceGetMigMode", "nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex", "nvmlDeviceGetDeviceHandleFromMigDeviceHandle",
		"nvmlDeviceGetMemoryInfo", "nvmlDeviceGetBAR1MemoryInfo", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetPciInfo_v3",
		"nvmlDeviceGetMaxPcieLinkWidth", "nvmlDeviceGetMaxPcieLinkGeneration", "nvmlDeviceGetClockInfo", "nvmlDeviceGetDisplayMode",
		"nvmlDeviceGetPersistenceMode", "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetEncoderUtilization", "nvmlDeviceGetDecoderUtilization",
		"nvmlDeviceGetTemperature", "nvmlDeviceGetDetailedEccErrors",
	} {
		if !has[name] {
			t.Errorf("no %s", name)
		}
	}
}
