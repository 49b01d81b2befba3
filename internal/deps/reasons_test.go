// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deps

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"testing"
)

// Fields that hold a [reason.Reason], and functions that return one.
var reasonNames = []string{
	"Reason", "WaitsFor", "StoppedWhy", "GivenUp", "Trouble", "After", "Because", "Also", "Leaving",
	"Why", "GaveUp", "WhyStopped", "Barred", "WhyNot", "Ending", "Refused", "NeverPlaced", "TemplateReason",
}

// isReasonText reports whether an expression is the text of a reason, judging by these names.
func isReasonText(e ast.Expr) bool {
	call, is := e.(*ast.CallExpr)
	if !is {
		return false
	}
	text, is := call.Fun.(*ast.SelectorExpr)
	if !is || text.Sel.Name != "String" && text.Sel.Name != "Error" {
		return false
	}
	of := text.X
	if made, is := of.(*ast.CallExpr); is {
		of = made.Fun
	}
	if at, is := of.(*ast.IndexExpr); is {
		of = at.X
	}
	switch of := of.(type) {
	case *ast.SelectorExpr:
		return slices.Contains(reasonNames, of.Sel.Name)
	case *ast.Ident:
		return slices.Contains(reasonNames, of.Name)
	}
	return false
}

// readsReasons returns the places where code inspects the text of a reason: by package
// strings, a comparison or a switch.
func readsReasons(f *ast.File) (found []token.Pos) {
	within := func(n ast.Node) {
		ast.Inspect(n, func(n ast.Node) bool {
			if e, is := n.(ast.Expr); is && isReasonText(e) {
				found = append(found, e.Pos())
			}
			return true
		})
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if f, is := n.Fun.(*ast.SelectorExpr); is {
				if of, is := f.X.(*ast.Ident); is && of.Name == "strings" && f.Sel.Name != "Join" {
					within(n)
				}
			}
		case *ast.BinaryExpr:
			if n.Op == token.EQL || n.Op == token.NEQ {
				within(n)
			}
		case *ast.SwitchStmt:
			if n.Tag != nil {
				within(n.Tag)
			}
		}
		return true
	})
	return found
}

// A reason is a value. Its text is for people, and no product code inspects it. Only
// pal/reason makes such texts.
func TestNobodyReadsReasons(t *testing.T) {
	files := token.NewFileSet()
	for _, p := range packages(t) {
		if !under(p.path, "pal") && !under(p.path, "placer") && !under(p.path, "sim") || p.path == "pal/reason" {
			continue
		}
		for _, name := range p.files {
			f, err := parser.ParseFile(files, filepath.Join(p.dir, name), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, at := range readsReasons(f) {
				t.Errorf("%s: code inspects the text of a reason; branch on its kind, and write text in pal/reason", files.Position(at))
			}
		}
	}
	const guilty = `package x
func f() {
	_ = strings.ReplaceAll(e.Reason.String(), "a", "b")
	_ = strings.TrimPrefix(w.Why().String(), "waits: ")
	_ = t.GaveUp().Error() == "given up"
	switch e.Reason.String() {
	}
}`
	f, err := parser.ParseFile(files, "guilty.go", guilty, 0)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(readsReasons(f)); n != 4 {
		t.Errorf("found %d places that inspect reasons, want 4", n)
	}
}
