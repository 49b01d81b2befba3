// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package trace

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// slurm returns the columns of sacct. Allocated resources take precedence over requested resources.
func slurm() []column {
	return []column{
		{"jobid", (*row).setSlurmID}, {"jobidraw", (*row).setSlurmID}, {"cluster", words(func(r *row) *string { return &r.cluster })},
		{"jobname", words(jobName)}, {"account", words(tenant)}, {"user", heldBy},
		{"alloctres", given((*row).setTRES)}, {"reqtres", given((*row).setTRES)}, {"allocgres", given((*row).setGRES)}, {"reqgres", given((*row).setGRES)},
		{"nnodes", count(nodes)}, {"allocnodes", count(nodes)}, {"reqnodes", count(nodes)},
		{"state", became}, {"submit", moment(submit)}, {"start", moment(start)}, {"end", moment(end)},
		{"elapsedraw", lasted}, {"elapsed", given((*row).setElapsed)}, {"timelimitraw", (*row).setLimitMinutes}, {"timelimit", (*row).setLimit},
		{"priority", value(priority, atLeast(0))}, {"dependency", given((*row).setDependency)}, {"dependencys", given((*row).setDependency)},
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
	whole, part, step := m[1], m[2], m[3]
	r.ID = strings.TrimSuffix(cell, part)
	r.step, r.group = step != "", part
	if r.ID != whole {
		r.Array = whole
	}
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
	r.setGPUs(all.v)
	return nil
}

// slice matches the types of MIG instances: 1g.10gb, a100_3g.20gb, 1g.5gb.me.
var slice = regexp.MustCompile(`(?:^|_)\d+g\.\d+gb`)

var gres = regexp.MustCompile(`^(?:gres[:/])?(\w+)(?:[:/]([A-Za-z][^:=(]*|\d+g\.[^:=(]*))?(?:[:=](\d+))?(?:\([^)]*\))?$`)

// setGRES reads the form of Slurm before 21.08: gpu:4 or gpu:a100:4, in total over all nodes.
func (r *row) setGRES(cell string) error {
	n := 0
	for item := range strings.SplitSeq(cell, ",") {
		m := gres.FindStringSubmatch(item)
		switch {
		case m == nil:
			return fmt.Errorf("%q is not NAME:COUNT or NAME:TYPE:COUNT", item)
		case m[1] != "gpu" && m[1] != gpuNumber:
		case m[3] == "":
			n++
			r.slices = r.slices || slice.MatchString(m[2])
		default:
			v, err := strconv.Atoi(m[3])
			r.slices = r.slices || v > 0 && slice.MatchString(m[2])
			if err != nil || v > most {
				return fmt.Errorf("%q: not a number of GPUs", item)
			}
			n += v
		}
	}
	r.setGPUs(float64(n))
	return nil
}

// setGPUs keeps the first count above 0. If Slurm does not count GPUs as TRES, another column has
// the number of GPUs.
func (r *row) setGPUs(n float64) {
	if r.gpus.v == 0 {
		r.gpus = opt{n, true}
	}
}

// gpuNumber is what Slurm writes instead of "gpu" if its database does not know the name.
const gpuNumber = "7696487"

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
	if v*60 > longest {
		err = fmt.Errorf("a time limit of %s minutes is too long", cell)
	}
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

var dependency = regexp.MustCompile(`^(?:([a-z]+):)?((?:\d+(?:_(?:\d+|\*))?(?:\+\d+)?:?)+)(?:\([a-z]+\))?$`)

// setDependency reads afterok:231370:231371,afterany:231372(unfulfilled). Dependencies that let a
// job start before the other jobs have ended are ignored, with a note in the job.
func (r *row) setDependency(cell string) error {
	if strings.Contains(cell, "?") { // any one of the jobs is enough
		r.rowNote = noteDependency
		return nil
	}
	for item := range strings.SplitSeq(cell, ",") {
		m := dependency.FindStringSubmatch(item)
		switch {
		case strings.HasPrefix(item, "singleton"):
			r.rowNote = noteDependency
			continue
		case m == nil:
			return fmt.Errorf("%q is not a dependency such as afterok:231370", item)
		}
		switch kind := m[1]; kind {
		case "after", "expand":
			r.rowNote = noteDependency
		case "", "afterok", "afterany", "afternotok", "aftercorr", "afterburstbuffer":
			for of := range strings.SplitSeq(strings.TrimSuffix(m[2], ":"), ":") {
				of, _, _ = strings.Cut(strings.TrimSuffix(of, "_*"), "+")
				if _, task, ok := strings.Cut(r.ID, "_"); ok && kind == "aftercorr" {
					of += "_" + task
				}
				r.After = append(r.After, of)
			}
		default:
			return fmt.Errorf("%q is not a kind of dependency", kind)
		}
	}
	return nil
}
