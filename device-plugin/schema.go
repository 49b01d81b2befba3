// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"
	"github.com/hashicorp/nomad/plugins/base"
	"github.com/hashicorp/nomad/plugins/shared/hclspec"

	"github.com/nomad-pal/nomad-pal/device-plugin/measure"
)

// ConfigSchema returns the schema of the plugin's config block. With the schema, Nomad refuses
// unknown keys and wrong types, names the key, and fills in the defaults.
func ConfigSchema() *hclspec.Spec {
	return hclspec.NewObject(map[string]*hclspec.Spec{
		"enabled":            key("enabled", "bool", `true`),
		"ignored_gpu_ids":    key("ignored_gpu_ids", "list(string)", `[]`),
		"fingerprint_period": key("fingerprint_period", "string", `"1m"`),
		"backend":            key("backend", "string", `"nvml"`),
		"inventory":          key("inventory", "string", `""`),
		"nvml_library":       key("nvml_library", "string", `"libnvidia-ml.so.1"`),
		"profile":            key("profile", "string", `""`),
		"state_dir":          key("state_dir", "string", `"`+DefaultStateDir+`"`),
		"watchdog":           key("watchdog", "string", `"2m"`),
		"reserve": block("reserve", map[string]*hclspec.Spec{
			"cuda_visible_devices": key("cuda_visible_devices", "bool", `false`),
			"device_nodes":         key("device_nodes", "bool", `false`),
		}),
		"health": block("health", map[string]*hclspec.Spec{
			"ignore":    key("ignore", "list(string)", `[]`),
			"unhealthy": key("unhealthy", "list(string)", `[]`),
		}),
		"measure": block("measure", map[string]*hclspec.Spec{
			"mode":         key("mode", "string", `"manual"`),
			"interval":     key("interval", "string", `"168h"`),
			"idle_for":     key("idle_for", "string", `"1m"`),
			"jitter":       key("jitter", "string", `"1h"`),
			"warmup":       key("warmup", "string", `"3m"`),
			"limit":        key("limit", "string", `"5m"`),
			"cuda_library": key("cuda_library", "string", `"libcuda.so.1"`),
		}),
		"sharing": hclspec.NewBlockList("sharing", sharingSchema()),
		"nomad": block("nomad", map[string]*hclspec.Spec{
			"address":     key("address", "string", `""`),
			"token_file":  key("token_file", "string", `""`),
			"ca_cert":     key("ca_cert", "string", `""`),
			"client_cert": key("client_cert", "string", `""`),
			"client_key":  key("client_key", "string", `""`),
		}),
		"profile_from_nomad": hclspec.NewBlock("profile_from_nomad", false, hclspec.NewObject(map[string]*hclspec.Spec{
			"namespace": key("namespace", "string", `""`),
			"period":    key("period", "string", `"1m"`),
		})),
	})
}

func sharingSchema() *hclspec.Spec {
	return hclspec.NewObject(map[string]*hclspec.Spec{
		"mode":           key("mode", "string", `"time-slicing"`),
		"replicas":       key("replicas", "number", `0`),
		"gpus":           key("gpus", "list(string)", `["*"]`),
		"threads":        key("threads", "number", `0`),
		"pipe_directory": key("pipe_directory", "string", `"/run/nvidia-mps"`),
	})
}

// key returns the schema of a key that has a default, which is both HCL and JSON.
func key(name, kind, fallback string) *hclspec.Spec {
	return hclspec.NewDefault(hclspec.NewAttr(name, kind, false), hclspec.NewLiteral(fallback))
}

// block returns the schema of a block. A missing block is like an empty block.
func block(name string, keys map[string]*hclspec.Spec) *hclspec.Spec {
	body := hclspec.NewObject(keys)
	return hclspec.NewDefault(hclspec.NewBlock(name, false, body), hclspec.NewLiteral(emptyBlock(body)))
}

// emptyBlock returns what Nomad makes of a block without keys, in HCL and JSON.
func emptyBlock(body *hclspec.Spec) string {
	values := map[string]json.RawMessage{}
	for name, s := range body.GetObject().GetAttributes() {
		literal := s.GetDefault().GetDefault().GetLiteral()
		if literal != nil {
			values[name] = json.RawMessage(literal.GetValue())
		}
	}
	text, err := json.Marshal(values)
	if err != nil {
		panic(err) // a default in the schema is not JSON
	}
	return string(text)
}

