// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deps

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// TestFunctionsAreShort: no function has more than 60 lines, but for those of tests.
func TestFunctionsAreShort(t *testing.T) {
	const most = 60
	functions := 0
	for _, name := range tracked(t, "*.go") {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		files := token.NewFileSet()
		f, err := parser.ParseFile(files, filepath.Join(root, name), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if d, ok := d.(*ast.FuncDecl); ok {
				functions++
				if lines := files.Position(d.End()).Line - files.Position(d.Pos()).Line + 1; lines > most {
					t.Errorf("%s: %s has %d lines, more than %d", name, d.Name.Name, lines, most)
				}
			}
		}
	}
	if functions < 3000 {
		t.Errorf("found %d functions only", functions)
	}
}
