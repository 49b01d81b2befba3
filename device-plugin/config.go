// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"time"

	"github.com/nomad-pal/nomad-pal/device-plugin/measure"
	"github.com/nomad-pal/nomad-pal/device-plugin/nomad"
	"github.com/nomad-pal/nomad-pal/pal"
)

// Config is the plugin's configuration, checked. Its keys and their defaults are in [ConfigSchema].
type Config struct {
	Enabled           bool          `codec:"enabled"`
	IgnoredGPUIDs     []string      `codec:"ignored_gpu_ids"` // UUIDs; the UUID of a GPU covers its MIG instances
	FingerprintPeriod time.Duration `codec:"fingerprint_period"`
	Backend           string        `codec:"backend"`
	Inventory         string        `codec:"inventory"` // the emulated backend's file
	NVMLLibrary       string        `codec:"nvml_library"`
	ProfilePath       string        `codec:"profile"` // file of the calibrated profile; "" for none
	// StateDir keeps latched faults and measurements across restarts, unless it is "".
	StateDir string `codec:"state_dir"`
	CDI      bool   `codec:"cdi"` // Reserve adds the names of CDI devices
	// Watchdog is the maximum time of a scan. If a scan takes longer, the process ends. 0: no
	// maximum.
	Watchdog    time.Duration     `codec:"watchdog"`
	Reserve     ReserveConfig     `codec:"reserve"`
	Stats       StatsConfig       `codec:"stats"`
	Health      HealthConfig      `codec:"health"`
	Variability VariabilityConfig `codec:"variability"`
	Measure     MeasureConfig     `codec:"measure"`
	Sharing     []SharingConfig   `codec:"sharing"`
	// Nomad configures the connection to Nomad, for the profile and for queries about allocated
	// GPUs.
	Nomad nomad.Options `codec:"nomad"`
	// ProfileFromNomad is nil if its block is missing, or if ProfilePath is set.
	ProfileFromNomad *NomadProfileConfig `codec:"profile_from_nomad"`
}

// NomadProfileConfig configures reading the profile from Nomad Variables.
type NomadProfileConfig struct {
	Namespace string        `codec:"namespace"`
	Period    time.Duration `codec:"period"` // between two reads
}

// MeasureConfig configures when the plugin measures GPUs by itself.
type MeasureConfig struct {
	Mode     measure.Mode  `codec:"mode"`
	Interval time.Duration `codec:"interval"` // between two measurements of a GPU
	IdleFor  time.Duration `codec:"idle_for"` // how long a GPU must have been idle
	// Jitter is the maximum random delay, from the plugin's start, of measurements that nobody
	// requested.
	Jitter      time.Duration `codec:"jitter"`
	Warmup      time.Duration `codec:"warmup"`     // longest warm-up
	Limit       time.Duration `codec:"limit"`      // longest session of a GPU
	OneByOne    bool          `codec:"one_by_one"` // false: all idle GPUs at once, because they also share cooling and power when jobs use them
	CUDALibrary string        `codec:"cuda_library"`
}

// Sharing is a way for tasks to share one GPU.
type Sharing string

// The ways of sharing.
const (
	TimeSlicing Sharing = "time-slicing" // the driver's default: tasks take turns, nothing is limited
	MPS         Sharing = "mps"          // NVIDIA's Multi-Process Service: tasks run at the same time, within limits
)

// SharingConfig publishes GPUs in parts.
type SharingConfig struct {
	Mode     Sharing  `codec:"mode"`
	Replicas int      `codec:"replicas"` // parts of a GPU; see mostMPS
	GPUs     []string `codec:"gpus"`     // UUID, index, model, or "*" for all
	// Threads is a part's share of a GPU's multiprocessors, in percent; 0 means 100 / replicas.
	Threads int `codec:"threads"`
	// PipeDirectory is the pipe directory of NVIDIA's MPS control daemon.
	PipeDirectory string `codec:"pipe_directory"`
}

// ReserveConfig selects what a task gets in addition to NVIDIA_VISIBLE_DEVICES.
type ReserveConfig struct {
	CUDAVisibleDevices bool   `codec:"cuda_visible_devices"` // set CUDA_VISIBLE_DEVICES; it overrides the job's value
	DeviceNodes        bool   `codec:"device_nodes"`         // /dev/nvidia* for the exec driver
	Unhealthy          string `codec:"unhealthy"`            // whether a task can reserve an unhealthy GPU; if not, Nomad places the task again at once
}

// StatsConfig configures statistics.
type StatsConfig struct {
	GPM         string        `codec:"gpm"`          // profiling metrics, on Hopper and later
	MinInterval time.Duration `codec:"min_interval"` // shortest time between two readings of the GPUs
}

// HealthConfig overrides health verdicts.
type HealthConfig struct {
	IgnoreXids          []int    `codec:"ignore_xids"` // never make a GPU unhealthy
	FatalXids           []int    `codec:"fatal_xids"`  // always make a GPU unhealthy
	Ignore              []string `codec:"ignore"`      // reasons that never make a GPU unhealthy
	DegradedIsUnhealthy bool     `codec:"degraded_is_unhealthy"`
	// RecoverPolls is the number of good readings in a row that make a GPU healthy again.
	RecoverPolls int `codec:"recover_polls"`
}

// VariabilityConfig selects which application classes are published.
type VariabilityConfig struct {
	AppClasses []pal.AppClass `codec:"app_classes"`
}

// DefaultStateDir stores what must survive a restart of the plugin: latched faults, measurements,
// and the list of GPUs.
const DefaultStateDir = "/var/lib/nomad-device-pal"
