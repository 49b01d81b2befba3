// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package advice finds the advice in string literals of the code, so that tests can follow it. A
// text is advice if it tells its reader to do something, if it names a command to type, or if it is
// in a place where the code keeps advice.
package advice

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Text is a string literal that gives advice.
type Text struct {
	// Where names the text's file and line.
	Where string
	Text  string
	kept  bool // the text is in a place where the code keeps advice
}

// imperative matches the start of advice: at the start of a text, or after a clause.
var imperative = regexp.MustCompile(`(?i)(^ ?|[;:.,(—] ?|\bor |\band |\bthen )(` + strings.Join([]string{
	"use", "write", "say", "leave", "drop", "put", "mend", "fix", "remove", "explain one", "correct", "take", "run it", "run the job", "run doctor", "run Nomad", "ask for", "choose",
	"give", "change the", "spell", "did you mean", "try", "rename", "gate the", "gate all", "set", "look at", "look for", "install", "upgrade", "enable",
	"start the", "restart the", "make the", "stop it", "add:? (a|the|pal|plugin)", "go back", "reboot", "reload", "have it", "have its", "have the", "check the", "name its", "name who", "divide", "end the", "let the", "measure again", "shut down",
}, "|") + `)\b`)

// forExample matches "say" in the sense of "for example".
var forExample = regexp.MustCompile(`, say\b`)

// describes lists functions and fields whose texts describe a command or a path, or define options,
// and are no advice.
var describes = []string{"help", "examples", "make", "HandleFunc", "Handle", "handle", "synopsis", "StringVar", "BoolVar", "IntVar", "Float64Var", "DurationVar", "Var"}

// ofHelp matches the start of a text that is part of a command's help.
var ofHelp = regexp.MustCompile(`^(Usage: |\n[A-Z][a-z]+ Options:\n)`)

// advises lists the fields and variables whose texts are always advice. Texts of functions and
// constants whose names begin with "remedy" or "Next" are always advice, too.
var advises = []string{"Next", "next", "Fix", "steps"}

// advisesLast lists doctor's types and functions whose fourth value is advice.
var advisesLast = []string{"Check", "add"}

// Finder finds advice.
type Finder struct {
	command *regexp.Regexp
	leftOut []string
}

// NewFinder returns a Finder, and reads the names of commands from the headings of each binary's
// page in docs. The Finder skips files whose paths end with one of leftOut.
func NewFinder(docs string, leftOut ...string) (*Finder, error) {
	typed := []string{ // "Nomad" with a capital is the subject of a sentence, and "nomad" alone is the name of a check
		`nomad (acl|alloc|deployment|eval|job|namespace|node|operator|quota|server|system|tls|var|volume) [a-z]`,
		`(nvidia-smi|lspci|nvidia-modprobe|nvidia-cuda-mps-control|chmod|ln) -`, `nvidia-smi (mig|nvlink|conf-compute) `, `modprobe [a-z]`, `systemctl [a-z]`, `dmesg \|`,
	}
	for _, binary := range []string{"nomad-pal", "nomad-device-pal"} {
		page, err := os.ReadFile(filepath.Join(docs, "reference", binary+".md"))
		if err != nil {
			return nil, fmt.Errorf("which commands has %s: %w", binary, err)
		}
		names := []string{"-help", "%s"} // options of every command
		for _, m := range regexp.MustCompile(`(?m)^## ([a-z ]+)$`).FindAllStringSubmatch(string(page), -1) {
			names = append(names, m[1]+`\b`)
		}
		typed = append(typed, binary+` (%s)?(`+strings.Join(names, "|")+`)`)
	}
	command, err := regexp.Compile(`(^|[^a-z-])(` + strings.Join(typed, "|") + `)`)
	return &Finder{command, leftOut}, err
}

// Linked returns the folders of this module whose code is linked into the binary with this main
// package.
func Linked(main string) ([]string, error) {
	list := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{if .Main}}{{$.Dir}}{{end}}{{end}}", ".")
	list.Dir = main
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("which packages are in %s: %w", main, err)
	}
	return strings.Fields(string(out)), nil
}

// In returns the texts with advice in the code of these folders.
func (f *Finder) In(dirs ...string) (found []Text, err error) {
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			return nil, fmt.Errorf("no Go files in %s: %w", dir, err)
		}
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") || slices.ContainsFunc(f.leftOut, func(of string) bool { return strings.HasSuffix(path, of) }) {
				continue
			}
			texts, err := read(path, describes)
			if err != nil {
				return nil, err
			}
			found = append(found, slices.DeleteFunc(texts, func(t Text) bool { return !f.Gives(t) })...)
		}
	}
	return found, nil
}

// Texts returns all texts in a Go file.
func Texts(path string) ([]Text, error) { return read(path, nil) }

