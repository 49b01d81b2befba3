// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
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
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/invopop/jsonschema"

	"github.com/nomad-pal/nomad-pal/pal/reason"
	"github.com/nomad-pal/nomad-pal/placer/failure"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/query"

	validator "github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/classify"
	"github.com/nomad-pal/nomad-pal/pal/profile"
	"github.com/nomad-pal/nomad-pal/placer"
	"github.com/nomad-pal/nomad-pal/placer/accounting"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/sim/simulate"
)

// outputs are the values that commands print with -json.
var outputs = map[string]any{
	"classify": classified{}, "doctor": []query.Check{}, "events": placer.Event{},
	"explain": explained{}, "failures": failureReport{}, "gpus": []query.GPU{}, "history": []accounting.Run{}, "usage": []accounting.Usage{}, "measure": []measuredGPU{}, "plan": planned{},
	"profile build": []groupSummary{}, "profile import": imported{}, "profile show": []groupSummary{},
	"quarantine": map[string]failure.Quarantine{}, "quarantine -lift": []string{}, "queue": []model.JobStatus{},
	"hold": []controlled{}, "requeue": []controlled{}, "priority": []controlled{},
	"cancel": []string{}, "release": []string{}, "run": query.Explanation{}, "run -detach": registration{}, "simulate": simulate.Report{},
	"status": overview{}, "validate": validation{}, "version": versions{},
}

// schema.json and docs/reference/json.md are made from the types of the
// outputs.
func TestCommandReferenceOfJSON(t *testing.T) {
	made := schemaOfAll(t)
	for path, want := range map[string]string{"schema.json": lines(t, made), "../../../docs/reference/json.md": schemaPage(made)} {
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
}

// Each command that takes -json has a schema.
func TestEveryOutputHasASchema(t *testing.T) {
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
			case reflect.TypeFor[gang.State]():
				return oneOf(gang.States()...)
			case reflect.TypeFor[reason.Kind]():
				return oneOf(reason.Kinds()...)
			case reflect.TypeFor[accounting.Seconds]():
				return &jsonschema.Schema{Type: "number"}
			case reflect.TypeFor[accounting.State]():
				return oneOf(accounting.States()...)
			case reflect.TypeFor[pal.Tier]():
				return oneOf(pal.TierIsland, pal.TierNUMA, pal.TierNode, pal.TierRack, pal.TierDatacenter, pal.TierCluster)
			}
			return nil
		},
		LookupComment: func(t reflect.Type, field string) string { return comments.of(t, field) },
	}
	all := &jsonschema.Schema{
		Version: jsonschema.Version, Title: "What the commands of nomad-pal print with -json",
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
	// Rules that types cannot express: a GPU has no explanation of a job, and a statistic may be
	// unknown.
	all.Definitions["Explained"].Required = []string{"kind", "summary"}
	medians, _ := all.Definitions["Classified"].Properties.Get("medians")
	medians.AdditionalProperties = &jsonschema.Schema{OneOf: []*jsonschema.Schema{medians.AdditionalProperties, {Type: "null"}}}
	return all
}

// lines is the schema with one line for each command and type.
func lines(t *testing.T, all *jsonschema.Schema) string {
	t.Helper()
	var b strings.Builder
	write := func(format string, v any) {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, format, text)
	}
	write("{\"$schema\": %s, ", all.Version)
	write("\"title\": %s, \"type\": \"object\",\n\"properties\": {", all.Title)
	glue := "\n"
	for p := all.Properties.Oldest(); p != nil; p = p.Next() {
		write(glue+"%s: ", p.Key)
		write("%s", p.Value)
		glue = ",\n"
	}
	b.WriteString("},\n\"$defs\": {")
	glue = "\n"
	for _, name := range slices.Sorted(maps.Keys(all.Definitions)) {
		write(glue+"%s: ", name)
		write("%s", all.Definitions[name])
		glue = ",\n"
	}
	b.WriteString("}}\n")
	return b.String()
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

