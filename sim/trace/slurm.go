// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package trace

import (
	"fmt"
	"regexp"
	"strings"
)

// slurm returns the columns of sacct. Allocated resources take precedence over requested resources.
func slurm() []column {
	return []column{
		{"jobid", (*row).setSlurmID}, {"jobidraw", (*row).setSlurmID},
		{"jobname", words(jobName)}, {"account", words(tenant)}, {"user", heldBy},
		{"alloctres", given((*row).setTRES)}, {"reqtres", given((*row).setTRES)},
		{"nnodes", count(nodes)}, {"allocnodes", count(nodes)}, {"reqnodes", count(nodes)},
		{"state", became}, {"submit", moment(submit)}, {"start", moment(start)}, {"end", moment(end)},
		{"elapsedraw", lasted}, {"elapsed", given((*row).setElapsed)}, {"timelimitraw", (*row).setLimitMinutes}, {"timelimit", (*row).setLimit},
		{"priority", value(priority, atLeast(0))},
	}
}

var slurmID = regexp.MustCompile(`^(\d+)(?:_(?:\d+|\[[^\]]*\]))?(\+\d+)?(\..+)?$`)

// setSlurmID reads 231374, 231374_3 (of an array), 231374+1 (a part of a heterogeneous job,
// which is one gang) and 231374.batch (a step, not a job).
func (r *row) setSlurmID(cell string) error {
	if r.ID != "" || r.step {
		return nil
	}
	m := slurmID.FindStringSubmatch(cell)
	if m == nil {
		return fmt.Errorf("%q is not a Slurm job id such as 231374, 231374_3 or 231374+1", cell)
	}
	part, step := m[2], m[3]
	r.ID = strings.TrimSuffix(cell, part)
	r.step, r.group = step != "", part
	return nil
}

// setTRES reads billing=8,cpu=8,gres/gpu=4,gres/gpu:a100=4,node=1: GPUs in total, and nodes.
func (r *row) setTRES(cell string) error {
	var all opt
	typed := 0
	for item := range strings.SplitSeq(cell, ",") {
		name, value, ok := strings.Cut(item, "=")
		if !ok {
			return fmt.Errorf("%q is not NAME=VALUE", item)
		}
		kind, isTyped := strings.CutPrefix(name, "gres/gpu:")
		if name != "gres/gpu" && !isTyped && name != "node" {
			continue
		}
		n, err := whole(value, 0)
		switch {
		case err != nil || n > most:
			return fmt.Errorf("%q: its value is not a number of GPUs or nodes", item)
		case name == "node":
			r.nodes.set(float64(n))
		case isTyped:
			typed += n
			r.slices = r.slices || n > 0 && slice.MatchString(kind)
		default:
			all.set(float64(n))
		}
	}
	all.set(float64(typed))
	if r.gpus.v == 0 { // the first count above 0
		r.gpus = opt{all.v, true}
	}
	return nil
}

// slice matches the types of MIG instances: 1g.10gb, a100_3g.20gb, 1g.5gb.me.
var slice = regexp.MustCompile(`(?:^|_)\d+g\.\d+gb`)

var minutes = regexp.MustCompile(`^\d+:[0-5]\d(\.\d+)?$`)

// setElapsed reads [[D-]HH:]MM:SS.
func (r *row) setElapsed(cell string) error {
	if minutes.MatchString(cell) {
		cell = "0:" + cell
	}
	if !strings.Contains(cell, ":") {
		return fmt.Errorf("%q is not a duration such as 01:30:00 or 1-01:30:00 (days-hours)", cell)
	}
	return lasted(r, cell)
}

// noLimit reports whether the job has no time limit of its own.
func noLimit(cell string) bool {
	return missing(cell) || strings.EqualFold(cell, "UNLIMITED") || strings.EqualFold(cell, "Partition_Limit") || strings.EqualFold(cell, "INFINITE")
}

// setLimitMinutes reads the time limit, which is the user's estimate.
func (r *row) setLimitMinutes(cell string) error {
	if noLimit(cell) {
		return nil
	}
	v, err := number(cell, 0)
	r.EstimateS = v * 60
	return err
}

func (r *row) setLimit(cell string) (err error) {
	if noLimit(cell) || r.EstimateS > 0 {
		return nil
	}
	if minutes.MatchString(cell) {
		cell = "0:" + cell
	}
	r.EstimateS, err = positive(cell)
	return err
}
