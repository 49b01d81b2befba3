// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package deps tests the rules of the whole repository: imports, licences and headers, and the
// figures, links and paths in its docs.
package deps

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/nomad-pal/nomad-pal/"

// pkg is one of our packages, with the imports of its non-test files.
type pkg struct {
	path    string // path within the module
	dir     string
	files   []string
	imports []string // direct imports
	deps    []string // direct and indirect imports
	tests   []string // imports of its test files
}

func packages(t *testing.T) []pkg {
	t.Helper()
	ps, err := listed()
	if err != nil {
		t.Fatal(err)
	}
	return ps
}

var listed = sync.OnceValues(func() ([]pkg, error) {
	const format = `{{.ImportPath}}|{{.Dir}}|{{join .GoFiles ","}}|{{join .Imports ","}}|{{join .Deps ","}}|{{join .TestImports ","}},{{join .XTestImports ","}}`
	cmd := exec.Command("go", "list", "-f", format, "./...")
	cmd.Dir = filepath.Join("..", "..")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var ps []pkg
	for line := range strings.SplitSeq(strings.TrimSpace(string(out)), "\n") {
		f := strings.Split(line, "|")
		ps = append(ps, pkg{strings.TrimPrefix(f[0], module), f[1], split(f[2]), split(f[3]), split(f[4]), split(f[5])})
	}
	if len(ps) < 5 {
		return nil, fmt.Errorf("only %d packages found", len(ps))
	}
	return ps, nil
})

func split(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

func under(path, folder string) bool { return path == folder || strings.HasPrefix(path, folder+"/") }

// pure are the packages, besides ours, that a pure package may import: none has side
// effects. For time and math/rand/v2, checkCalls allows only calls without hidden state.
var pure = []string{
	"bytes", "cmp", "compress/gzip", "container/heap", "crypto/sha256", "encoding/base64", "encoding/hex", "encoding/json", "errors", "fmt", "hash/fnv", "io",
	"iter", "maps", "math", "math/bits", "math/rand/v2", "path", "slices", "sort", "strconv", "strings", "time", "unique",
}

// The core is pure: it imports itself, and those packages of the standard library that have
// neither side effects nor hidden state. The gang's state machine and the placer's model
// are pure, too. They also know Nomad's objects, but no Nomad client.
func TestCoreIsPure(t *testing.T) {
	machine := []string{
		"github.com/hashicorp/go-version", "github.com/hashicorp/nomad/api",
		module + "placer/api", module + "placer/failure", module + "placer/gang", module + "placer/cluster", module + "placer/ledger", module + "placer/request",
		module + "placer/rewrite", module + "placer/window",
	}
	seen := map[string]bool{}
	for _, p := range packages(t) {
		core, placer := under(p.path, "pal"), p.path == "placer/gang" || p.path == "placer/model"
		if !core && !placer {
			continue
		}
		seen[p.path] = true
		for _, i := range p.imports {
			if !slices.Contains(pure, i) && !under(i, module+"pal") && !(placer && slices.Contains(machine, i)) {
				t.Errorf("%s imports %s", p.path, i)
			}
		}
		if slices.Contains(p.deps, module+"placer/nomad") {
			t.Errorf("%s depends on the client of Nomad's API", p.path)
		}
		for _, f := range p.files {
			checkCalls(t, filepath.Join(p.dir, f))
		}
	}
	for _, name := range []string{"pal", "pal/attr", "pal/classify", "pal/profile", "pal/queue", "placer/gang", "placer/model"} {
		if !seen[name] {
			t.Errorf("%s does not exist", name)
		}
	}
}

// checkCalls refuses clocks, timers, the shared random numbers, printing, Nomad clients (under any
// import name), and goroutines. Times, seeds and Nomad's state come in as arguments.
func checkCalls(t *testing.T, file string) {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{} // by name: path
	for _, i := range f.Imports {
		path := strings.Trim(i.Path.Value, `"`)
		name := strings.TrimSuffix(path, "/v2")
		name = name[strings.LastIndexByte(name, '/')+1:]
		if i.Name != nil {
			name = i.Name.Name
		}
		if name == "." {
			t.Errorf("%s imports %s as its own", file, path)
		}
		names[name] = path
	}
	client := func(f string) bool { return f == "Client" || f == "NewClient" }
	banned := map[string]func(string) bool{
		"fmt":                            func(f string) bool { return strings.HasPrefix(f, "Print") || strings.HasPrefix(f, "Scan") },
		"github.com/hashicorp/nomad/api": client,
		"time": func(f string) bool {
			return slices.Contains([]string{"Now", "Since", "Until", "After", "AfterFunc", "Sleep", "NewTimer", "NewTicker", "Tick", "Local", "LoadLocation"}, f)
		},
		"math/rand/v2": func(f string) bool {
			return !slices.Contains([]string{"New", "NewPCG", "NewChaCha8", "NewZipf", "Rand", "PCG", "ChaCha8", "Source", "Zipf"}, f)
		},
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			t.Errorf("%s starts a goroutine", file)
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.Ident); ok && (f.Name == "print" || f.Name == "println") {
				t.Errorf("%s calls %s", file, f.Name)
			}
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			if !ok {
				break
			}
			if refuse := banned[names[x.Name]]; refuse != nil && refuse(n.Sel.Name) {
				t.Errorf("%s calls %s.%s", file, names[x.Name], n.Sel.Name)
			}
		}
		return true
	})
}

