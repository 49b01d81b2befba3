// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package plot

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
)

// Page is a report: one self-contained file without scripts.
type Page struct {
	Title    string
	Lead     []string // paragraphs
	Sections []Section
}

// Section is a part of a page.
type Section struct {
	Title   string
	Notes   []string // paragraphs
	Table   *Table   // nil if there is no table
	Figures []Figure
}

// Table is a table with a heading for each column. The first column is left-aligned text; the
// others have numbers.
type Table struct {
	Head []string
	Rows [][]string
}

//go:embed page.html.tmpl
var page string

// Write writes the page.
func (p Page) Write(w io.Writer) error {
	t, err := template.New("page").Parse(page)
	if err != nil {
		return fmt.Errorf("reading page: %w", err)
	}
	return t.Execute(w, map[string]any{"Page": p, "Style": template.CSS(style)})
}
