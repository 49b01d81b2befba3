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
}

// Questions returns the functions whose failure affects a GPU's health, the most important first. A
// health reason contains the first of these functions that failed. All other functions have the
// weight Nothing.
func Questions() []Question {
	return []Question{
		{"nvmlDeviceGetHandleByIndex", Identity},
		{"nvmlDeviceGetUUID", Identity}, // jobs get GPUs by UUID
		{"nvmlDeviceGetName", Identity}, // the name determines the device group: without it, two jobs could get the GPU
		{"nvmlDeviceGetTemperature", Basic},
		{"nvmlDeviceGetMemoryInfo", Basic}, // a GPU that shares the machine's memory answers "not supported"
		{"nvmlDeviceGetUtilizationRates", Basic},
		{"nvmlDeviceGetClockInfo", Basic},
		{"nvmlDeviceGetPowerUsage", Basic},
		{"nvmlDeviceGetEnforcedPowerLimit", Detail},
		{"nvmlDeviceGetMaxClockInfo", Detail},
		{"nvmlDeviceGetMigMode", Detail},           // the plugin keeps the last known state
		{"nvmlDeviceGetMaxMigDeviceCount", Detail}, // the plugin keeps the last known instances
		{"nvmlDeviceGetRemappedRows", Detail},
		{"nvmlDeviceGetRetiredPagesPendingStatus", Detail},
		{"nvmlDeviceGetEccMode", Detail},
		{"nvmlDeviceGetPciInfo", Detail},
		{"nvmlDeviceGetMaxPcieLinkWidth", Detail},
		{"nvmlDeviceGetMaxPcieLinkGeneration", Detail},
		{"nvmlDeviceGetCurrPcieLinkWidth", Detail},
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
	i := strings.LastIndex(name, "_v")
	if i > 0 {
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
