// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package trace

import (
	"io"
	"strings"

	"github.com/nomad-pal/nomad-pal/pal"
)

// ReadHelios reads a Helios trace (cluster_log.csv of S-Lab's HeliosData):
// columns job_id, user, gpu_num, submit_time and duration (s), times as
// "2020-04-01 00:04:03"; vc and jobname are used where they are there. CPU jobs
// and jobs that never ran are skipped.
func ReadHelios(name string, r io.Reader) (Trace, error) {
	tb, err := openTable(name, r, nil, "job_id", "user", "gpu_num", "submit_time", "duration")
	if err != nil {
		return Trace{}, err
	}
	t := Trace{Name: name, Format: "helios"}
	for {
		if err := tb.next(); err == io.EOF {
			t.Rebase()
			return t, nil
		} else if err != nil {
			return Trace{}, err
		}
		if err := t.addHelios(tb); err != nil {
			return Trace{}, err
		}
	}
}

func (t *Trace) addHelios(tb *table) error {
	gpus, err := tb.int("gpu_num", 0)
	if err != nil {
		return err
	}
	submit, err := tb.timeS("submit_time")
	if err != nil {
		return err
	}
	duration, err := tb.float("duration", 0)
	if err != nil {
		return err
	}
	switch {
	case gpus == 0:
		t.Skip("no GPU")
	case duration == 0:
		t.Skip("never ran")
	default:
		t.Jobs = append(t.Jobs, Job{ID: tb.text("job_id"), Line: tb.line, Name: nameOf(tb.text("jobname"), tb.text("user")),
			Tenant: nameOf(tb.text("vc"), tb.text("user")), Class: pal.ClassA, GPUs: gpus, SubmitS: submit,
			Iterations: duration, IterTimeS: 1})
	}
	return nil
}

func nameOf(candidates ...string) string {
	for _, c := range candidates {
		if strings.TrimSpace(c) != "" {
			return c
		}
	}
	return ""
}
