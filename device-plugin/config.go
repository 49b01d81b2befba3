// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"time"

	"github.com/nomad-pal/nomad-pal/device-plugin/measure"
	"github.com/nomad-pal/nomad-pal/device-plugin/nomad"
	"github.com/nomad-pal/nomad-pal/pal"
)

// Config is the plugin's configuration, checked and with defaults filled in.
type Config struct {
	Enabled           bool          // default true
	IgnoredGPUIDs     []string      // UUIDs; a GPU's UUID covers its MIG instances
	FingerprintPeriod time.Duration // default 1m, at least 100ms
	Backend           string        // "nvml" (default) or "emulated"
	Inventory         string        // the emulated backend's file
	NVMLLibrary       string        // default libnvidia-ml.so.1
	ProfilePath       string        // calibrated profile; "" for none
	StateDir          string        // latched faults and measurements survive a restart here; default DefaultStateDir; "" keeps them in memory
	CDI               bool          // Reserve adds CDI device names
	Compat            Compat        // default CompatJobs
	Watchdog          time.Duration // default 2m: a driver call that takes longer ends the process; 0 never
	Reserve           ReserveConfig
	Stats             StatsConfig
	Health            HealthConfig
	Variability       VariabilityConfig
	Measure           MeasureConfig
	ProfileFromNomad  *NomadProfileConfig // nil: not asked for, or ProfilePath is given
}

// NomadProfileConfig says how to read the profile from Nomad Variables.
type NomadProfileConfig struct {
	nomad.Options
	Period time.Duration // default 1m, between two looks
}

// MeasureConfig says when the plugin measures GPUs by itself.
type MeasureConfig struct {
	Mode        measure.Mode  // default measure.Idle
	Interval    time.Duration // default 168h: between two sessions of one GPU
	IdleFor     time.Duration // default 1m: a GPU must have been idle for so long
	Jitter      time.Duration // default 1h: nothing is measured unasked for up to so long after the start, another time on each node
	Warmup      time.Duration // default 45s: at most, before measuring
	Limit       time.Duration // default 2m: of one GPU's session
	OneByOne    bool          // default false: all idle GPUs at once, as jobs share cooling and power
	CUDALibrary string        // default libcuda.so.1
}

// ReserveConfig says what a task gets beside NVIDIA_VISIBLE_DEVICES.
type ReserveConfig struct {
	CUDAVisibleDevices bool // default false: it overrides what the job sets
	DeviceNodes        bool // /dev/nvidia* for the exec driver; default false
	AllowUnhealthy     bool // default false: reserving an unhealthy GPU is an error, which reschedules at once
}

// StatsConfig says how statistics are taken.
type StatsConfig struct {
	GPM         bool          // profiling metrics on Hopper and later; default true
	MinInterval time.Duration // default 1s: GPUs are read at most this often
}

// HealthConfig overrides verdicts.
type HealthConfig struct {
	Enabled             bool     // default true; false: every GPU that exists is healthy
	IgnoreXids          []int    // never make a GPU unhealthy
	FatalXids           []int    // always do
	Ignore              []string // reasons that never make a GPU unhealthy, for example "row-remap-failure"
	DegradedIsUnhealthy bool     // default false
	RecoverPolls        int      // default 2: good readings in a row before a GPU is healthy again
}

// VariabilityConfig says which classes are published.
type VariabilityConfig struct {
	AppClasses []pal.AppClass // default all
	Default    pal.AppClass   // the class of unique.variability_le_<k>; default A
}

// DefaultStateDir is where the plugin keeps what must survive its restart.
const DefaultStateDir = "/var/lib/nomad-device-pal"

// DefaultConfig is what an empty config block means.
func DefaultConfig() Config {
	return Config{
		Enabled:           true,
		FingerprintPeriod: time.Minute,
		Backend:           "nvml",
		NVMLLibrary:       "libnvidia-ml.so.1",
		StateDir:          DefaultStateDir,
		Watchdog:          2 * time.Minute,
		Compat:            CompatJobs,
		Stats:             StatsConfig{GPM: true, MinInterval: time.Second},
		Health:            HealthConfig{Enabled: true, RecoverPolls: 2},
		Variability:       VariabilityConfig{AppClasses: pal.AppClasses(), Default: pal.ClassA},
		Measure: MeasureConfig{Mode: measure.Idle, Interval: 168 * time.Hour, IdleFor: time.Minute, Jitter: time.Hour,
			Warmup: 45 * time.Second, Limit: 2 * time.Minute, CUDALibrary: "libcuda.so.1"},
	}
}
