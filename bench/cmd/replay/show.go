// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"time"

	"github.com/nomad-pal/nomad-pal/bench/replay"
)

// reshow shows an earlier run.
func (o options) reshow() error {
	r, err := readReport(o.From)
	if err != nil {
		return err
	}
	if o.predict {
		if err := o.predictAnew(r); err != nil {
			return err
		}
	}
	return o.ShowAgain(r.Page(), r.write)
}

// predictAnew simulates the runs of an earlier report.
func (o options) predictAnew(r *report) error {
	o.nodes, o.compress, o.maxWait = r.GPUs/4, r.Compress, time.Duration(r.MaxWaitS*float64(time.Second))
	all := o.schedulers()
	for _, l := range r.Runs {
		i := place(l.Scheduler, l.Preemption)
		if i < 0 {
			return fmt.Errorf("simulate %q again: no such scheduler", l.Scheduler)
		}
		if all[i].rules == nil {
			continue
		}
		for _, raw := range l.Raw {
			gpus, _, err := replay.DrawGPUs(o.nodes, 4, l.Outliers, raw.Seed)
			if err != nil {
				return err
			}
			if err := o.predictRun(all[i], gpus, raw); err != nil {
				return err
			}
		}
		l.summarise(r)
	}
	return nil
}
