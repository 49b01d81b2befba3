// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deps

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"iter"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// folder is the Go code of one folder, including its tests.
type folder struct {
	files map[string]*ast.File // by path within the repository
	// names are all identifiers and the words of string literals. declared are the
	// top-level names, and Type.Member.
	names, declared map[string]bool
	imports         map[string]string // by name: path
}

// code is all Go code, once a test has read it. No lock is needed, because these tests run
// one after another.
var code struct {
	files   *token.FileSet
	folders map[string]*folder
}

// parsed returns all Go code, by folder. Its positions refer to files.
func parsed(t *testing.T) (files *token.FileSet, folders map[string]*folder) {
	t.Helper()
	if code.folders == nil {
		code.files, code.folders = parse(t)
	}
	if len(code.folders) < 50 {
		t.Fatalf("found %d folders of code only", len(code.folders))
	}
	return code.files, code.folders
}

func parse(t *testing.T) (files *token.FileSet, folders map[string]*folder) {
	t.Helper()
	files, folders = token.NewFileSet(), map[string]*folder{}
	for _, name := range tracked(t, "*.go") {
		f, err := parser.ParseFile(files, filepath.Join(root, name), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		d := folders[path.Dir(name)]
		if d == nil {
			d = &folder{map[string]*ast.File{}, map[string]bool{}, map[string]bool{}, map[string]string{}}
			folders[path.Dir(name)] = d
		}
		d.files[name] = f
		d.add(f)
	}
	return files, folders
}

var word = regexp.MustCompile(`\w+`)

func (d *folder) add(f *ast.File) {
	for _, i := range f.Imports {
		p := strings.Trim(i.Path.Value, `"`)
		name := strings.TrimPrefix(path.Base(regexp.MustCompile(`/v\d+$`).ReplaceAllString(p, "")), "go-")
		if i.Name != nil {
			name = i.Name.Name
		}
		d.imports[name] = p
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			d.names[n.Name] = true
		case *ast.BasicLit:
			for _, w := range word.FindAllString(n.Value, -1) {
				d.names[w] = true
			}
		}
		return true
	})
	for _, decl := range f.Decls {
		if g, ok := decl.(*ast.GenDecl); ok {
			for _, s := range g.Specs {
				d.declare(s)
			}
		} else if fn := decl.(*ast.FuncDecl); fn.Recv == nil {
			d.declared[fn.Name.Name] = true
		} else {
			d.declared[receiver(fn)+"."+fn.Name.Name] = true
		}
	}
}

func (d *folder) declare(s ast.Spec) {
	switch s := s.(type) {
	case *ast.ValueSpec:
		for _, n := range s.Names {
			d.declared[n.Name] = true
		}
	case *ast.TypeSpec:
		d.declared[s.Name.Name] = true
		for m := range members(s) {
			for _, n := range m.Names {
				d.declared[s.Name.Name+"."+n.Name] = true
			}
		}
	}
}

// wellKnown are methods that an interface documents, usually one of the standard library.
var wellKnown = []string{"Error", "Help", "Len", "Less", "MarshalJSON", "MarshalText", "Name", "Pop", "Push", "Run", "String", "Swap", "Synopsis", "UnmarshalJSON", "UnmarshalText", "Unwrap", "Write", "AutocompleteArgs", "AutocompleteFlags"}

// TestDocComments: each exported name outside tests has a comment. No comment begins with
// its name in other capitals, as happens after a name was exported or unexported.
func TestDocComments(t *testing.T) {
	exported := 0
	_, folders := parsed(t)
	for _, d := range folders {
		for name, f := range d.files {
			test := strings.HasSuffix(name, "_test.go")
			check := func(n *ast.Ident, must bool, docs ...*ast.CommentGroup) {
				first := ""
				for _, doc := range docs {
					first = cmp.Or(first, word.FindString(doc.Text()))
				}
				if must = must && n.IsExported() && !test; must {
					exported++
				}
				if must && first == "" {
					t.Errorf("%s: %s has no comment", name, n.Name)
				}
				if !test && first != n.Name && strings.EqualFold(first, n.Name) {
					t.Errorf("%s: the comment of %s begins with %s", name, n.Name, first)
				}
			}
			for _, decl := range f.Decls {
				switch decl := decl.(type) {
				case *ast.FuncDecl:
					check(decl.Name, !slices.Contains(wellKnown, decl.Name.Name) && (decl.Recv == nil || ast.IsExported(receiver(decl))), decl.Doc)
				case *ast.GenDecl:
					for _, s := range decl.Specs {
						switch s := s.(type) {
						case *ast.TypeSpec:
							check(s.Name, true, s.Doc, decl.Doc)
							for m := range members(s) {
								for _, n := range m.Names {
									check(n, false, m.Doc)
								}
							}
						case *ast.ValueSpec:
							check(s.Names[0], s.Comment == nil, s.Doc, decl.Doc)
						}
					}
				}
			}
		}
	}
	if exported < 1000 {
		t.Errorf("found %d exported names only", exported)
	}
}

// receiver returns the name of a method's type.
func receiver(fn *ast.FuncDecl) string {
	return word.FindString(types.ExprString(fn.Recv.List[0].Type))
}

