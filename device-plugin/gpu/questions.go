// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gpu

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Failure is a question that NVML answered with an error code instead of a value.
type Failure struct {
	Function string // without the version suffix: nvmlDeviceGetTemperature
	Code     int    // nvmlReturn_t
}

// String returns the failure as shown in health reasons and logs. The text has no leading or
// trailing spaces, and does not change while the failure lasts.
func (f Failure) String() string {
	return fmt.Sprintf("%s=%d %s", f.Function, f.Code, CodeName(f.Code))
}

// InsufficientPower is NVML's code for a GPU that lacks an external power cable.
const InsufficientPower = 8

// RemedyDenied is the advice to the operator if the plugin lacks permission.
const RemedyDenied = "run Nomad's client as root, and let its cgroup have the device files /dev/nvidia* and /dev/nvidia-caps/*"

// Answer is the meaning of a return code of NVML. The meaning does not depend on the question.
type Answer int

// The kinds of answers.
const (
	Answered    Answer = iota // the value
	Unsupported               // this GPU or driver does not have the value: not a fault
	Denied                    // the plugin lacks permission: not a fault of the GPU
	Lost                      // the GPU fell off the bus
	NeedsReset                // the GPU must be reset
	DriverGone                // the driver was unloaded or replaced, for all GPUs
	Failed                    // the GPU or the driver could not answer
)

// answer is one row of the table of return codes.
type answer struct {
	code   int
	name   string // text for people
	answer Answer
}

// answers returns NVML's return codes. All other codes mean Failed.
func answers() []answer {
	return []answer{
		{0, "success", Answered},
		{1, "uninitialized", DriverGone},
		{2, "invalid argument", Failed},
		{3, "not supported", Unsupported},
		{4, "no permission", Denied},
		{6, "not found", Failed},
		{InsufficientPower, "insufficient power", Failed},
		{9, "driver not loaded", DriverGone},
		{10, "timeout", Failed},
		{11, "irq issue", Failed},
		{12, "library not found", DriverGone},
		{13, "function not found", Unsupported},
		{14, "corrupted infoROM", Failed},
		{15, "GPU is lost", Lost},
		{16, "reset required", NeedsReset},
		{17, "operating system", Failed},
		{18, "library and driver of different versions", DriverGone},
		{19, "in use", Failed},
		{20, "memory", Failed},
		{21, "no data", Unsupported},
		{22, "vGPU ECC not supported", Unsupported},
		{23, "insufficient resources", Failed},
		{25, "argument version mismatch", Unsupported},
		{26, "deprecated", Unsupported},
		{27, "not ready", Failed},
		{999, "unknown error", Failed},
	}
}

// answerOf returns the row of a return code.
func answerOf(code int) answer {
	for _, a := range answers() {
		if a.code == code {
			return a
		}
	}
	return answer{code, "see nvmlReturn_t", Failed}
}

// KindOf returns the meaning of a return code.
func KindOf(code int) Answer { return answerOf(code).answer }

// CodeName returns a return code in words.
func CodeName(code int) string { return answerOf(code).name }

// Weight is how much the answer [Failed] to a question affects a GPU's health.
type Weight int

// The weights.
const (
	Nothing  Weight = iota // only the value is missing
	Detail                 // the GPU is degraded
	Basic                  // the GPU is degraded; with a second basic question, unhealthy
	Identity               // the GPU cannot be distinguished from others: not usable
)

// Question is a function of NVML that the plugin calls.
type Question struct {
	Function string
	Weight   Weight
	Why      string // the reason for the weight
}

// Questions returns the functions whose failure affects a GPU's health, the most important first. A
// health reason contains the first of these functions that failed. All other functions have the
// weight Nothing.
func Questions() []Question {
	const sensor = "every GPU has this value, but a single sensor can break while the GPU still computes"
	const judged = "without an answer, the plugin does not see some faults of the GPU"
	return []Question{
		{"nvmlDeviceGetCount", Identity, "without the number of GPUs, no GPU can be found"},
		{"nvmlDeviceGetHandleByIndex", Identity, "the driver cannot open the GPU"},
		{"nvmlDeviceGetUUID", Identity, "jobs get GPUs by UUID"},
		{"nvmlDeviceGetName", Identity, "the name determines the device group, and without the name two jobs could get the GPU"},
		{"nvmlDeviceGetTemperature", Basic, sensor},
		{"nvmlDeviceGetMemoryInfo", Basic, "every GPU has memory. The answer \"not supported\" of a GPU that shares the machine's memory is no failure"},
		{"nvmlDeviceGetUtilizationRates", Basic, "every GPU that is not in MIG mode counts its utilization"},
		{"nvmlDeviceGetClockInfo", Basic, sensor},
		{"nvmlDeviceGetPowerUsage", Basic, sensor},
		{"nvmlDeviceGetEnforcedPowerLimit", Detail, "the GPU's maximum speed is not known"},
		{"nvmlDeviceGetMaxClockInfo", Detail, "the GPU's maximum speed is not known"},
		{"nvmlDeviceGetMigMode", Detail, "the GPU may be in MIG mode. The plugin keeps the last known state. If no state is known, the GPU counts as whole"},
		{"nvmlDeviceGetMaxMigDeviceCount", Detail, "the GPU is in MIG mode. The plugin keeps the last known instances"},
		{"nvmlDeviceGetRemappedRows", Detail, judged},
		{"nvmlDeviceGetRetiredPagesPendingStatus", Detail, judged},
		{"nvmlDeviceGetEccMode", Detail, "it is not known whether the memory corrects errors"},
		{"nvmlDeviceGetPciInfo", Detail, "the GPU's location is not known"},
		{"nvmlDeviceGetMaxPcieLinkWidth", Detail, judged},
		{"nvmlDeviceGetMaxPcieLinkGeneration", Detail, "the speed of the GPU's connection is not known"},
		{"nvmlDeviceGetCurrPcieLinkWidth", Detail, judged},
	}
}

// WeightOf returns the weight of a function, named without its version suffix.
func WeightOf(function string) Weight {
	for _, q := range Questions() {
		if q.Function == function {
			return q.Weight
		}
	}
	return Nothing
}

// BaseName returns a function's name without the version suffix. If symbol lists several versions,
// separated by |, it returns the name of the first.
func BaseName(symbol string) string {
	name, _, _ := strings.Cut(symbol, "|")
	if i := strings.LastIndex(name, "_v"); i > 0 {
		return name[:i]
	}
	return name
}

// SortFailures sorts failures in the order of [Questions].
func SortFailures(fs []Failure) {
	qs := Questions()
	place := func(f Failure) int {
		i := slices.IndexFunc(qs, func(q Question) bool { return q.Function == f.Function })
		if i < 0 {
			return len(qs)
		}
		return i
	}
	slices.SortStableFunc(fs, func(a, b Failure) int {
		return cmp.Or(cmp.Compare(place(a), place(b)), strings.Compare(a.Function, b.Function))
	})
}
