// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"time"

	"github.com/nomad-pal/nomad-pal/device-plugin/measure"
	"github.com/nomad-pal/nomad-pal/device-plugin/nomad"
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
	// Watchdog is the maximum time of a scan. If a scan takes longer, the process ends. 0: no
	// maximum.
	Watchdog time.Duration   `codec:"watchdog"`
	Reserve  ReserveConfig   `codec:"reserve"`
	Health   HealthConfig    `codec:"health"`
	Measure  MeasureConfig   `codec:"measure"`
	Sharing  []SharingConfig `codec:"sharing"`
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
	Warmup      time.Duration `codec:"warmup"` // longest warm-up
	Limit       time.Duration `codec:"limit"`  // longest session of a GPU
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
	CUDAVisibleDevices bool `codec:"cuda_visible_devices"` // set CUDA_VISIBLE_DEVICES; it overrides the job's value
	DeviceNodes        bool `codec:"device_nodes"`         // /dev/nvidia* for the exec driver
}

// HealthConfig overrides health verdicts. Its reasons are those of the health description, without
// the part after the colon, and xid:N for one Xid.
type HealthConfig struct {
	Ignore    []string `codec:"ignore"`    // never make a GPU unhealthy, or degraded
	Unhealthy []string `codec:"unhealthy"` // degradations and Xids that make a GPU unhealthy
}

// DefaultStateDir stores what must survive a restart of the plugin: latched faults, measurements,
// and the list of GPUs.
const DefaultStateDir = "/var/lib/nomad-device-pal"
