// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Command simtraces runs every policy on every available trace, at several loads and on GPUs with
// and without outliers. The command writes the results as JSON and as Markdown tables (`make
// sim-traces`, docs/results/README.md).
//
// Others published the traces, so the traces are not part of the product. The command reads the
// traces from the directory traces in PAL_DATA. Rules are chosen with every other virtual cluster;
// the rest of the virtual clusters serve to report the results.
package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/nomad-pal/nomad-pal/bench/paldata"
	"github.com/nomad-pal/nomad-pal/internal/wholefile"
)

func main() {
	var o options
	flag.StringVar(&o.json, "json", "", "write the results to `FILE`")
	flag.StringVar(&o.tables, "md", "", "write the tables to `FILE`")
	flag.StringVar(&o.csv, "csv", "", "write a line for each cell to `FILE`")
	flag.BoolVar(&o.quick, "quick", false, "run a subset, in minutes: the first jobs of each virtual cluster, gangs as tasks, GPUs with outliers")
	flag.StringVar(&o.runs, "runs", "", "append each run to `FILE` as it ends, and skip the runs in it; delete a FILE of an earlier version first")
	flag.IntVar(&o.workers, "workers", 2, "number of runs at a time")
	flag.StringVar(&o.policy, "try", "", "run only `POLICY`, write nothing, and compare it with the runs that the JSON file has")
	flag.Uint64Var(&o.seed, "seed", 0, "with -try: seed of the GPUs and all other random numbers; 0: that of the published results. Small differences under one seed may be chance")
	flag.StringVar(&o.version, "version", "", "record `COMMIT` with each run")
	flag.BoolVar(&o.ofUsers, "users", false, "measure how results change if users give estimates or let the queue stop their jobs, with the first jobs of each trace and with generated jobs")
	flag.StringVar(&o.against, "against", "", "with -users: compare with the results in `FILE`")
	flag.StringVar(&o.of, "of", "", "with -against: description of the queue that made those results; it ends the sentence \"Each line over itself\"")
	flag.StringVar(&o.part, "part", "", "with -users: run only one `HALF` of the traces: choose (the traces with which we chose the queue's rules) or report (the others)")
	only := flag.String("only", "", "run only traces whose name matches `REGEXP`")
	again := flag.String("again", "", "run again only policies whose name matches `REGEXP`, on the traces of -only; all other runs stay as they are in the JSON file")
	flag.Parse()
	err := o.compile(*only, *again)
	switch {
	case err != nil:
	case o.ofUsers:
		err = o.users()
	default:
		err = o.run()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "simtraces: %v\n", err)
		os.Exit(1)
	}
}

type options struct {
	json, tables, csv string
	runs              string
	policy            string
	quick             bool
	workers           int
	seed              uint64
	version           string
	only, again       *regexp.Regexp // nil: all
	ofUsers           bool
	against, of, part string // used with ofUsers
}

func (o *options) compile(only, again string) (err error) {
	if again != "" {
		if o.again, err = regexp.Compile(again); err != nil {
			return err
		}
	}
	o.only, err = regexp.Compile(only)
	return err
}

// report has the results to write.
type report struct {
	quick   bool
	only    string
	missing []string // known traces that are missing
	cells   []*result
	of      int // number of all cells, with or without results
}

func (o options) run() error {
	if o.seed != 0 && o.policy == "" {
		return errors.New("-seed can be used only with -try")
	}
	found, missing, err := find(paldata.Dir())
	if err != nil {
		return err
	}
	for _, m := range missing {
		fmt.Fprintf(os.Stderr, "missing: %s\n", m)
	}
	r := report{quick: o.quick, missing: missing}
	if o.again == nil {
		r.only = o.only.String()
	}
	for _, s := range found {
		if o.again != nil || o.only.MatchString(s.trace.Name) {
			r.cells = append(r.cells, cells(s, o.quick)...)
		}
	}
	for _, c := range r.cells {
		c.seed = cmp.Or(o.seed, seed)
	}
	if len(r.cells) == 0 {
		return fmt.Errorf("no trace to run: put traces under %s/traces", paldata.Env)
	}
	if o.policy != "" {
		return o.try(r.cells)
	}
	if o.again != nil {
		if err := o.addPublished(&r); err != nil {
			return err
		}
	}
	return o.measure(r)
}

// addPublished adds the published cells of traces that are now missing, so that their runs stay in
// the results.
func (o options) addPublished(r *report) error {
	rows, err := o.published()
	if err != nil {
		return err
	}
	had := map[cell]bool{}
	for _, c := range r.cells {
		had[c.cell] = true
	}
	for _, one := range rows {
		if !had[one.cell] {
			had[one.cell] = true
			r.cells = append(r.cells, &result{cell: one.cell})
		}
		r.missing = slices.DeleteFunc(r.missing, func(m string) bool { return strings.HasPrefix(m, one.Trace+" (traces/") })
	}
	return nil
}

// write writes one of the files, completely or not at all. If the path is empty, write writes no
// file.
func write(path string, text func() ([]byte, error)) error {
	if path == "" {
		return nil
	}
	b, err := text()
	if err != nil {
		return err
	}
	return wholefile.Write(path, b)
}

// json writes one line per run, so that diffs are readable.
func (r report) json() ([]byte, error) {
	out := []byte("[")
	for i, c := range r.cells {
		for k, one := range c.Runs {
			b, err := json.Marshal(row{c.cell, one})
			if err != nil {
				return nil, err
			}
			if i+k > 0 {
				out = append(out, ',')
			}
			out = append(append(out, '\n'), b...)
		}
	}
	return append(out, "\n]\n"...), nil
}