// DefaultConfig returns the configuration of an empty config block.
func DefaultConfig() Config {
	given := map[string]any{}
	err := json.Unmarshal([]byte(emptyBlock(ConfigSchema())), &given)
	c, err2 := decodeValues(given)
	if err := errors.Join(err, err2); err != nil {
		panic(err) // the schema is wrong
	}
	return c
}

// DecodeConfig decodes the configuration from SetConfig. Errors name the key.
func DecodeConfig(msgpack []byte) (Config, error) {
	if len(msgpack) == 0 {
		return DefaultConfig(), nil
	}
	given := map[string]any{}
	if err := base.MsgPackDecode(msgpack, &given); err != nil {
		return Config{}, fmt.Errorf("decoding the plugin's config: %w", err)
	}
	return decodeValues(given)
}

// decodeValues returns the configuration with these values of all keys.
func decodeValues(given map[string]any) (c Config, err error) {
	decoder, err := mapstructure.NewDecoder(&mapstructure.DecoderConfig{Result: &c, TagName: "codec", DecodeHook: convert})
	if err != nil {
		return Config{}, err
	}
	err = decoder.Decode(given)
	at := (*mapstructure.DecodeError)(nil)
	if errors.As(err, &at) {
		return Config{}, fmt.Errorf("config key %q: %w", at.Name(), at.Unwrap())
	}
	if err != nil {
		return Config{}, fmt.Errorf("decoding the plugin's config: %w", err)
	}
	c.NVMLLibrary = cmp.Or(c.NVMLLibrary, "libnvidia-ml.so.1")
	if c.ProfilePath != "" {
		c.ProfileFromNomad = nil
	}
	if c.Backend == "emulated" && c.StateDir == DefaultStateDir {
		c.StateDir = "" // several emulated plugins can run on one machine
	}
	return c, c.check()
}

// longest is the maximum duration in the configuration. Twice this duration still fits into a
// time.Duration.
const longest = 100 * 365 * 24 * time.Hour

// convert parses the texts of durations. Nomad has already checked the types of values.
func convert(_, to reflect.Type, value any) (any, error) {
	text, _ := value.(string)
	switch to {
	case reflect.TypeFor[time.Duration]():
		d, err := time.ParseDuration(text)
		if err != nil || d > longest {
			return nil, fmt.Errorf("%q is not a duration of at most %.0fh (100 years), such as 30s or 1m", text, longest.Hours())
		}
		return d, nil
	case reflect.TypeFor[int]():
		if f, ok := value.(float64); ok && f != float64(int(f)) {
			return nil, fmt.Errorf("%v is not a whole number", f)
		}
	}
	return value, nil
}

// check checks the values of all keys.
func (c *Config) check() error {
	period := time.Minute
	if c.ProfileFromNomad != nil {
		period = c.ProfileFromNomad.Period
	}
	err := errors.Join(
		atLeast("fingerprint_period", c.FingerprintPeriod, 100*time.Millisecond),
		atLeast("watchdog", c.Watchdog, 0),
		atLeast("profile_from_nomad.period", period, time.Second),
		atLeast("measure.interval", c.Measure.Interval, time.Hour),
		atLeast("measure.idle_for", c.Measure.IdleFor, time.Second),
		atLeast("measure.jitter", c.Measure.Jitter, 0),
		atLeast("measure.warmup", c.Measure.Warmup, 0),
		atLeast("measure.limit", c.Measure.Limit, 10*time.Second),
		oneOf("backend", c.Backend, "nvml", "emulated"),
		oneOf("measure.mode", c.Measure.Mode, measure.Manual, measure.Idle, measure.Off),
		checkReasons("health.ignore", c.Health.Ignore, slices.Concat(faults, degradations)),
		checkReasons("health.unhealthy", c.Health.Unhealthy, degradations),
		checkSharing(c.Sharing),
	)
	if c.Backend == "emulated" && c.Inventory == "" {
		err = errors.Join(err, fmt.Errorf("config key %q: backend \"emulated\" needs the path of an inventory file", "inventory"))
	}
	return err
}

func atLeast[T cmp.Ordered](key string, value, least T) error {
	if value < least {
		return fmt.Errorf("config key %q: %v is below the minimum %v", key, value, least)
	}
	return nil
}

func oneOf[T ~string](key string, word T, words ...T) error {
	if !slices.Contains(words, word) {
		return fmt.Errorf("config key %q: %q is not one of %s", key, word, strings.ReplaceAll(strings.Trim(fmt.Sprint(words), "[]"), " ", ", "))
	}
	return nil
}
