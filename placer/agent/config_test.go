// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer"
)

// TestReference: the README has every key of the configuration, and no other.
func TestReference(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, reference, ok := strings.Cut(string(text), "## Configuration, key by key")
	reference, _, ends := strings.Cut(reference, "## Access control")
	if !ok || !ends {
		t.Fatal("the README has no configuration reference")
	}
	documented := map[string]bool{}
	for _, line := range strings.Split(reference, "\n") {
		cell, _, isRow := strings.Cut(strings.TrimPrefix(line, "|"), "|")
		if !isRow || !strings.HasPrefix(line, "| `") {
			continue
		}
		for _, key := range strings.Split(cell, ",") {
			documented[strings.Trim(strings.TrimSpace(key), "`")] = true
		}
	}
	known := map[string]bool{}
	keys(reflect.TypeFor[File](), known, func(block string) {
		if !strings.Contains(reference, "`"+block+" ") {
			t.Errorf("block %q has no section", block)
		}
	})
	if d := cmp.Diff(known, documented); d != "" {
		t.Errorf("keys of the configuration (-) and in the README (+):\n%s", d)
	}
}

// keys collects the attributes of a configuration struct and its blocks.
func keys(t reflect.Type, into map[string]bool, block func(string)) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("hcl")
		name, kind, _ := strings.Cut(tag, ",")
		switch kind {
		case "label":
		case "block":
			block(name)
			inner := f.Type
			for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice {
				inner = inner.Elem()
			}
			keys(inner, into, block)
		default:
			into[name] = true
		}
	}
}

// The example that we ship is a configuration.
func TestExample(t *testing.T) {
	file, err := Load([]string{filepath.Join("..", "deploy", "systemd", "nomad-pal.hcl")})
	if err != nil {
		t.Fatal(err)
	}
	rules, err := file.Rules()
	if err != nil {
		t.Fatal(err)
	}
	if rules.Apps["llama-7b"] != pal.ClassA || !file.HA.Enabled {
		t.Errorf("the example says something else: %+v", rules.Apps)
	}
}

// The defaults of the README are those of the code.
func TestDefaults(t *testing.T) {
	got, err := File{}.Rules()
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(placer.DefaultConfig(), got); d != "" {
		t.Errorf("an empty configuration changes the rules:\n%s", d)
	}
	ttl, delay, _ := (*HA)(nil).times()
	for _, c := range []struct {
		key       string
		want, got any
	}{
		{"placement", pal.PAL, got.Placement}, {"default_class", pal.ClassB, got.DefaultClass}, {"rack_meta", "rack", got.RackMeta},
		{"grace", 5 * time.Second, got.Grace}, {"resync", 5 * time.Minute, got.Resync}, {"retries", 2, got.Retries},
		{"order", "adaptive", string(got.Queue.Order)}, {"backfill", true, got.Queue.Backfill}, {"passing", false, got.Queue.Passing},
		{"preempt", true, got.Queue.Preempt}, {"migrate", true, got.Queue.Migrate}, {"near", true, got.Queue.Near},
		{"avoid", 1.5, got.Queue.Avoid}, {"fair_share", false, got.Queue.FairShare},
		{"restart_cost", time.Minute, got.RestartCost}, {"moves_per_hour", 12, got.MovesPerHour},
		{"cluster", 1.7, got.Locality[pal.TierCluster][0]}, {"node", 1.0, got.Locality[pal.TierNode][0]},
		{"hysteresis", 0.005, got.Calibration.Hysteresis}, {"outlier", 1.5, got.Calibration.Outlier}, {"min_gpus", 8, got.Calibration.MinGPUs},
		{"lock_ttl", 15 * time.Second, ttl}, {"lock_delay", 5 * time.Second, delay},
	} {
		if c.got != c.want {
			t.Errorf("%s: the README says %v, the code %v", c.key, c.want, c.got)
		}
	}
}

func TestConfigErrors(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"syntax", "http {", "agent.hcl:1"},
		{"unknown key", "http {\n  port = 1\n}", `agent.hcl:2,3-7: Unsupported argument; An argument named "port" is not expected here`},
		{"unknown block", "web {}", "agent.hcl:1,1-4: Unsupported block type"},
		{"wrong kind", "log_json = \"maybe\"", "agent.hcl:1"},
		{"duration", "grace = \"soon\"", `grace = "soon" is not a positive duration such as 30s or 12h`},
		{"placement", "placement = \"best\"", `placement policy "best" is unknown`},
		{"class", "default_class = \"Z\"", `default_class: application class "Z" is unknown (one of A, B, C, D)`},
		{"app", "app \"x\" {\n  class = \"E\"\n}", `app "x": application class "E" is unknown`},
		{"order", "queue {\n  order = \"nice\"\n}", `queue order "nice" is unknown`},
		{"locality", "locality {\n  cluster = 0.5\n}", "locality: penalty 0.5"},
		{"calibration", "calibration {\n  method = \"guess\"\n}", `calibration: method "guess" is unknown`},
		{"port", "http {\n  bind_port = 70000\n}", "http: bind_port: 70000 is not in 0…65535"},
		{"half of TLS", "http {\n  cert_file = \"x\"\n}", "http: TLS takes both cert_file and key_file"},
		{"no certificate", "http {\n  cert_file = \"/none\"\n  key_file = \"/none\"\n}", `http: cert_file "/none": open /none: no such file or directory`},
		{"RPC address", "nomad {\n  rpc_address = \"10.0.0.1\"\n}", `nomad: rpc_address: "10.0.0.1" is not host:port`},
		{"lock", "high_availability {\n  lock_ttl = \"x\"\n}", `high_availability: lock_ttl = "x" is not a positive duration`},
		{"admission off", "admission {}", "admission: the endpoint is off"},
		{"admission type", "http {\n  admission = true\n}\nadmission {\n  types = [\"system\"]\n}", `admission: types: "system" is not batch or service`},
		{"tenant", "tenant \"x\" {\n  gpus = -1\n}", `tenant "x": quota -1`},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "agent.hcl")
			if err := os.WriteFile(path, []byte(c.text), 0o644); err != nil {
				t.Fatal(err)
			}
			file, err := Load([]string{path})
			if err == nil {
				_, err = file.Rules()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// Several files are one configuration; JSON is as good as HCL.
func TestLoadDirectory(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"10.hcl": "grace = \"7s\"\n", "20.json": `{"http": {"bind_port": 0}}`, "readme.txt": "not read",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	file, err := Load([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	if file.Grace != "7s" || file.HTTP == nil || *file.HTTP.BindPort != 0 {
		t.Errorf("%+v", file)
	}
	if _, err := Load([]string{filepath.Join(dir, "none")}); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a file that is not there: %v", err)
	}
}
