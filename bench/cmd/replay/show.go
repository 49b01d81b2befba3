// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/nomad-pal/nomad-pal/bench/plot"
	"github.com/nomad-pal/nomad-pal/bench/replay"
)

// show prints the table and writes what people look at.
func (o options) show(r *report) error {
	r.print(os.Stdout)
	if o.html != "" {
		if err := r.page().WriteFile(o.html); err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
	}
	if o.svg != "" {
		if err := plot.WriteFigures(o.svg, r.figures()...); err != nil {
			return fmt.Errorf("write the plots: %w", err)
		}
	}
	return nil
}

// reshow shows an earlier run.
func (o options) reshow() error {
	r, err := readReport(o.from)
	if err != nil {
		return err
	}
	if o.predict {
		if err := o.predictAnew(r); err != nil {
			return err
		}
	}
	named := false
	flag.Visit(func(f *flag.Flag) { named = named || f.Name == "json" })
	if named {
		if err := r.write(o.json); err != nil {
			return err
		}
	}
	return o.show(r)
}

// predictAnew simulates the runs of an earlier report.
func (o options) predictAnew(r *report) error {
	o.nodes, o.compress = r.GPUs/4, r.Compress
	all := schedulers(r.Compress)
	for _, l := range r.Runs {
		i := place(l.Scheduler, l.Preemption)
		if i < 0 {
			return fmt.Errorf("simulate %q anew: no such scheduler", l.Scheduler)
		}
		if all[i].rules == nil {
			continue
		}
		for _, raw := range l.Raw {
			gpus, err := o.gpus(l.Outliers, raw.Seed)
			if err != nil {
				return err
			}
			var jobs []replay.Job
			for _, j := range raw.Jobs {
				jobs = append(jobs, j.Job)
			}
			if err := o.predictRun(all[i], gpus, jobs, raw); err != nil {
				return err
			}
		}
		l.summarise()
	}
	return nil
}