// members returns the fields of a struct or the methods of an interface.
func members(s *ast.TypeSpec) iter.Seq[*ast.Field] {
	var all *ast.FieldList
	switch of := s.Type.(type) {
	case *ast.StructType:
		all = of.Fields
	case *ast.InterfaceType:
		all = of.Methods
	default:
		all = &ast.FieldList{}
	}
	return slices.Values(all.List)
}

// TestFunctionsAreShort: no function outside tests has more than 60 lines.
func TestFunctionsAreShort(t *testing.T) {
	const most = 60
	functions := 0
	files, folders := parsed(t)
	for _, d := range folders {
		for name, f := range d.files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			for _, decl := range f.Decls {
				if fn, ok := decl.(*ast.FuncDecl); ok {
					functions++
					if lines := files.Position(fn.End()).Line - files.Position(fn.Pos()).Line + 1; lines > most {
						t.Errorf("%s: %s has %d lines, more than %d", name, fn.Name.Name, lines, most)
					}
				}
			}
		}
	}
	if functions < 3000 {
		t.Errorf("found %d functions only", functions)
	}
}

// TestTypesAreSmall: no type of the product has more than 60 methods, so that a method's
// receiver type shows which data it can change.
func TestTypesAreSmall(t *testing.T) {
	const most = 60
	methods := map[string]map[string]bool{} // by name, because a build tag may choose between two methods of one name
	_, folders := parsed(t)
	for folder, d := range folders {
		if ofBeds.MatchString(folder) {
			continue
		}
		for name, f := range d.files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			for _, decl := range f.Decls {
				if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv != nil {
					of := folder + "." + receiver(fn)
					if methods[of] == nil {
						methods[of] = map[string]bool{}
					}
					methods[of][fn.Name.Name] = true
				}
			}
		}
	}
	if len(methods) < 400 {
		t.Errorf("found %d types only", len(methods))
	}
	for name, named := range methods {
		if n := len(named); n > most {
			t.Errorf("%s has %d methods, more than %d: split it by topic, or turn methods that need few of its fields into functions",
				name, n, most)
		}
	}
}

// ofBeds matches folders that the product does not ship.
var ofBeds = regexp.MustCompile(`^(research|bench|e2e|release|placer/nomadtest)(/|$)`)

var (
	docLink   = regexp.MustCompile("(?:^|[\\s(\"])\\[\\*?([A-Za-z]\\w*)(?:\\.(\\w+))?(?:\\.(\\w+))?\\](?:[^(:\\]`]|$)")
	codeFile  = regexp.MustCompile(`[a-z_/]*\b[a-z_]+\.go\b`)
	camelCase = regexp.MustCompile(`\b[a-z]+[a-z0-9]*[A-Z]\w*\b`)
)

// foreign are names in comments from other projects' code, and words that only look like names.
var foreign = []string{"arXiv", "client.go", "fireRpcRetryWatcher", "gRPC", "initialHeartbeatStagger", "jobIsGCable", "kB", "nvidiaN", "reclaimWithinCohort", "rpc.go", "runDriver", "server.go"}

// TestCommentsNameWhatIsThere: what a comment links to ([Name], [Type.Member],
// [package.Name]) exists, and so does each Go file that it names, with its path or in the same
// folder, and each camel-case name in the same folder.
func TestCommentsNameWhatIsThere(t *testing.T) {
	links, names := 0, 0
	files, folders := parsed(t)
	for _, d := range folders {
		for name, f := range d.files {
			for _, group := range f.Comments {
				for _, c := range group.List {
					at := files.Position(c.Pos()).Line
					if !strings.HasSuffix(name, "_test.go") { // comments in tests also use brackets for other things
						for _, m := range docLink.FindAllStringSubmatch(c.Text, -1) {
							if links++; !d.links(folders, m[1], m[2], m[3]) {
								t.Errorf("%s:%d: a comment links to %s, which does not exist", name, at, m[0])
							}
						}
					}
					for _, w := range codeFile.FindAllString(c.Text, -1) {
						in := d
						if strings.Contains(w, "/") { // a path within the repository
							in = folders[path.Dir(w)]
						} else {
							w = path.Join(path.Dir(name), w)
						}
						if (in == nil || in.files[w] == nil) && !slices.Contains(foreign, path.Base(w)) {
							t.Errorf("%s:%d: a comment names the file %s, which does not exist", name, at, w)
						}
					}
					for _, w := range camelCase.FindAllString(c.Text, -1) {
						if names++; !d.names[w] && !slices.Contains(foreign, w) {
							t.Errorf("%s:%d: a comment names %s, which does not exist", name, at, w)
						}
					}
				}
			}
		}
	}
	if links < 200 || names < 500 {
		t.Errorf("found %d links and %d names only", links, names)
	}
}

// links reports whether the target of a link in the folder's comments exists. Links into
// other modules are not checked.
func (d *folder) links(all map[string]*folder, a, b, c string) bool {
	local := strings.Trim(a+"."+b, ".")
	if c == "" && d.declared[local] || b == "" && d.imports[a] != "" {
		return true
	}
	p, imported := d.imports[a]
	if there := all[strings.TrimPrefix(p, module)]; there != nil {
		return there.declared[strings.Trim(b+"."+c, ".")]
	}
	return imported
}