// read returns the texts in a Go file. read omits the arguments and values of the functions and
// fields in leftOut.
func read(path string, leftOut []string) (found []Text, err error) {
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	kept := keepers(f)
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			return !slices.Contains(leftOut, called(n))
		case *ast.KeyValueExpr:
			key, ok := n.Key.(*ast.Ident)
			return !ok || !slices.Contains(leftOut, key.Name)
		case *ast.Field:
			return n.Tag == nil
		case *ast.BasicLit:
			if n.Kind != token.STRING {
				return true
			}
			if text, err := strconv.Unquote(n.Value); err == nil {
				keeps := slices.ContainsFunc(kept, func(k ast.Node) bool { return k.Pos() <= n.Pos() && n.End() <= k.End() })
				found = append(found, Text{Where: fmt.Sprintf("%s:%d", path, files.Position(n.Pos()).Line), Text: text, kept: keeps})
			}
		}
		return true
	})
	return found, nil
}

// keepers returns the parts of a file that hold only advice.
func keepers(f *ast.File) (kept []ast.Node) {
	remedy := func(id *ast.Ident) bool {
		return strings.HasPrefix(strings.ToLower(id.Name), "remedy") || strings.HasPrefix(id.Name, "Next") && id.Name != "Next"
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CompositeLit:
			kept = append(kept, keptIn(n)...)
		case *ast.CallExpr:
			if slices.Contains(advisesLast, called(n)) && len(n.Args) == 4 {
				kept = append(kept, n.Args[3])
			}
		case *ast.AssignStmt:
			if slices.Contains(advises, named(n.Lhs[0])) {
				kept = append(kept, n.Rhs[0])
			}
		case *ast.ValueSpec:
			if len(n.Values) > 0 && (remedy(n.Names[0]) || slices.Contains(advises, n.Names[0].Name)) {
				kept = append(kept, n.Values[0])
			}
		case *ast.FuncDecl:
			if !remedy(n.Name) {
				return true
			}
			ast.Inspect(n.Body, func(n ast.Node) bool {
				if r, ok := n.(*ast.ReturnStmt); ok {
					kept = append(kept, r)
				}
				return true
			})
		}
		return true
	})
	return kept
}

// keptIn returns the values of a literal that hold advice.
func keptIn(literal *ast.CompositeLit) (kept []ast.Node) {
	if of, ok := literal.Type.(*ast.Ident); ok && slices.Contains(advisesLast, of.Name) && len(literal.Elts) == 4 {
		kept = append(kept, literal.Elts[3])
	}
	if _, ok := literal.Type.(*ast.MapType); ok {
		return kept
	}
	for _, e := range literal.Elts {
		if field, ok := e.(*ast.KeyValueExpr); ok {
			if key, ok := field.Key.(*ast.Ident); ok && slices.Contains(advises, key.Name) {
				kept = append(kept, field.Value)
			}
		}
	}
	return kept
}

// called returns the name of the called function.
func called(c *ast.CallExpr) string { return named(c.Fun) }

// named returns the name of a variable, field or function.
func named(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

// Gives reports whether a text gives advice.
func (f *Finder) Gives(t Text) bool {
	if !strings.Contains(strings.TrimSpace(t.Text), " ") || ofHelp.MatchString(t.Text) {
		return false
	}
	return t.kept || f.command.MatchString(t.Text) || imperative.MatchString(forExample.ReplaceAllString(t.Text, ""))
}

// Followed collects advice that a test has followed.
type Followed struct{ shown []shown }

type shown struct {
	text     string
	from, to int // position of the advice
}

// Add records that a test followed the advice in a text shown to a user. ok is false if the text
// does not contain the advice.
func (f *Followed) Add(text, advice string) (ok bool) {
	text, advice = folded(text), folded(advice)
	at := strings.Index(text, advice)
	if at >= 0 {
		f.shown = append(f.shown, shown{text, at, at + len(advice)})
	}
	return at >= 0
}

// Shows reports whether a text shown to a user contains the advice, ignoring capitals and
// line breaks.
func Shows(text, advice string) bool { return strings.Contains(folded(text), folded(advice)) }

func folded(text string) string { return strings.ToLower(oneLine(text)) }

// Rest returns the texts whose advice no test followed.
func (f *Followed) Rest(texts []Text) (rest []Text) {
	for _, t := range texts {
		as := pattern(t.Text)
		if !slices.ContainsFunc(f.shown, func(s shown) bool {
			return slices.ContainsFunc(as.FindAllStringIndex(s.text, -1), func(at []int) bool { return at[0] < s.to && s.from < at[1] })
		}) {
			rest = append(rest, t)
		}
	}
	return rest
}

// verb matches the parts that are replaced before a user sees the text: verbs of package fmt, and
// names such as $GPU.
var verb = regexp.MustCompile(`%[-+# 0]*[0-9]*(\.[0-9]+)?[a-zA-Z]|\$[A-Z]+\b`)

// pattern returns a pattern that matches the text after its verbs are replaced.
func pattern(text string) *regexp.Regexp {
	var b strings.Builder
	b.WriteString("(?i)")
	text = oneLine(text)
	for {
		at := verb.FindStringIndex(text)
		if at == nil {
			b.WriteString(regexp.QuoteMeta(strings.ReplaceAll(text, "%%", "%")))
			return regexp.MustCompile(b.String())
		}
		b.WriteString(regexp.QuoteMeta(strings.ReplaceAll(text[:at[0]], "%%", "%")) + ".*?")
		text = text[at[1]:]
	}
}

// oneLine replaces line breaks and repeated spaces by single spaces.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
