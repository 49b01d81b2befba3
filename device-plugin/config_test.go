// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/hashicorp/nomad/plugins/shared/hclspec"

	"github.com/nomad-pal/nomad-pal/device-plugin/conformance"
	"github.com/nomad-pal/nomad-pal/device-plugin/emulated"
	"github.com/nomad-pal/nomad-pal/device-plugin/measure"
)

// referencePage returns the docs page of the plugin's configuration.
func referencePage(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../docs/reference/plugin-configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The page's table has exactly the keys of the schema, with their defaults.
func TestEveryConfigKeyIsDocumented(t *testing.T) {
	_, table, _ := strings.Cut(referencePage(t), "## Keys")
	table, _, _ = strings.Cut(table, "\n## ")
	documented := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|(?: `([^`]+)`)?").FindAllStringSubmatch(table, -1) {
		documented[m[1]] = m[2]
	}
	for key, want := range schemaDefaults(ConfigSchema()) {
		if got, ok := documented[key]; !ok || got != want {
			t.Errorf("%s: on the page %v, with default %s; want %s", key, ok, got, want)
		}
		delete(documented, key)
	}
	for key := range documented {
		t.Errorf("the page documents %s, which does not exist", key)
	}
}

// schemaDefaults returns the defaults in HCL, by key as the page writes it: "key" or "block
// { key }".
func schemaDefaults(s *hclspec.Spec) map[string]string {
	out := map[string]string{}
	for name, child := range s.GetObject().GetAttributes() {
		nested := child.GetBlockList().GetNested()
		for _, block := range []*hclspec.Spec{child, child.GetDefault().GetPrimary()} {
			if n := block.GetBlockValue().GetNested(); n != nil {
				nested = n
			}
		}
		if nested != nil {
			for inner, value := range schemaDefaults(nested) {
				out[name+" { "+inner+" }"] = value
			}
			continue
		}
		out[name] = child.GetDefault().GetDefault().GetLiteral().GetValue()
	}
	return out
}

// The backend accepts the page's example inventory.
func TestInventoryOfThePage(t *testing.T) {
	page := referencePage(t)
	_, text, ok := strings.Cut(page, "## Emulated inventory")
	if !ok {
		t.Fatal("the page has no section on the emulated inventory")
	}
	_, text, _ = strings.Cut(text, "```hcl\n")
	text, _, _ = strings.Cut(text, "```")
	path := filepath.Join(t.TempDir(), "gpus.hcl")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	b := emulated.Open(path)
	inv, err := b.Scan()
	if err != nil || len(inv.Devices) != 2 || len(inv.Warnings) != 0 {
		t.Errorf("got %d GPUs, warnings %v, error %v", len(inv.Devices), inv.Warnings, err)
	}
}

// A period that means "never" does not overflow into "always": durations end at 100 years.
func TestLongestDuration(t *testing.T) {
	for text, want := range map[string]string{
		"876000h":  "",
		"1000000h": `config key "measure.interval": "1000000h" is not a duration of at most 876000h (100 years), such as 30s or 1m`,
		"9999999h": `config key "measure.interval": "9999999h" is not a duration of at most 876000h (100 years), such as 30s or 1m`,
	} {
		data, err := conformance.EncodeConfig(ConfigSchema(), fmt.Sprintf("measure {\n interval = %q\n}", text))
		if err != nil {
			t.Fatal(err)
		}
		if _, err = DecodeConfig(data); err == nil && want != "" || err != nil && err.Error() != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// By default the state survives a restart, but several emulated nodes on one machine do not
// share it.
func TestDefaultStateDir(t *testing.T) {
	for text, want := range map[string]string{
		"":                     DefaultStateDir,
		`state_dir = ""`:       "",
		`state_dir = "/srv/p"`: "/srv/p",
		"backend = \"emulated\"\ninventory = \"x\"":                         "",
		"backend = \"emulated\"\ninventory = \"x\"\nstate_dir = \"/srv/p\"": "/srv/p",
	} {
		data, err := conformance.EncodeConfig(ConfigSchema(), text)
		if err != nil {
			t.Fatal(err)
		}
		c, err := DecodeConfig(data)
		if err != nil || c.StateDir != want {
			t.Errorf("%q: state_dir %q, %v, want %q", text, c.StateDir, err, want)
		}
	}
}

// A key that is null, a block without keys, and a missing block mean the defaults, as in
// nomad-device-nvidia.
func TestNullAndMissingKeysMeanTheDefaults(t *testing.T) {
	for _, text := range []string{
		"", "fingerprint_period = null\nignored_gpu_ids = null\nenabled = null", "measure {}", "measure {\n warmup = null\n}",
		"reserve {}\nhealth {}\nnomad {}",
	} {
		data, err := conformance.EncodeConfig(ConfigSchema(), text)
		if err != nil {
			t.Fatal(err)
		}
		c, err := DecodeConfig(data)
		if diff := cmp.Diff(DefaultConfig(), c, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Errorf("%q: %v (-want +got)\n%s", text, err, diff)
		}
	}
	data, err := conformance.EncodeConfig(ConfigSchema(), "profile_from_nomad {}\nsharing {\n replicas = 2\n}")
	if err != nil {
		t.Fatal(err)
	}
	c, err := DecodeConfig(data)
	want := DefaultConfig()
	want.ProfileFromNomad = &NomadProfileConfig{Period: time.Minute}
	want.Sharing = []SharingConfig{{Mode: TimeSlicing, Replicas: 2, GPUs: []string{"*"}, PipeDirectory: "/run/nvidia-mps"}}
	if diff := cmp.Diff(want, c, cmpopts.EquateEmpty()); err != nil || diff != "" {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
}

// A new installation runs no kernel on a GPU before somebody asks for it.
func TestMeasuresOnlyOnRequestByDefault(t *testing.T) {
	if mode := DefaultConfig().Measure.Mode; mode != measure.Manual {
		t.Errorf("the default mode is %q", mode)
	}
}