// The plugin and the placer share only pal/attr, in tests, too.
func TestPluginAndPlacerAreStrangers(t *testing.T) {
	for _, p := range packages(t) {
		for _, d := range slices.Concat(p.deps, p.tests) {
			d = strings.TrimPrefix(d, module)
			if under(p.path, "placer") && under(d, "device-plugin") || under(p.path, "device-plugin") && under(d, "placer") {
				t.Errorf("%s depends on %s", p.path, d)
			}
		}
	}
}

// The products link no benchmarks, studies or end-to-end tests. Code that both need has its
// own folder, such as sim/.
func TestProductsLinkNoBenchmarks(t *testing.T) {
	seen := 0
	for _, p := range packages(t) {
		if p.path != "placer/cmd/nomad-pal" && p.path != "device-plugin/cmd/nomad-device-pal" {
			continue
		}
		seen++
		for _, d := range p.deps {
			d = strings.TrimPrefix(d, module)
			for _, folder := range []string{"bench", "research", "e2e"} {
				if under(d, folder) {
					t.Errorf("%s links %s", p.path, d)
				}
			}
		}
	}
	if seen != 2 {
		t.Errorf("%d products", seen)
	}
}

// The products import only Nomad's API, plugin protocol and jobspec parser. NOTICE lists
// the packages that these import in turn, with the licences.
func TestImportsOfNomad(t *testing.T) {
	const nomad = "github.com/hashicorp/nomad/"
	allowed := []string{"api", "jobspec2", "plugins/base", "plugins/device", "plugins/shared"}
	never := []string{"nomad/structs", "scheduler", "helper/pool", "nomad", "client", "command"}
	for _, p := range packages(t) {
		for _, i := range p.imports {
			if sub, ok := strings.CutPrefix(i, nomad); ok && !slices.ContainsFunc(allowed, func(a string) bool { return under(sub, a) }) {
				t.Errorf("%s imports %s", p.path, i)
			}
		}
		for _, d := range p.deps {
			sub, ok := strings.CutPrefix(d, nomad)
			if ok && (slices.Contains(never, sub) || under(sub, "scheduler") || under(sub, "nomad/structs")) {
				t.Errorf("%s depends on %s", p.path, d)
			}
		}
	}
}

// End-to-end tests run binaries and use HTTP APIs. From the product they import, even in
// test files, only: the fakes of hardware, a PostgreSQL server, the scenarios for
// comparison with a real Nomad, and the readers of jobs and profiles.
func TestEndToEndImportsNoProduct(t *testing.T) {
	allowed := []string{"e2e", "internal", "device-plugin/cuda/fakecuda", "device-plugin/nvml/nvmltest", "placer/accounting/accountingtest", "placer/nomadtest/scenario", "placer/rewrite", "pal/profile"}
	cmd := exec.Command("go", "list", "-f", `{{.ImportPath}}|{{join .Imports ","}},{{join .TestImports ","}},{{join .XTestImports ","}}`, "./e2e/...")
	cmd.Dir = filepath.Join("..", "..")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	seen := map[string]bool{}
	for line := range strings.SplitSeq(strings.TrimSpace(string(out)), "\n") {
		path, imports, _ := strings.Cut(line, "|")
		for _, i := range split(imports) {
			sub, ours := strings.CutPrefix(i, module)
			if !ours {
				continue
			}
			if !slices.ContainsFunc(allowed, func(a string) bool { return under(sub, a) }) {
				t.Errorf("%s imports %s", path, i)
			}
			seen[sub] = true
		}
	}
	if !seen["placer/rewrite"] {
		t.Error("the imports of test files are not seen")
	}
}