// schemaPage is the schema as a page for people.
func schemaPage(all *jsonschema.Schema) string {
	var b strings.Builder
	b.WriteString(`<!-- Written by go test ./placer/cmd/nomad-pal -run TestCommandReference -rewrite-reference. -->
# The -json output of commands

With ` + "`-json`" + ` or ` + "`-t`" + `, a command prints one value; ` + "`events`" + ` prints one value per line. ` + "`nomad-pal schema`" + `
prints these types as JSON schemas, for validators and for programs that generate types. Templates (` + "`-t`" + `) use these names:
` + "`nomad-pal status -t '{{.free}}'`" + `. Times are in RFC 3339, and durations in nanoseconds unless the name has a unit. In a
template, a field that the JSON leaves out is empty; an unknown name is an error. Later versions can add
fields. The fields on this page keep their name and meaning.

| command | prints |
|---|---|
`)
	for p := all.Properties.Oldest(); p != nil; p = p.Next() {
		fmt.Fprintf(&b, "| `%s` | %s |\n", p.Key, typeText(p.Value))
	}
	for _, name := range slices.Sorted(maps.Keys(all.Definitions)) {
		d := all.Definitions[name]
		fmt.Fprintf(&b, "\n## %s\n\n", name)
		if d.Description != "" {
			b.WriteString(d.Description + "\n\n")
		}
		b.WriteString("| field | type | meaning |\n|---|---|---|\n")
		about := map[string]int{} // the number of fields that a comment is about
		for p := d.Properties.Oldest(); p != nil; p = p.Next() {
			about[p.Value.Description]++
		}
		for p := d.Properties.Oldest(); p != nil; p = p.Next() {
			text := p.Value.Description
			if about[text] == 1 {
				text = meaning(p.Key, text)
			}
			if first, _, _ := strings.Cut(text, " "); !strings.Contains(first, "_") { // not a field's name
				text = capital(text)
			}
			may := ""
			if !slices.Contains(d.Required, p.Key) {
				may = ", may be missing"
			}
			fmt.Fprintf(&b, "| `%s` | %s%s | %s |\n", p.Key, typeText(p.Value), may, strings.ReplaceAll(text, "|", `\|`))
		}
	}
	return b.String()
}

// meaning is a field's comment without the field's name, which stands in the row before it:
// "runs counts the jobs" becomes "Counts the jobs".
func meaning(field, comment string) string {
	about, ok := strings.CutPrefix(comment, field)
	if !ok {
		return comment
	}
	for verb, instead := range map[string]string{
		": ": "", " is ": "", " are ": "", " has ": "", " reports whether ": "Whether ", " reports that ": "Reports that ", " counts ": "Counts ",
		" lists ": "Lists ", " maps ": "Maps ", " describes ": "Describes ", " says ": "Says ", " keeps ": "Keeps ", " sums ": "Sums ",
	} {
		if rest, ok := strings.CutPrefix(about, verb); ok {
			return instead + rest
		}
	}
	return comment
}

func typeText(s *jsonschema.Schema) string {
	name, isRef := strings.CutPrefix(s.Ref, "#/$defs/")
	switch {
	case isRef:
		return fmt.Sprintf("[%s](#%s)", name, strings.ToLower(name))
	case len(s.OneOf) > 0:
		return typeText(s.OneOf[0]) + " or null"
	case s.Type == "array":
		return "list of " + typeText(s.Items)
	case s.Type == "object" && s.AdditionalProperties != nil:
		return "map of string to " + typeText(s.AdditionalProperties)
	case len(s.Enum) > 0:
		var all []string
		for _, e := range s.Enum {
			all = append(all, fmt.Sprintf("`%v`", e))
		}
		return strings.Join(all, ", ")
	case s.Format == "date-time":
		return "time"
	}
	return s.Type
}

// validate checks a command's output against its schema.
func validate(t *testing.T, command string, output []byte) {
	t.Helper()
	text, err := schemaOf(command)
	if err != nil {
		t.Fatal(err)
	}
	schema, err := validator.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := validator.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("schema.json", strict(schema)); err != nil {
		t.Fatal(err)
	}
	compiled, err := c.Compile("schema.json")
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, text)
	}
	dec := json.NewDecoder(bytes.NewReader(output))
	dec.UseNumber()
	for n := 0; dec.More() || n == 0; n++ {
		var v any
		if err := dec.Decode(&v); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, output)
		}
		if err := compiled.Validate(v); err != nil {
			t.Errorf("%s: %v\n%s", command, err, output)
		}
	}
}

// strict is the schema without room for unknown fields. The schema for users allows
// them, so that new fields do not break their programs.
func strict(schema any) any {
	switch s := schema.(type) {
	case map[string]any:
		for _, v := range s {
			strict(v)
		}
		if s["properties"] != nil {
			s["additionalProperties"] = false
		}
	case []any:
		for _, v := range s {
			strict(v)
		}
	}
	return schema
}

// schemaName is the name of the schema of a command's output.
func schemaName(args []string) string {
	name := args[0]
	if name == "profile" {
		name += " " + args[1]
	}
	for _, flag := range []string{"-detach", "-lift"} {
		if outputs[name+" "+flag] != nil && slices.Contains(args, flag) {
			name += " " + flag
		}
	}
	return name
}

