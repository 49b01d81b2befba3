// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package plot

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
	"text/tabwriter"
)

// Page is a report: one self-contained file without scripts.
type Page struct {
	Title    string
	Lead     []string // paragraphs
	Facts    []Fact
	Sections []Section
}

// Fact is a key figure with its name.
type Fact struct{ Value, Name string }

// Section is a part of a page.
type Section struct {
	Title   string
	Notes   []string // paragraphs
	Table   *Table   // nil if there is no table
	Figures []Figure
}

// Table has a heading over columns; the first column is left-aligned, the others
// are numbers.
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
		return fmt.Errorf("read page: %w", err)
	}
	return t.Execute(w, map[string]any{"Page": p, "Style": template.CSS(style)})
}

// Print writes the lead and the tables for a terminal.
func (p Page) Print(out io.Writer) {
	for _, text := range p.Lead {
		fmt.Fprintln(out, text)
	}
	for _, s := range p.Sections {
		if s.Table == nil {
			continue
		}
		fmt.Fprintf(out, "\n%s\n", s.Title)
		w := tabwriter.NewWriter(out, 2, 0, 2, ' ', 0)
		for _, row := range append([][]string{s.Table.Head}, s.Table.Rows...) {
			fmt.Fprintln(w, strings.Join(row, "\t"))
		}
		w.Flush()
	}
}

// Figures returns the figures of all sections.
func (p Page) Figures() []Figure {
	var all []Figure
	for _, s := range p.Sections {
		all = append(all, s.Figures...)
	}
	return all
}
