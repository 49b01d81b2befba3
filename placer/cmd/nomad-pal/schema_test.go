// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/invopop/jsonschema"

	"github.com/nomad-pal/nomad-pal/pal/reason"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/profile"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/sim/simulate"
)

// outputs are the values that commands print with -json.
var outputs = map[string]any{
	"classify": classified{}, "doctor": []palapi.Check{}, "events": palapi.Event{},
	"explain": explained{}, "gpus": []palapi.GPU{}, "history": []palapi.Run{}, "history -by": []palapi.Usage{}, "plan": planned{},
	"profile import": imported{}, "profile show": []groupSummary{},
	"quarantine": map[string]palapi.Quarantine{}, "quarantine -lift": []string{}, "queue": []palapi.JobStatus{},
	"hold": []controlled{}, "requeue": []controlled{}, "priority": []controlled{},
	"cancel": []string{}, "release": []string{}, "run": palapi.Explanation{}, "run -detach": registration{}, "simulate": simulate.Report{},
	"status": overview{}, "version": versions{},
}

// docs/reference/json.schema.json is made from the types of the outputs.
func TestCommandReferenceOfJSON(t *testing.T) {
	const path = "../../../docs/reference/json.schema.json"
	text, err := json.MarshalIndent(schemaOfAll(t), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	want := string(text) + "\n"
	if *rewriteReference {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, string(got)); d != "" {
		t.Errorf("%s differs from the types; -rewrite-reference writes it (-types +file):\n%s", path, d)
	}
}

// The schema has the output of each command that takes -json.
func TestEveryOutputIsDescribed(t *testing.T) {
	for name, command := range commands(t.Context(), streams{}) {
		c, err := command()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(c.Help(), "\nOutput Options:") && outputs[name] == nil {
			t.Errorf("the output of %s is not in outputs", name)
		}
	}
}

func schemaOfAll(t *testing.T) *jsonschema.Schema {
	comments := commentsOf(t, "../../..", "pal", "placer", "sim/simulate")
	r := &jsonschema.Reflector{
		Anonymous: true, AllowAdditionalProperties: true,
		Namer: func(t reflect.Type) string {
			if t == reflect.TypeFor[profile.Event]() {
				return "ProfileEvent" // another type has the name Event
			}
			return capital(t.Name())
		},
		Mapper: func(t reflect.Type) *jsonschema.Schema {
			switch t {
			case reflect.TypeFor[palapi.State]():
				return oneOf(palapi.States()...)
			case reflect.TypeFor[reason.Kind]():
				return oneOf(reason.Kinds()...)
			case reflect.TypeFor[palapi.Seconds]():
				return &jsonschema.Schema{Type: "number"}
			case reflect.TypeFor[palapi.RunState]():
				return oneOf(palapi.RunStates()...)
			case reflect.TypeFor[pal.Tier]():
				return oneOf(pal.TierIsland, pal.TierNUMA, pal.TierNode, pal.TierRack, pal.TierDatacenter, pal.TierCluster)
			}
			return nil
		},
		LookupComment: func(t reflect.Type, field string) string { return comments.of(t, field) },
	}
	all := &jsonschema.Schema{
		Version: jsonschema.Version, Title: "What the commands of nomad-pal print with -json",
		Description: "One property per command; events prints one value per line. Times are in RFC 3339, durations in nanoseconds unless the name has a unit. " +
			"Later versions can add fields; those here keep their name and meaning.",
		Type: "object", Properties: jsonschema.NewProperties(), Definitions: jsonschema.Definitions{},
	}
	of := map[string]reflect.Type{}
	for _, command := range slices.Sorted(maps.Keys(outputs)) {
		s := r.Reflect(outputs[command])
		for name, d := range s.Definitions {
			if is, twice := all.Definitions[name]; twice && !reflect.DeepEqual(is, d) {
				t.Errorf("two types are called %s: %v", name, of[name])
			}
			all.Definitions[name], of[name] = d, reflect.TypeOf(outputs[command])
		}
		s.Definitions, s.Version = nil, ""
		all.Properties.Set(command, s)
	}
	for name, d := range all.Definitions {
		for p := d.Properties.Oldest(); p != nil; p = p.Next() {
			if !regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`).MatchString(p.Key) {
				t.Errorf("%s has the property %s, which is not in snake_case", name, p.Key)
			}
		}
	}
	// A rule that types cannot express: a GPU has no explanation of a job.
	all.Definitions["Explained"].Required = []string{"kind", "summary"}
	return all
}

// capital is a name with its first letter in upper case.
func capital(name string) string {
	if name == "" {
		return ""
	}
	return strings.ToUpper(name[:1]) + name[1:]
}

// oneOf is a value in this list.
func oneOf[T any](words ...T) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string"}
	for _, w := range words {
		s.Enum = append(s.Enum, fmt.Sprint(w))
	}
	return s
}

// comments are the comments of types and their fields, by package, type and
// field.
type comments map[string]string

func commentsOf(t *testing.T, root string, dirs ...string) comments {
	t.Helper()
	out := comments{}
	for _, dir := range dirs {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d os.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
			if err != nil {
				return err
			}
			in, _ := filepath.Rel(root, filepath.Dir(path))
			out.add("github.com/nomad-pal/nomad-pal/"+in, f)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func (c comments) add(pkg string, f *ast.File) {
	group := ""
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GenDecl:
			group = n.Doc.Text()
		case *ast.TypeSpec:
			key := pkg + "." + n.Name.Name
			c[key], group = group+n.Doc.Text(), ""
			if s, ok := n.Type.(*ast.StructType); ok {
				c.addFields(key, s)
			}
		}
		return true
	})
}

// addFields adds the comments of a type's fields. If a field has none and the comment before it
// names it, it gets the sentences with its name; a sentence that begins with its name moves.
func (c comments) addFields(key string, s *ast.StructType) {
	before := ""
	for _, field := range s.Fields.List {
		for _, name := range field.Names {
			at := key + "." + name.Name
			if c[at] = field.Doc.Text() + field.Comment.Text(); c[at] != "" {
				before = at
				continue
			}
			var stay, own []string
			for _, sentence := range strings.SplitAfter(strings.Join(strings.Fields(c[before]), " "), ". ") {
				named := regexp.MustCompile(`\b` + name.Name + `\b`).MatchString(sentence)
				if named {
					own = append(own, strings.TrimSpace(sentence))
				}
				if !named || !strings.HasPrefix(sentence, name.Name+" ") {
					stay = append(stay, strings.TrimSpace(sentence))
				}
			}
			c[at], c[before] = strings.Join(own, " "), strings.Join(stay, " ")
		}
	}
}

var link = regexp.MustCompile(`\[([A-Za-z.]+)\]`)

// of is a comment in which Go's names are replaced by those of the JSON.
func (c comments) of(t reflect.Type, field string) string {
	key := t.PkgPath() + "." + t.Name()
	if field != "" {
		key += "." + field
	}
	text := link.ReplaceAllString(strings.Join(strings.Fields(c[key]), " "), "$1")
	for i := 0; t.Kind() == reflect.Struct && i < t.NumField(); i++ {
		f := t.Field(i)
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" && f.Name != "GPU" && f.Name != "GPUs" {
			text = regexp.MustCompile(`\b`+f.Name+`\b`).ReplaceAllString(text, name)
		}
	}
	if field == "" {
		text = capital(text)
	}
	return text
}

// The commands print their values as JSON: of a cluster with running, waiting and unschedulable
// jobs and an unhealthy GPU.
func TestJSONOutputs(t *testing.T) {
	c := newCluster(t)
	c.agent("", atAnyPort)
	c.nomad.SetHealth(false, "GPU-1-3")
	for _, job := range []string{c.job("default", "runs", 2), c.job("default", "fills", 4), c.job("default", "waits", 4), c.job("default", "never", 64)} {
		c.does("run", "-detach", job)
	}
	for _, command := range []string{
		"doctor -json", "gpus -json", "quarantine -json", "queue -json", "status -json", "version -json", "events -json",
		"explain -json runs", "explain -json waits", "explain -json never", "explain -json GPU-1-0", "explain -json node-1", "explain -json -what-if gpus=1 waits",
		"hold -json waits", "priority -json waits 60", "requeue -json runs", "cancel -json waits",
	} {
		if _, out, said := c.does(strings.Fields(command)...); out == "" { // does checks the JSON
			t.Errorf("%s: %s", command, said)
		}
	}
}
