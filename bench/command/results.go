// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package command

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/nomad-pal/nomad-pal/bench/plot"
	"github.com/nomad-pal/nomad-pal/internal/version"
	"github.com/nomad-pal/nomad-pal/internal/wholefile"
)

// Provenance describes, in each result file, how the file was made.
type Provenance struct {
	Command []string `json:"command"`
	Commit  string   `json:"commit"`
	Go      string   `json:"go"`
	CPUs    int      `json:"cpus"`
	Date    string   `json:"date"`
}

// NewProvenance returns the provenance of results of this process.
func NewProvenance(name string) Provenance {
	return Provenance{
		Command: invocation(name, os.Args[1:]), Commit: version.Revision,
		Go: runtime.Version(), CPUs: runtime.NumCPU(), Date: time.Now().UTC().Format(time.DateOnly),
	}
}

// String formats the provenance as one line for people.
func (p Provenance) String() string {
	return fmt.Sprintf("%s, commit %s, %s, %d cores. Command: %s.", p.Date, p.Commit, p.Go, p.CPUs, strings.Join(p.Command, " "))
}

// invocation returns a command line for a result file: the program's name and its flags, except
// flags that name files of this machine.
func invocation(name string, args []string) []string {
	out := []string{name}
	for i := 0; i < len(args); i++ {
		flag, _, joined := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		if !slices.Contains([]string{"nomad", "bin", "json", "html", "svg", "workload", "from", "profiles"}, flag) {
			out = append(out, args[i])
		} else if !joined {
			i++ // skip the flag's value
		}
	}
	return out
}

// Results has the names of the files from which results are read and to which they are written.
type Results struct{ JSON, From, HTML, SVG string }

// Flags defines the flags of a command that writes reports, before the flags are parsed.
func (o *Results) Flags(name string) {
	flag.StringVar(&o.JSON, "json", "bench/results/"+name+".json", "result file")
	flag.StringVar(&o.From, "from", "", "report on this result file of an earlier run, without a new run")
	flag.StringVar(&o.HTML, "html", "", "HTML file for a report with plots, which can be opened offline")
	flag.StringVar(&o.SVG, "svg", "", "folder for the plots as SVG files")
}

// Show prints the tables of a report. If flags name files, Show also writes the report's page and
// plots.
func (o Results) Show(report plot.Page) error {
	Print(os.Stdout, report)
	if o.HTML != "" {
		var page bytes.Buffer
		err := report.Write(&page)
		if err == nil {
			err = Write(o.HTML, page.Bytes())
		}
		if err != nil {
			return fmt.Errorf("writing the report: %w", err)
		}
	}
	for _, s := range report.Sections {
		for _, f := range s.Figures {
			if o.SVG == "" {
				return nil
			}
			if err := Write(filepath.Join(o.SVG, f.Name+".svg"), []byte(f.File())); err != nil {
				return fmt.Errorf("writing the plots: %w", err)
			}
		}
	}
	return nil
}

// Print writes a page's introduction and tables, for a terminal.
func Print(out io.Writer, p plot.Page) {
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

// Read reads a result file, and decompresses a file whose name ends with .gz.
func Read(path string, into any) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	var text io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		text, err = gzip.NewReader(f)
	}
	if err == nil {
		err = json.NewDecoder(text).Decode(into)
	}
	if err != nil {
		return fmt.Errorf("reading results %q: %w", path, err)
	}
	return nil
}

// WriteJSON writes a value as a result file.
func WriteJSON(path string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding results: %w", err)
	}
	return Write(path, append(text, '\n'))
}

// Write replaces a result file atomically, so the old file survives an interrupted run. If the name
// ends with .gz, Write compresses the file.
func Write(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if strings.HasSuffix(path, ".gz") {
		var b bytes.Buffer
		z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
		_, _ = z.Write(text) // writing to memory does not fail
		_ = z.Close()
		text = b.Bytes()
	}
	return wholefile.Write(path, text)
}
