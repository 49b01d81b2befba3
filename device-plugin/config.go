// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/nomad/plugins/base"
	"github.com/hashicorp/nomad/plugins/shared/hclspec"

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
	StateDir          string        // latched faults survive a restart here; "" keeps them in memory
	CDI               bool          // Reserve adds CDI device names
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
	Warmup      time.Duration // default 45s: at most, before measuring
	Limit       time.Duration // default 2m: of one GPU's session
	OneByOne    bool          // default false: all idle GPUs at once, as jobs share cooling and power
	CUDALibrary string        // default libcuda.so.1
}

// ReserveConfig says what a task gets beside NVIDIA_VISIBLE_DEVICES.
type ReserveConfig struct {
	CUDAVisibleDevices bool // default true
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

// raw is the configuration as Nomad sends it. nil blocks were not given.
type raw struct {
	Enabled           bool     `codec:"enabled"`
	IgnoredGPUIDs     []string `codec:"ignored_gpu_ids"`
	FingerprintPeriod string   `codec:"fingerprint_period"`
	Backend           string   `codec:"backend"`
	Inventory         string   `codec:"inventory"`
	NVMLLibrary       string   `codec:"nvml_library"`
	Profile           string   `codec:"profile"`
	StateDir          string   `codec:"state_dir"`
	CDI               bool     `codec:"cdi"`
	Watchdog          string   `codec:"watchdog"`
	Reserve           *struct {
		CUDAVisibleDevices bool   `codec:"cuda_visible_devices"`
		DeviceNodes        bool   `codec:"device_nodes"`
		Unhealthy          string `codec:"unhealthy"`
	} `codec:"reserve"`
	Stats *struct {
		GPM         string `codec:"gpm"`
		MinInterval string `codec:"min_interval"`
	} `codec:"stats"`
	Health *struct {
		Enabled             bool     `codec:"enabled"`
		IgnoreXids          []int    `codec:"ignore_xids"`
		FatalXids           []int    `codec:"fatal_xids"`
		Ignore              []string `codec:"ignore"`
		DegradedIsUnhealthy bool     `codec:"degraded_is_unhealthy"`
		RecoverPolls        int      `codec:"recover_polls"`
	} `codec:"health"`
	Variability *struct {
		AppClasses []string `codec:"app_classes"`
		Default    string   `codec:"default_app_class"`
	} `codec:"variability"`
	ProfileFromNomad *struct {
		Address    string `codec:"address"`
		Namespace  string `codec:"namespace"`
		TokenFile  string `codec:"token_file"`
		CACert     string `codec:"ca_cert"`
		ClientCert string `codec:"client_cert"`
		ClientKey  string `codec:"client_key"`
		Period     string `codec:"period"`
	} `codec:"profile_from_nomad"`
	Measure *struct {
		Mode        string `codec:"mode"`
		Interval    string `codec:"interval"`
		IdleFor     string `codec:"idle_for"`
		Warmup      string `codec:"warmup"`
		Limit       string `codec:"limit"`
		OneByOne    bool   `codec:"one_by_one"`
		CUDALibrary string `codec:"cuda_library"`
	} `codec:"measure"`
}

// configSchema is what Nomad checks the plugin's config block against: unknown
// keys and wrong types are refused there, with the key's name.
func configSchema() *hclspec.Spec {
	attr := func(name, kind, fallback string) *hclspec.Spec {
		return hclspec.NewDefault(hclspec.NewAttr(name, kind, false), hclspec.NewLiteral(fallback))
	}
	block := func(name string, body map[string]*hclspec.Spec) *hclspec.Spec {
		return hclspec.NewBlock(name, false, hclspec.NewObject(body))
	}
	return hclspec.NewObject(map[string]*hclspec.Spec{
		"enabled":            attr("enabled", "bool", "true"),
		"ignored_gpu_ids":    attr("ignored_gpu_ids", "list(string)", "[]"),
		"fingerprint_period": attr("fingerprint_period", "string", `"1m"`),
		"backend":            attr("backend", "string", `"nvml"`),
		"inventory":          attr("inventory", "string", `""`),
		"nvml_library":       attr("nvml_library", "string", `"libnvidia-ml.so.1"`),
		"profile":            attr("profile", "string", `""`),
		"state_dir":          attr("state_dir", "string", `""`),
		"cdi":                attr("cdi", "bool", "false"),
		"watchdog":           attr("watchdog", "string", `"2m"`),
		"reserve": block("reserve", map[string]*hclspec.Spec{
			"cuda_visible_devices": attr("cuda_visible_devices", "bool", "true"),
			"device_nodes":         attr("device_nodes", "bool", "false"),
			"unhealthy":            attr("unhealthy", "string", `"deny"`),
		}),
		"stats": block("stats", map[string]*hclspec.Spec{
			"gpm":          attr("gpm", "string", `"auto"`),
			"min_interval": attr("min_interval", "string", `"1s"`),
		}),
		"health": block("health", map[string]*hclspec.Spec{
			"enabled":               attr("enabled", "bool", "true"),
			"ignore_xids":           attr("ignore_xids", "list(number)", "[]"),
			"fatal_xids":            attr("fatal_xids", "list(number)", "[]"),
			"ignore":                attr("ignore", "list(string)", "[]"),
			"degraded_is_unhealthy": attr("degraded_is_unhealthy", "bool", "false"),
			"recover_polls":         attr("recover_polls", "number", "2"),
		}),
		"variability": block("variability", map[string]*hclspec.Spec{
			"app_classes":       attr("app_classes", "list(string)", `["a", "b", "c", "d"]`),
			"default_app_class": attr("default_app_class", "string", `"a"`),
		}),
		"profile_from_nomad": block("profile_from_nomad", map[string]*hclspec.Spec{
			"address":     attr("address", "string", `""`),
			"namespace":   attr("namespace", "string", `""`),
			"token_file":  attr("token_file", "string", `""`),
			"ca_cert":     attr("ca_cert", "string", `""`),
			"client_cert": attr("client_cert", "string", `""`),
			"client_key":  attr("client_key", "string", `""`),
			"period":      attr("period", "string", `"1m"`),
		}),
		"measure": block("measure", map[string]*hclspec.Spec{
			"mode":         attr("mode", "string", `"idle"`),
			"interval":     attr("interval", "string", `"168h"`),
			"idle_for":     attr("idle_for", "string", `"1m"`),
			"warmup":       attr("warmup", "string", `"45s"`),
			"limit":        attr("limit", "string", `"2m"`),
			"one_by_one":   attr("one_by_one", "bool", "false"),
			"cuda_library": attr("cuda_library", "string", `"libcuda.so.1"`),
		}),
	})
}

// DefaultConfig is what an empty config block means.
func DefaultConfig() Config {
	return Config{
		Enabled:           true,
		FingerprintPeriod: time.Minute,
		Backend:           "nvml",
		NVMLLibrary:       "libnvidia-ml.so.1",
		Watchdog:          2 * time.Minute,
		Reserve:           ReserveConfig{CUDAVisibleDevices: true},
		Stats:             StatsConfig{GPM: true, MinInterval: time.Second},
		Health:            HealthConfig{Enabled: true, RecoverPolls: 2},
		Variability:       VariabilityConfig{AppClasses: pal.AppClasses(), Default: pal.ClassA},
		Measure: MeasureConfig{Mode: measure.Idle, Interval: 168 * time.Hour, IdleFor: time.Minute,
			Warmup: 45 * time.Second, Limit: 2 * time.Minute, CUDALibrary: "libcuda.so.1"},
	}
}

// decodeConfig reads what SetConfig got. Errors name the key.
func decodeConfig(msgpack []byte) (Config, error) {
	if len(msgpack) == 0 {
		return DefaultConfig(), nil
	}
	var r raw
	if err := base.MsgPackDecode(msgpack, &r); err != nil {
		return Config{}, fmt.Errorf("decoding the plugin's config: %w", err)
	}
	c := DefaultConfig()
	c.Enabled, c.IgnoredGPUIDs, c.Inventory = r.Enabled, r.IgnoredGPUIDs, r.Inventory
	c.ProfilePath, c.StateDir, c.CDI = r.Profile, r.StateDir, r.CDI
	var err error
	if c.FingerprintPeriod, err = duration("fingerprint_period", r.FingerprintPeriod, c.FingerprintPeriod, 100*time.Millisecond); err != nil {
		return Config{}, err
	}
	if c.Watchdog, err = duration("watchdog", r.Watchdog, c.Watchdog, 0); err != nil {
		return Config{}, err
	}
	if c.Backend, err = oneOf("backend", r.Backend, "nvml", "emulated"); err != nil {
		return Config{}, err
	}
	if r.NVMLLibrary != "" {
		c.NVMLLibrary = r.NVMLLibrary
	}
	if c.Backend == "emulated" && c.Inventory == "" {
		return Config{}, fmt.Errorf("config key %q: backend \"emulated\" needs the path of an inventory file", "inventory")
	}
	return r.blocks(c)
}

// blocks adds the nested blocks to c.
func (r *raw) blocks(c Config) (Config, error) {
	for _, add := range []func(*Config) error{r.reserve, r.stats, r.health, r.variability, r.measure, r.profileFromNomad} {
		if err := add(&c); err != nil {
			return Config{}, err
		}
	}
	return c, nil
}

func (r *raw) reserve(c *Config) error {
	b := r.Reserve
	if b == nil {
		return nil
	}
	unhealthy, err := oneOf("reserve.unhealthy", b.Unhealthy, "deny", "allow")
	c.Reserve = ReserveConfig{b.CUDAVisibleDevices, b.DeviceNodes, unhealthy == "allow"}
	return err
}

func (r *raw) stats(c *Config) error {
	b := r.Stats
	if b == nil {
		return nil
	}
	gpm, err := oneOf("stats.gpm", b.GPM, "auto", "off")
	if err != nil {
		return err
	}
	c.Stats.GPM = gpm == "auto"
	c.Stats.MinInterval, err = duration("stats.min_interval", b.MinInterval, c.Stats.MinInterval, 100*time.Millisecond)
	return err
}

func (r *raw) health(c *Config) error {
	b := r.Health
	if b == nil {
		return nil
	}
	if b.RecoverPolls < 1 {
		return fmt.Errorf("config key %q: %d is below 1", "health.recover_polls", b.RecoverPolls)
	}
	c.Health = HealthConfig{b.Enabled, b.IgnoreXids, b.FatalXids, b.Ignore, b.DegradedIsUnhealthy, b.RecoverPolls}
	return checkReasons(b.Ignore)
}

func (r *raw) variability(c *Config) error {
	b := r.Variability
	if b == nil {
		return nil
	}
	c.Variability.AppClasses = nil
	for _, s := range b.AppClasses {
		class, err := pal.ParseAppClass(s)
		if err != nil {
			return fmt.Errorf("config key %q: %w", "variability.app_classes", err)
		}
		c.Variability.AppClasses = append(c.Variability.AppClasses, class)
	}
	var err error
	if c.Variability.Default, err = pal.ParseAppClass(b.Default); err != nil {
		return fmt.Errorf("config key %q: %w", "variability.default_app_class", err)
	}
	return nil
}

func (r *raw) profileFromNomad(c *Config) error {
	b := r.ProfileFromNomad
	if b == nil || c.ProfilePath != "" {
		return nil
	}
	period, err := duration("profile_from_nomad.period", b.Period, time.Minute, time.Second)
	c.ProfileFromNomad = &NomadProfileConfig{Period: period, Options: nomad.Options{
		Address: b.Address, Namespace: b.Namespace, TokenFile: b.TokenFile, CACert: b.CACert, ClientCert: b.ClientCert, ClientKey: b.ClientKey,
	}}
	return err
}

func (r *raw) measure(c *Config) error {
	b := r.Measure
	if b == nil {
		return nil
	}
	mode, err := oneOf("measure.mode", b.Mode, string(measure.Idle), string(measure.Manual), string(measure.Off))
	if err != nil {
		return err
	}
	c.Measure.Mode, c.Measure.OneByOne, c.Measure.CUDALibrary = measure.Mode(mode), b.OneByOne, b.CUDALibrary
	for _, d := range []struct {
		key, value string
		into       *time.Duration
		least      time.Duration
	}{
		{"measure.interval", b.Interval, &c.Measure.Interval, time.Hour},
		{"measure.idle_for", b.IdleFor, &c.Measure.IdleFor, time.Second},
		{"measure.warmup", b.Warmup, &c.Measure.Warmup, 0},
		{"measure.limit", b.Limit, &c.Measure.Limit, 10 * time.Second},
	} {
		if *d.into, err = duration(d.key, d.value, *d.into, d.least); err != nil {
			return err
		}
	}
	return nil
}

// duration reads a Go duration; "" means the default.
func duration(key, value string, fallback, least time.Duration) (time.Duration, error) {
	if value == "" {
		return fallback, nil
	}
	d, err := time.ParseDuration(value)
	if err != nil {
		return 0, fmt.Errorf("config key %q: %q is not a duration like 30s or 1m", key, value)
	}
	if d < least {
		return 0, fmt.Errorf("config key %q: %s is below the least value %s", key, d, least)
	}
	return d, nil
}

// oneOf checks a word; "" means the first.
func oneOf(key, value string, words ...string) (string, error) {
	if value == "" {
		return words[0], nil
	}
	for _, w := range words {
		if value == w {
			return value, nil
		}
	}
	return "", fmt.Errorf("config key %q: %q is not one of %s", key, value, strings.Join(words, ", "))
}
