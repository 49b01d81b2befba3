// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/model"
)

// The reference pages that these tests read, and write with -rewrite-reference.
const configurationPage = "../../docs/reference/configuration.md"

// TestReference checks that the page contains exactly the keys of the configuration. The tables of
// [model.Keys] are generated.
func TestReference(t *testing.T) {
	text := readPage(t, configurationPage)
	for _, block := range []string{"", "queue"} {
		text = withTable(t, text, block)
	}
	if *rewriteReference {
		if err := os.WriteFile(configurationPage, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	reference := readPage(t, configurationPage)
	if d := cmp.Diff(text, reference); d != "" {
		t.Errorf("the tables are not what the code has; -rewrite-reference writes them (-code +page):\n%s", d)
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
	for _, k := range model.Keys() {
		known[k.Name] = true
	}
	if d := cmp.Diff(known, documented); d != "" {
		t.Errorf("keys of the configuration (-) and on the page (+):\n%s", d)
	}
}

// withTable returns the page with the generated table of a block's keys between the block's two
// markers.
func withTable(t *testing.T, page, block string) string {
	t.Helper()
	begin := fmt.Sprintf("<!-- keys %q: written by go test ./placer/agent -run TestReference -rewrite-reference -->\n", block)
	before, rest, ok := strings.Cut(page, begin)
	_, after, ends := strings.Cut(rest, "<!-- end of keys -->\n")
	if !ok || !ends {
		t.Fatalf("%s has no table of the keys of block %q", configurationPage, block)
	}
	var b strings.Builder
	b.WriteString(before + begin + "\n| key | default | what it does, and what it costs |\n|---|---|---|\n")
	for _, k := range model.Keys() {
		if k.Block == block {
			fmt.Fprintf(&b, "| `%s` | `%s` | %s |\n", k.Name, k.Literal(model.DefaultConfig()), k.Doc)
		}
	}
	b.WriteString("\n<!-- end of keys -->\n" + after)
	return b.String()
}

func readPage(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// keys returns the attributes of a configuration struct and its blocks.
func keys(t reflect.Type, into map[string]bool, block func(string)) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("hcl")
		name, kind, _ := strings.Cut(tag, ",")
		switch {
		case kind == "remain" && f.Type.Kind() == reflect.Struct:
			keys(f.Type, into, block)
		case tag == "" || kind == "label" || kind == "remain":
		case kind == "block":
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

// The configuration file in the packages is valid, with and without its commented-out lines.
func TestExample(t *testing.T) {
	path := filepath.Join("..", "deploy", "systemd", "nomad-pal.hcl")
	if file, err := Load([]string{path}); err != nil || !file.HA.on() {
		t.Fatalf("%+v, %v", file, err)
	}
	examples := regexp.MustCompile(`(?m)^( *)# (( *[a-z_]+ +=|[a-z]+ ("[^"]+" )?\{|\}).*)$`).ReplaceAllString(readPage(t, path), "$1$2")
	file, err := loadText(t, examples)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := file.PlacerConfig()
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Apps["llama-7b"] != pal.ClassA || file.Nomad.RPCAddress == "" || len(file.Tenants) != 1 {
		t.Errorf("the examples say something else:\n%s", examples)
	}
}

// The examples in the docs for operators are valid configurations, except indented ones: they configure
// other programs.
func TestDocsExamples(t *testing.T) {
	examples, pair := 0, issue(t, "pal.example.com")
	for _, page := range []string{"operators/configure.md", "operators/nodes-and-failures.md", "tasks/cap-a-team.md", "tasks/serve-the-page.md", "tasks/two-agents.md", "tasks/usage.md"} {
		text := readPage(t, filepath.Join("..", "..", "docs", page))
		for _, m := range regexp.MustCompile("(?ms)^```hcl\n(.*?)^```").FindAllStringSubmatch(text, -1) {
			examples++
			text := regexp.MustCompile(`"/etc/[^"]*-key\.pem"`).ReplaceAllLiteralString(m[1], strconv.Quote(pair.key))
			text = regexp.MustCompile(`"/etc/[^"]*\.pem"`).ReplaceAllLiteralString(text, strconv.Quote(pair.cert))
			file, err := loadText(t, text)
			if err == nil {
				_, err = file.PlacerConfig()
			}
			if err != nil {
				t.Errorf("%s: %v in:\n%s", page, err, m[1])
			}
		}
	}
	if examples < 5 {
		t.Errorf("found %d examples only", examples)
	}
}

// The defaults on the page that [TestReference] does not compare are those of the code.
func TestDefaults(t *testing.T) {
	got, err := blank().PlacerConfig()
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(model.DefaultConfig(), got); d != "" {
		t.Errorf("an empty configuration changes the defaults:\n%s", d)
	}
	ttl, _ := (&HA{}).ttl()
	text := readPage(t, configurationPage)
	for key, want := range map[string]string{
		"cluster":    fmt.Sprintf("`%g`", got.Locality[pal.TierCluster][0]),
		"node":       fmt.Sprintf("`%g`", got.Locality[pal.TierNode][0]),
		"hysteresis": fmt.Sprintf("`%g`", got.Calibration.Hysteresis),
		"outlier":    fmt.Sprintf("`%g`", got.Calibration.Outlier),
		"min_gpus":   fmt.Sprintf("`%d`", got.Calibration.MinGPUs),
		"lock_ttl":   fmt.Sprintf("`%q`", ttl.String()),
	} {
		row := regexp.MustCompile("(?m)^\\| [^|]*`" + key + "`[^|]*\\| ([^|]*) \\|").FindStringSubmatch(text)
		if row == nil || !strings.Contains(row[1], want) {
			t.Errorf("%s: the code's default is %s, the page's row says %q", key, want, row)
		}
	}
}

func TestConfigErrors(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"syntax", "http {", "agent.hcl:1"},
		{"unknown key", "http {\n  port = 1\n}", `agent.hcl:2,3-7: Unsupported argument; An argument named "port" is not expected here`},
		{"unknown block", "web {}", "agent.hcl:1,1-4: Unsupported block type"},
		{"wrong kind", "http {\n  bind_port = \"maybe\"\n}", "agent.hcl:2"},
		{"duration", "queue {\n  max_wait = \"soon\"\n}", `agent.hcl:2,14-20: Invalid value of queue.max_wait; "soon" is not a positive duration such as 30s, 12h, 2d or 1-12:00:00`},
		{"too long a duration", "queue {\n  max_wait = \"9999999h\"\n}", `agent.hcl:2,14-24: Invalid value of queue.max_wait; "9999999h" is longer than the maximum duration, 876000h (100 years)`},
		{"longer than queues add up", "queue {\n  max_wait = \"2000000h\"\n}", `"2000000h" is longer than the maximum duration`},
		{"too long a lock", "high_availability {\n  lock_ttl = \"9999999h\"\n}", `high_availability: lock_ttl = "9999999h" is longer than the maximum duration`},
		{"number", "retries = \"many\"", `agent.hcl:1,11-17: Invalid value of retries; "many" is neither 0 nor a positive integer`},
		{"below zero", "queue {\n  outlier_threshold = -1\n}", `Invalid value of queue.outlier_threshold; "-1" is neither 0 nor a positive number`},
		{"zero", "queue {\n  overdue_share = 0\n}", `Invalid value of queue.overdue_share; "0" is not a positive number`},
		{"time below zero", "queue {\n  restart_cost = \"-1m\"\n}", `Invalid value of queue.restart_cost; "-1m" is not a positive duration such as 30s, 12h, 2d or 1-12:00:00; 0 is allowed, too`},
		{"flag", "queue {\n  preempt = 3\n}", `agent.hcl:2,13-14: Invalid value of queue.preempt; "3" is neither true nor false`},
		{"nothing", "queue {\n  max_wait = null\n}", `Invalid value of queue.max_wait; it has no value`},
		{"list", "retries = [1]", `Invalid value of retries`},
		{"unknown key of the queue", "queue {\n  passing = true\n}", `agent.hcl:2,3-10: Unsupported argument; An argument named "passing" is not expected here`},
		{"block in the queue", "queue {\n  web {}\n}", `agent.hcl:2,3`},
		{"all at once", "gang_ready_timeout = 3\nqueue {\n  preempt = 3\n  x = 1\n}", `Unsupported argument; An argument named "x"`},
		{"all at once, the first", "gang_ready_timeout = 3\nqueue {\n  preempt = 3\n  x = 1\n}", `agent.hcl:1,22-23: Invalid value of gang_ready_timeout`},
		{"placement", "placement = \"best\"", `placement policy "best" is unknown`},
		{"class", "default_class = \"Z\"", `Invalid value of default_class; application class "Z" is unknown; it must be one of A, B, C, D`},
		{"app", "app \"x\" {\n  class = \"E\"\n}", `app "x": application class "E" is unknown`},
		{"order", "queue {\n  order = \"nice\"\n}", `queue order "nice" is unknown`},
		{"locality", "locality {\n  cluster = 0.5\n}", "locality: penalty 0.5"},
		{"calibration", "calibration {\n  min_gpus = -1\n}", `calibration: min_gpus: -1 is less than 1`},
		{"port", "http {\n  bind_port = 70000\n}", "http: bind_port: 70000 is not in 0…65535"},
		{"port in the address", "http {\n  bind_address = \"0.0.0.0:8090\"\n}", `http: bind_address: "0.0.0.0:8090" must be a host name or an IP address without a port`},
		{"URL as host", "http {\n  allowed_hosts = [\"https://pal.example\"]\n}", `http: allowed_hosts: "https://pal.example" must be a host name`},
		{"nobody is elected", "high_availability {\n  lock_ttl = \"30s\"\n}", "high_availability: without enabled = true, agents elect no leader"},
		{"half of TLS", "http {\n  cert_file = \"x\"\n}", "http: TLS requires both cert_file and key_file"},
		{"no certificate", "http {\n  cert_file = \"/none\"\n  key_file = \"/none\"\n}", `http: cert_file "/none": open /none: no such file or directory`},
		{"RPC address", "nomad {\n  rpc_address = \"10.0.0.1\"\n}", `nomad: rpc_address: "10.0.0.1" is not host:port`},
		{"no database", "history {\n  database = \"\"\n}", `history: database = "" is neither a file nor an address`},
		{"retention", "history {\n  database = \"x\"\n  retention = \"long\"\n}", `history: retention = "long" is not a positive duration`},
		{"lock", "high_availability {\n  lock_ttl = \"x\"\n}", `high_availability: lock_ttl = "x" is not a positive duration`},
		{"lock shorter than Nomad takes", "high_availability {\n  lock_ttl = \"10ms\"\n}", `high_availability: lock_ttl = "10ms" is not between`},
		{"address", "nomad {\n  address = \"nomad:4646\"\n}", `nomad: address: "nomad:4646" is not a URL such as https://nomad.example.com:4646`},
		{"admission type", "admission {\n  types = [\"system\"]\n}", `admission: types: "system" is neither batch nor service`},
		{"tenant", "tenant \"x\" {\n  quota = -1\n}", `tenant "x": quota -1`},
		{"window", "window \"w\" {\n  start = \"soon\"\n  duration = \"1h\"\n}", `window "w": start = "soon" is not a time such as 2026-11-25T02:00:00Z`},
		{"window forever", "window \"w\" {\n  cron = \"0 2 * * 0\"\n}", `The argument "duration" is required`},
		{"window of no time", "window \"w\" {\n  duration = \"1h\"\n}", `window "w": either start or cron is needed, not both`},
		{"window twice", strings.Repeat("window \"w\" {\n  cron = \"0 2 * * 0\"\n  duration = \"1h\"\n  for = [\"ml/train*\"]\n}\n", 2), `window "w" is defined twice`},
		{"tenant twice", "tenant \"x\" {}\ntenant \"x\" {}", `tenant "x" is defined twice`},
		{"app twice", strings.Repeat("app \"x\" {\n  class = \"A\"\n}\n", 2), `app "x" is defined twice`},
		{"penalties of a class twice", "locality {\n" + strings.Repeat("  class \"A\" {\n    rack = 1.1\n  }\n", 2) + "}\n", `locality: class "A" is defined twice`},
		{"log level", "log_level = \"loud\"\n", `log level "loud" is unknown; it must be one of trace, debug, info, warn, error`},
		{"tenants of one namespace", "tenant \"x\" {}\ntenant \"y\" {\n  namespaces = [\"x\"]\n}", `namespace "x" belongs to both tenant "x" and tenant "y"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			file, err := loadText(t, c.text)
			if err == nil {
				_, err = file.PlacerConfig()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// loadText loads a configuration with this text.
func loadText(t *testing.T, text string) (File, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent.hcl")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load([]string{path})
}

// A class may have a penalty for a tier that the other classes do not tell apart.
func TestPenaltyOfOneClass(t *testing.T) {
	t.Parallel()
	for _, of := range pal.AppClasses() {
		file, err := loadText(t, fmt.Sprintf("locality {\n  cluster = 1.5\n  class %q {\n    rack = 1.1\n  }\n}\n", of))
		if err != nil {
			t.Fatal(err)
		}
		cfg, err := file.PlacerConfig()
		if err != nil {
			t.Errorf("class %s: %v", of, err)
			continue
		}
		want := [pal.NumClasses]float64{1.5, 1.5, 1.5, 1.5}
		want[of.Index()] = 1.1
		if got := cfg.Locality[pal.TierRack]; got != want || !slices.Contains(cfg.Locality.Tiers(), pal.TierRack) {
			t.Errorf("class %s: tier rack has the penalties %v, want %v", of, got, want)
		}
	}
}

// Several files form one configuration, in HCL or JSON.
func TestLoadDirectory(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"10.hcl": "retries = 7\n", "20.json": `{"http": {"bind_port": 0}}`, "readme.txt": "not read", ".#10.hcl": "an editor's lock",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	file, err := Load([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := file.PlacerConfig()
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Retries != 7 || file.HTTP == nil || *file.HTTP.BindPort != 0 {
		t.Errorf("%+v", file)
	}
	other := t.TempDir() // a file that exists but is not read
	if err := os.WriteFile(filepath.Join(other, "agent.conf"), []byte("retries = 7\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Load([]string{dir, other}); err == nil || !strings.Contains(err.Error(), "has no file whose name ends in .hcl or .json") {
		t.Errorf("a folder without configuration: %v", err)
	}
	if _, err := Load([]string{filepath.Join(dir, "none")}); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a file that is not there: %v", err)
	}
}
