// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"cmp"
	"reflect"
	"strconv"

	"github.com/hashicorp/nomad/plugins/shared/hclspec"
)

// raw is the configuration as Nomad sends it, with the defaults that Nomad fills in:
// "", false and empty lists where the tag has none. nil blocks were not given.
type raw struct {
	Enabled           bool     `codec:"enabled" default:"true"`
	IgnoredGPUIDs     []string `codec:"ignored_gpu_ids"`
	FingerprintPeriod string   `codec:"fingerprint_period" default:"1m"`
	Backend           string   `codec:"backend" default:"nvml"`
	Inventory         string   `codec:"inventory"`
	NVMLLibrary       string   `codec:"nvml_library" default:"libnvidia-ml.so.1"`
	Profile           string   `codec:"profile"`
	StateDir          string   `codec:"state_dir" default:"/var/lib/nomad-device-pal"`
	CDI               bool     `codec:"cdi"`
	Compat            string   `codec:"compat" default:"jobs"`
	Watchdog          string   `codec:"watchdog" default:"2m"`
	Reserve           *struct {
		CUDAVisibleDevices bool   `codec:"cuda_visible_devices"`
		DeviceNodes        bool   `codec:"device_nodes"`
		Unhealthy          string `codec:"unhealthy" default:"deny"`
	} `codec:"reserve"`
	Stats *struct {
		GPM         string `codec:"gpm" default:"auto"`
		MinInterval string `codec:"min_interval" default:"1s"`
	} `codec:"stats"`
	Health *struct {
		Enabled             bool     `codec:"enabled" default:"true"`
		IgnoreXids          []int    `codec:"ignore_xids"`
		FatalXids           []int    `codec:"fatal_xids"`
		Ignore              []string `codec:"ignore"`
		DegradedIsUnhealthy bool     `codec:"degraded_is_unhealthy"`
		RecoverPolls        int      `codec:"recover_polls" default:"2"`
	} `codec:"health"`
	Variability *struct {
		AppClasses []string `codec:"app_classes" default:"[\"a\", \"b\", \"c\", \"d\"]"`
		Default    string   `codec:"default_app_class" default:"a"`
	} `codec:"variability"`
	ProfileFromNomad *struct {
		Address    string `codec:"address"`
		Namespace  string `codec:"namespace"`
		TokenFile  string `codec:"token_file"`
		CACert     string `codec:"ca_cert"`
		ClientCert string `codec:"client_cert"`
		ClientKey  string `codec:"client_key"`
		Period     string `codec:"period" default:"1m"`
	} `codec:"profile_from_nomad"`
	Measure *struct {
		Mode        string `codec:"mode" default:"idle"`
		Interval    string `codec:"interval" default:"168h"`
		IdleFor     string `codec:"idle_for" default:"1m"`
		Jitter      string `codec:"jitter" default:"1h"`
		Warmup      string `codec:"warmup" default:"45s"`
		Limit       string `codec:"limit" default:"2m"`
		OneByOne    bool   `codec:"one_by_one"`
		CUDALibrary string `codec:"cuda_library" default:"libcuda.so.1"`
	} `codec:"measure"`
}

// configSchema is what Nomad checks the plugin's config block against: unknown
// keys and wrong types are refused there, with the key's name.
func configSchema() *hclspec.Spec { return schemaOf(reflect.TypeFor[raw]()) }

func schemaOf(t reflect.Type) *hclspec.Spec {
	body := map[string]*hclspec.Spec{}
	for f := range t.Fields() {
		f := f
		name, literal, kind := f.Tag.Get("codec"), f.Tag.Get("default"), ""
		switch reflect.Zero(f.Type).Interface().(type) {
		case bool:
			kind, literal = "bool", cmp.Or(literal, "false")
		case int:
			kind = "number"
		case string:
			kind, literal = "string", strconv.Quote(literal)
		case []string:
			kind, literal = "list(string)", cmp.Or(literal, "[]")
		case []int:
			kind, literal = "list(number)", cmp.Or(literal, "[]")
		default:
			body[name] = hclspec.NewBlock(name, false, schemaOf(f.Type.Elem()))
			continue
		}
		body[name] = hclspec.NewDefault(hclspec.NewAttr(name, kind, false), hclspec.NewLiteral(literal))
	}
	return hclspec.NewObject(body)
}