// The output of every command fits its schema: on an empty cluster, and on one with running,
// waiting, failed and unschedulable jobs and an unhealthy GPU.
func TestSchemas(t *testing.T) {
	seen := map[string]bool{}
	c := newCluster(t)
	check := func(args ...string) {
		t.Helper()
		at := 1 + strings.Count(schemaName(args)+" ", "profile ")
		_, out, said := c.does(slices.Insert(slices.Clone(args), at, "-json")...) // checks the output, too
		if out == "" && args[0] != "events" {
			t.Errorf("%v: %s", args, said)
		}
		seen[schemaName(args)] = seen[schemaName(args)] || out != ""
	}
	everywhere := func() {
		t.Helper()
		for _, command := range []string{"doctor", "failures", "gpus", "quarantine", "queue", "status", "version", "explain GPU-1-0", "explain node-1", "quarantine -lift -all"} {
			check(strings.Fields(command)...)
		}
	}
	c.agent("", atAnyPort)
	everywhere()
	text := "gpu,model,app,time\n"
	for i := range 8 {
		text += fmt.Sprintf("GPU-%d-%d,NVIDIA H200,A,%d\n", i/4, i%4, 100+i)
	}
	table := c.written("times.csv", text)
	profile := filepath.Join(t.TempDir(), "profile.json")
	check("profile", "import", table)
	check("profile", "build", "-o", profile, table)
	check("profile", "show", profile)

	c.nomad.SetHealth(false, "GPU-1-3")
	check("run", c.job("default", "runs", 2))
	check("run", c.job("default", "fills", 4))
	check("run", "-detach", c.job("default", "waits", 4))
	check("run", "-detach", c.job("default", "never", 64))
	check("plan", c.job("default", "plan", 1))
	check("plan", c.job("default", "plan-never", 99))
	check("measure", "-all", "-dry-run")
	for _, job := range []string{"runs", "fills", "waits", "never"} {
		check("explain", job)
		check("explain", "-what-if", "gpus=1", job)
	}
	// The in-memory Nomad has no client statistics, and does not validate jobs.
	var out bytes.Buffer
	b := base{io: streams{out: &out}, json: true}
	b.structured(classified{Verdict: &classify.Verdict{Class: pal.ClassA}, Medians: map[string]*float64{"sm": nil}})
	validate(t, "classify", out.Bytes())
	seen["classify"] = true
	for command, v := range map[string]any{ // this agent keeps no history
		"history": []accounting.Run{{Job: "a", State: accounting.Failed, Submitted: time.Now(), Ended: time.Now()}},
		"usage":   []accounting.Usage{{Of: []string{"research"}, GPUHours: 1}},
	} {
		out.Reset()
		b.structured(v)
		validate(t, command, out.Bytes())
		seen[command] = true
	}
	out.Reset()
	b.structured(validation{})
	validate(t, "validate", out.Bytes())
	seen["validate"] = true
	check("events")
	everywhere()
	check("requeue", "fills")
	check("release", "-all")
	check("hold", "waits")
	check("priority", "waits", "60")
	check("cancel", "runs")
	check("simulate", "-nodes=2", "-gpus-per-node=4", "-jobs=20")
	for command := range outputs {
		if !seen[command] {
			t.Errorf("no output of %s was checked", command)
		}
	}
}

// Templates accept exactly the names of the JSON, including fields that the JSON omits
// when empty.
func TestTemplateNames(t *testing.T) {
	c := newCluster(t)
	c.agent("", atAnyPort)
	path := c.job("default", "train", 2)
	for text, want := range map[string]string{
		"{{.state}} {{.decision.gpus}} {{len .decision.chosen.members}} {{.note}}|":         "starting 2 1 |",
		"{{if .start_from}}predicted{{else}}not predicted{{end}}":                           "not predicted",
		"{{range .decision.chosen.members}}{{.node}} {{range .gpus}}{{.id}} {{end}}{{end}}": "node-0 GPU-0-0 GPU-0-1",
	} {
		if _, out, said := c.does("plan", "-t", text, path); strings.TrimSpace(out) != want {
			t.Errorf("%s: %q, want %q\n%s", text, out, want, said)
		}
	}
	if code, _, said := c.does("plan", "-t", "{{.State}}", path); code != 255 || !strings.Contains(said, `map has no entry for key "State"`) {
		t.Errorf("Go's names: %d %s", code, said)
	}
	if _, out, _ := c.does("gpus", "-t", `{{range .}}{{.id}} {{end}}`); !strings.HasPrefix(out, "GPU-0-0 GPU-0-1") {
		t.Errorf("a list: %s", out)
	}
}

// Each schema is self-contained. The error for an unknown schema names it.
func TestSchemaCommand(t *testing.T) {
	c := newCluster(t)
	for name := range outputs {
		_, out, said := c.does(append([]string{"schema"}, strings.Fields(name)...)...)
		var s struct {
			Defs map[string]any `json:"$defs"`
		}
		if err := json.Unmarshal([]byte(out), &s); err != nil {
			t.Errorf("%s: %v %s%s", name, err, out, said)
		}
		for _, m := range reference.FindAllStringSubmatch(out, -1) {
			if s.Defs[m[1]] == nil {
				t.Errorf("%s refers to %s, which it lacks", name, m[1])
			}
		}
	}
	if code, _, said := c.does("schema", "nonsense"); code != 1 || !strings.Contains(said, `"nonsense" has no schema; these commands have one: cancel, classify, `) {
		t.Errorf("%d %s", code, said)
	}
}
