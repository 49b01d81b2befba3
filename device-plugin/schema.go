// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"strconv"

	"github.com/hashicorp/nomad/plugins/shared/hclspec"
)

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
	Compat            string   `codec:"compat"`
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
		Jitter      string `codec:"jitter"`
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
		"state_dir":          attr("state_dir", "string", strconv.Quote(DefaultStateDir)),
		"cdi":                attr("cdi", "bool", "false"),
		"compat":             attr("compat", "string", `"jobs"`),
		"watchdog":           attr("watchdog", "string", `"2m"`),
		"reserve": block("reserve", map[string]*hclspec.Spec{
			"cuda_visible_devices": attr("cuda_visible_devices", "bool", "false"),
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
			"jitter":       attr("jitter", "string", `"1h"`),
			"warmup":       attr("warmup", "string", `"45s"`),
			"limit":        attr("limit", "string", `"2m"`),
			"one_by_one":   attr("one_by_one", "bool", "false"),
			"cuda_library": attr("cuda_library", "string", `"libcuda.so.1"`),
		}),
	})
}