// Only one placer decides, and all answers come from its state: nothing else in the product
// creates a placer.
func TestOnePlacer(t *testing.T) {
	var made []string
	for _, name := range tracked(t, "*.go") {
		if strings.HasSuffix(name, "_test.go") || under(name, "placer/nomadtest") {
			continue // the test bed creates placers
		}
		if strings.Contains(read(t, name), "placer.New(") {
			made = append(made, name)
		}
	}
	if want := []string{"placer/agent/agent.go"}; !slices.Equal(made, want) {
		t.Errorf("placer.New is called in %v, want %v", made, want)
	}
}

// A command shows what the agent answers: it imports placer/api, what the API's types are made of, and
// Nomad's client. A few commands also do something themselves, and import more for it.
func TestCommandsImportTheAPI(t *testing.T) {
	all := []string{"internal", "pal/attr", "pal/reason", "placer/api", "placer/cluster", "placer/nomad"}
	more := map[string]string{
		"agent.go":          "placer/agent placer/model", // runs the agent
		"fault_off.go":      "placer",
		"fault_on.go":       "placer",
		"ask.go":            "pal/queue placer/heartbeat", // finds the agent
		"base.go":           "placer/store",
		"status.go":         "pal/queue",
		"queue.go":          "pal/queue",
		"plain.go":          "placer placer/model placer/query placer/store", // for doctor, which works without an agent
		"doctor.go":         "placer/heartbeat placer/query placer/store",
		"run.go":            "placer/gang placer/request placer/rewrite", // reads or changes a job
		"plan.go":           "placer/request",
		"explain.go":        "placer/query placer/rewrite",
		"target.go":         "placer/query placer/request",
		"history.go":        "placer/rewrite",
		"mine.go":           "placer/rewrite",
		"release.go":        "placer/rewrite",
		"shell.go":          "placer/rewrite",
		"hold.go":           "placer", // writes a variable
		"quarantine.go":     "placer placer/rewrite",
		"classify.go":       "pal/classify", // needs no agent
		"init.go":           "placer/deploy/acl",
		"simulate.go":       "sim/simulate",
		"profile.go":        "pal/profile placer/measured",
		"profile_export.go": "placer/measured",
		"profile_import.go": "pal/profile placer placer/measured placer/store",
		"profile_show.go":   "pal/profile placer/store",
	}
	const folder = "placer/cmd/nomad-pal"
	_, folders := parsed(t)
	for name, f := range folders[folder].files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		listed := strings.Fields(more[filepath.Base(name)])
		for _, i := range f.Imports {
			sub, ours := strings.CutPrefix(strings.Trim(i.Path.Value, `"`), module)
			if at := slices.Index(listed, sub); at >= 0 {
				listed = slices.Delete(listed, at, at+1)
			} else if ours && sub != "pal" && !slices.ContainsFunc(all, func(a string) bool { return under(sub, a) }) {
				t.Errorf("%s imports %s: let the agent answer, with a type in placer/api", name, sub)
			}
		}
		if len(listed) > 0 {
			t.Errorf("%s no longer imports %v: take it off the list", name, listed)
		}
	}
	for name := range more {
		if folders[folder].files[folder+"/"+name] == nil {
			t.Errorf("the list has %s, which does not exist", name)
		}
	}
	for _, p := range packages(t) {
		if p.path != "placer/api" {
			continue
		}
		for _, d := range p.deps {
			if sub, ours := strings.CutPrefix(d, module); ours && !under(sub, "pal") {
				t.Errorf("placer/api depends on %s", sub)
			}
		}
	}
}
