// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package packs contains packs for nomad-pack; its tests render them as nomad-pack does. The pack
// must give the same job as jobspecs/nomad-pal.nomad.hcl, so change both together.
package packs

import (
	"bytes"
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"text/template"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/jobspec2"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/nomad-pal/nomad-pal/internal/version"
)

// With its default variables, the pack renders the same job as jobspecs/nomad-pal.nomad.hcl.
func TestPackIsTheJobspec(t *testing.T) {
	got, want := render(t, nil), parse(t, filepath.Join("..", "jobspecs", "nomad-pal.nomad.hcl"))
	if d := gocmp.Diff(want, got); d != "" {
		t.Errorf("jobspec (-) and pack (+):\n%s", d)
	}
}

// The pack has the version of the source tree. For a release, release/build.sh writes the release's
// version into the pack.
func TestPackVersion(t *testing.T) {
	text, err := os.ReadFile("nomad-pal/metadata.hcl")
	if err != nil {
		t.Fatal(err)
	}
	if want := "\n  version     = " + strconv.Quote(version.Number) + "\n"; !strings.Contains(string(text), want) {
		t.Errorf("want%sin\n%s", want, text)
	}
}

func TestPackVariables(t *testing.T) {
	job := render(t, map[string]any{
		"job_name": "placer", "region": "eu", "namespace": "infra", "node_pool": "all", "datacenters": []string{"a", "b"}, "count": 3,
		"driver": "docker", "image": "registry/nomad-pal:1", "config": "default_class = \"B\"", "cpu": 300, "memory": 1024,
	})
	task := job.TaskGroups[0].Tasks[0]
	got := []any{*job.ID, *job.Region, *job.Namespace, *job.NodePool, job.Datacenters, *job.TaskGroups[0].Count, task.Driver, task.Config["image"],
		task.Config["command"], task.Config["network_mode"], *task.Resources.CPU, *task.Resources.MemoryMB}
	want := []any{"placer", "eu", "infra", "all", []string{"a", "b"}, 3, "docker", "registry/nomad-pal:1", nil, "host", 300, 1024}
	if d := gocmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if text := *task.Templates[0].EmbeddedTmpl; !strings.Contains(text, "\ndefault_class = \"B\"\n") {
		t.Errorf("the configuration is\n%s", text)
	}
}

// render renders the pack's job with these variables. It implements only those template functions
// of nomad-pack that the pack uses.
func render(t *testing.T, set map[string]any) *api.Job {
	t.Helper()
	values := defaults(t)
	for name, v := range set {
		if _, ok := values[name]; !ok {
			t.Fatalf("the pack has no variable %q", name)
		}
		values[name] = v
	}
	functions := template.FuncMap{
		"quote":   strconv.Quote,
		"toJson":  func(v any) (string, error) { text, err := json.Marshal(v); return string(text), err },
		"var":     func(name string, _ any) any { return values[name] },
		"default": func(other, v string) string { return cmp.Or(v, other) },
	}
	var out bytes.Buffer
	for _, name := range []string{"outputs.tpl", "templates/nomad-pal.nomad.tpl"} {
		out.Reset()
		text, err := os.ReadFile(filepath.Join("nomad-pal", name))
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := template.New(name).Delims("[[", "]]").Funcs(functions).Parse(string(text))
		if err == nil {
			err = parsed.Execute(&out, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "rendered.nomad.hcl")
	if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return parse(t, path)
}

// defaults returns the default values of the pack's variables.
func defaults(t *testing.T) map[string]any {
	t.Helper()
	file, diags := hclparse.NewParser().ParseHCLFile("nomad-pal/variables.hcl")
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	all := map[string]any{}
	for _, block := range file.Body.(*hclsyntax.Body).Blocks {
		value, diags := block.Body.Attributes["default"].Expr.Value(nil)
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		text, err := ctyjson.Marshal(value, value.Type())
		if err != nil {
			t.Fatal(err)
		}
		var v any
		if err := json.Unmarshal(text, &v); err != nil {
			t.Fatal(err)
		}
		all[block.Labels[0]] = v
	}
	return all
}

func parse(t *testing.T, path string) *api.Job {
	t.Helper()
	body, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	job, err := jobspec2.ParseWithConfig(&jobspec2.ParseConfig{Path: path, Body: body, Strict: true})
	if err != nil {
		t.Fatalf("%v in\n%s", err, body)
	}
	job.Canonicalize()
	return job
}
