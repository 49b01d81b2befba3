// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package hardware tries the whole device plugin on a machine with GPUs, within a budget of
// minutes, and reports where the machine disagrees with the docs. It needs the plugin's binary and
// the NVIDIA driver, but no network. The plugin's binary measures; a process of our own causes
// faults on purpose.
//
// [Options.Plan] orders the steps by importance, and leaves out steps that do not fit.
// [Options.Run] takes the steps and writes the [Record] with every result. [Claims] compares the
// record with the docs; [Page] formats it for people. If a step fails or hangs, that is a finding,
// and the next step follows.
//
// Every change must keep this rule: a result is in the files before it is reported, so that killing
// the process loses no reported result.
package hardware

import (
	"encoding/json"
	"time"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/device-plugin/measure"
)

// Format names the JSON form of a [Record].
const Format = "nomad-pal/hardware/1"

// Record is everything that a run found.
type Record struct {
	Format  string    `json:"format"`
	Node    string    `json:"node,omitempty"` // host name
	Version string    `json:"version"`        // the plugin's version
	Started time.Time `json:"started"`
	Seconds float64   `json:"seconds"`
	Quick   bool      `json:"quick,omitempty"` // the figures are not reliable
	// Forced means that GPUs in use were measured, too.
	Forced        bool      `json:"forced,omitempty"`
	BudgetSeconds float64   `json:"budget_seconds"`
	Plan          []Planned `json:"plan"`
	// Interrupted means that somebody ended the run early; the results so far are complete.
	Interrupted bool   `json:"interrupted,omitempty"`
	System      System `json:"system"`
	Steps       []Step `json:"steps"`

	Doctor      json.RawMessage `json:"doctor,omitempty"`      // what `doctor -json` prints
	Fingerprint json.RawMessage `json:"fingerprint,omitempty"` // what `fingerprint -json` prints

	Driver  string                `json:"driver,omitempty"`
	GPUs    []gpu.Device          `json:"gpus"`              // NVML's scan, or the CUDA driver's list
	Idle    map[string]gpu.Sample `json:"idle,omitempty"`    // telemetry before anything ran
	InUse   map[string]string     `json:"in_use,omitempty"`  // why GPUs are in use or not measured
	SMI     *SMI                  `json:"smi,omitempty"`     // nil if the machine has no nvidia-smi
	Kernels []KernelRuns          `json:"kernels"`           // every kernel on every GPU
	Session []measure.Result      `json:"session,omitempty"` // one whole measurement, all GPUs at once
	Beside  *Beside               `json:"beside,omitempty"`  // measuring beside a running job
	Faults  []FaultTried          `json:"faults,omitempty"`
	Soak    []Soak                `json:"soak,omitempty"` // the first minutes at full power
	Claims  []Claim               `json:"claims"`
}

// System describes the machine, from the kernel's files.
type System struct {
	Kernel string `json:"kernel,omitempty"` // /proc/version
	Driver string `json:"driver,omitempty"` // /proc/driver/nvidia/version
	CPUs   int    `json:"cpus"`
}

// Step is one thing that was tried.
type Step struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
	Problem string  `json:"problem,omitempty"`
	LeftOut string  `json:"left_out,omitempty"` // why the step was not tried, or not finished; else ""
}

// Soak is the behaviour of one GPU at full power, with class A, from the first second on.
type Soak struct {
	GPU     string      `json:"gpu"`
	Kernel  string      `json:"kernel"`
	Problem string      `json:"problem,omitempty"`
	Points  []SoakPoint `json:"points"`
}

// SoakPoint has the means of the measured values over some seconds.
type SoakPoint struct {
	Seconds  float64  `json:"seconds"` // end of these seconds, from the start
	Ms       float64  `json:"ms"`      // per unit of work
	ClockMHz *float64 `json:"sm_clock_mhz,omitempty"`
	PowerW   *float64 `json:"power_w,omitempty"`
	TempC    *float64 `json:"temperature_c,omitempty"`
}

// KernelRuns are repeated short measurements of one kernel on one GPU.
type KernelRuns struct {
	GPU    string      `json:"gpu"`
	Model  string      `json:"model"`
	Kernel string      `json:"kernel"`
	Runs   []KernelRun `json:"runs"`
}

// KernelRun is one run; a nil pointer is an unknown value.
type KernelRun struct {
	Ms             float64       `json:"ms"` // per unit of work
	Rate           float64       `json:"rate,omitempty"`
	Unit           string        `json:"unit,omitempty"`
	Share          float64       `json:"share_of_peak,omitempty"`
	ClockMHz       *float64      `json:"sm_clock_mhz,omitempty"`
	PowerW         *float64      `json:"power_w,omitempty"`
	TempC          *float64      `json:"temperature_c,omitempty"`
	LimitedBy      measure.Limit `json:"limited_by,omitempty"`
	Sum            string        `json:"sum,omitempty"`
	CompileSeconds float64       `json:"compile_seconds,omitempty"`
	Problem        string        `json:"problem,omitempty"`
	Warnings       []string      `json:"warnings,omitempty"`
}

// SMI compares nvidia-smi with our scan.
type SMI struct {
	Compared int        `json:"compared"` // number of compared values
	Differ   []Mismatch `json:"differ,omitempty"`
}

// Mismatch is one value that differs between nvidia-smi and our scan.
type Mismatch struct {
	GPU   string `json:"gpu"`
	Field string `json:"field"`
	Ours  string `json:"ours"`
	SMI   string `json:"smi"`
}

// Beside is the result of measuring while a job of ours ran.
type Beside struct {
	GPU string `json:"gpu"` // the GPU that the job ran on
	// AloneMs is the job's time per unit when nothing else ran. NeighboursMs is this time while all
	// other GPUs were measured; 0 if there are none. ForcedMs is this time while the job's own GPU
	// was measured.
	AloneMs      float64 `json:"alone_ms"`
	NeighboursMs float64 `json:"neighbours_ms,omitempty"`
	ForcedMs     float64 `json:"forced_ms,omitempty"`
	// Seen is why the idle check found the GPU in use while the job ran. If Watched is true and
	// Seen is empty, the check is faulty. Watched means that NVML was available.
	Seen    string `json:"seen"`
	Watched bool   `json:"watched"`
	// AbortSeconds is how long a killed measurement took to end. After names a process that still
	// used the GPU after the measurement had ended.
	AbortSeconds float64 `json:"abort_seconds"`
	After        string  `json:"after,omitempty"`
}

// FaultTried is a fault that was caused on purpose.
type FaultTried struct {
	Name string `json:"name"`
	Said string `json:"said"`           // the error that people see
	Want string `json:"want,omitempty"` // text that the error should contain
	// EventSeconds is how long the driver's event took to arrive; nil if none arrived, or
	// none was expected.
	EventSeconds *float64 `json:"event_seconds,omitempty"`
	Xid          int      `json:"xid,omitempty"`
	WaitedFor    bool     `json:"waited_for_event,omitempty"`
}

// Verdict is whether a claim holds on this machine.
type Verdict string

// The verdicts.
const (
	Agrees    Verdict = "agrees"
	Disagrees Verdict = "DISAGREES"
	Unseen    Verdict = "not seen"
)

// Claim is a statement of the docs, with what was found.
type Claim struct {
	Text    string  `json:"claim"`
	Verdict Verdict `json:"verdict"`
	Found   string  `json:"found,omitempty"`
}
