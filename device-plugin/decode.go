// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/plugins/base"

	"github.com/nomad-pal/nomad-pal/device-plugin/measure"
	"github.com/nomad-pal/nomad-pal/device-plugin/nomad"
	"github.com/nomad-pal/nomad-pal/pal"
)

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
	compat, err := oneOf("compat", r.Compat, string(CompatJobs), string(CompatExact), string(CompatNone))
	if err != nil {
		return Config{}, err
	}
	c.Compat = Compat(compat)
	if r.NVMLLibrary != "" {
		c.NVMLLibrary = r.NVMLLibrary
	}
	if c.Backend == "emulated" && c.StateDir == DefaultStateDir {
		c.StateDir = "" // several may run on one machine
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
		{"measure.jitter", b.Jitter, &c.Measure.Jitter, 0},
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
	if slices.Contains(words, value) {
		return value, nil
	}
	return "", fmt.Errorf("config key %q: %q is not one of %s", key, value, strings.Join(words, ", "))
}
