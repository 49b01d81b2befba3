// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package advice finds the advice in the code's texts, so that tests can follow each piece of it.
package advice

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Text is a text in the code that advises its reader to do something.
type Text struct {
	// Where is its file and line.
	Where string
	Text  string
}

// imperative is how advice begins: at a text's start, or after a clause.
var imperative = regexp.MustCompile(`(?i)(^|[;:.,(—] ?|\bor |\band |\bthen )(` + strings.Join([]string{
	"use", "write", "say", "leave", "drop", "put", "mend", "fix", "remove", "explain one", "correct", "take", "run it", "run the job", "run doctor", "run Nomad", "ask for", "choose",
	"give", "change the", "spell", "did you mean", "try", "rename", "gate the", "gate all", "set", "look at", "look for", "install", "upgrade", "enable",
	"start the", "restart the", "make the", "stop it", "add:? (a|the|pal|plugin)", "go back", "reboot", "reload", "have it", "have its", "have the", "check the", "name files", "name its",
}, "|") + `)\b`)

// forExample is "say" where it means "for example".
var forExample = regexp.MustCompile(`, say\b`)

// describes are the functions called with texts, and the fields with texts, that tell what a command or a
// path is for: they advise nobody.
var describes = []string{"help", "examples", "make", "HandleFunc", "Handle", "handle", "synopsis"}

// In are the texts with advice in the code of folders, without the files of the names that are left out.
func In(leftOut []string, dirs ...string) (found []Text, err error) {
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			return nil, fmt.Errorf("no Go files in %s: %w", dir, err)
		}
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") || slices.Contains(leftOut, filepath.Base(path)) {
				continue
			}
			texts, err := ofFile(path)
			if err != nil {
				return nil, err
			}
			found = append(found, texts...)
		}
	}
	return found, nil
}

// ofFile are the texts with advice in a file.
func ofFile(path string) ([]Text, error) {
	texts, err := read(path, describes)
	return slices.DeleteFunc(texts, func(t Text) bool { return !Gives(t.Text) }), err
}

// Texts are all texts in a file of code.
func Texts(path string) ([]Text, error) { return read(path, nil) }

// read are the texts in a file of code, without those that are given to the functions and fields left out.
func read(path string, leftOut []string) (found []Text, err error) {
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
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
				found = append(found, Text{fmt.Sprintf("%s:%d", path, files.Position(n.Pos()).Line), text})
			}
		}
		return true
	})
	return found, nil
}

// called is the name of the function that is called.
func called(c *ast.CallExpr) string {
	switch f := c.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// Gives reports whether a text gives advice.
func Gives(text string) bool {
	return strings.Contains(text, " ") && imperative.MatchString(forExample.ReplaceAllString(text, ""))
}

// Followed is the advice that users were shown and that a test followed.
type Followed struct{ shown []shown }

type shown struct {
	text     string
	from, to int // of the advice
}

// Add takes note of advice that stands in what a user was shown; ok: it does.
func (f *Followed) Add(text, advice string) (ok bool) {
	text, advice = folded(text), folded(advice)
	at := strings.Index(text, advice)
	if at >= 0 {
		f.shown = append(f.shown, shown{text, at, at + len(advice)})
	}
	return at >= 0
}

// Shows reports whether advice stands in what a user was shown, whatever its capitals and line breaks.
func Shows(text, advice string) bool { return strings.Contains(folded(text), folded(advice)) }

func folded(text string) string { return strings.ToLower(oneLine(text)) }

// Rest are those texts that nobody followed.
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

// verb is what is replaced in a text before it is shown: verbs of package fmt, and names such as $GPU.
var verb = regexp.MustCompile(`%[-+# 0]*[0-9]*(\.[0-9]+)?[a-zA-Z]|\$[A-Z]+\b`)

// pattern matches what a text may become.
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

// oneLine has one space where a text has any, whatever the width that it was folded to.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
