// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package trace

import (
	"io"
	"strings"

	"github.com/nomad-pal/nomad-pal/pal"
)

// ReadHelios reads a Helios trace (cluster_log.csv of S-Lab's HeliosData) or an
// Acme one (trace_seren.csv and trace_kalos.csv of InternLM's AcmeTrace):
// columns job_id, user, gpu_num, submit_time and duration (s), times as
// "2020-04-01 00:04:03" or "2023-03-01 00:18:22+08:00". The work is from
// start_time to end_time where the trace has both, since Kalos counts the wait
// into duration; vc and jobname are used where they are there. CPU jobs and jobs
// that never ran are skipped.
func ReadHelios(name string, r io.Reader) (Trace, error) {
	tb, err := openTable(name, r, nil, "job_id", "user", "gpu_num", "submit_time", "duration")
	if err != nil {
		return Trace{}, err
	}
	t := Trace{Name: name, Format: "helios"}
	if tb.has("gpu_time") {
		t.Format = "acme"
	}
	if err := tb.each(t.addHelios); err != nil {
		return Trace{}, err
	}
	t.Rebase()
	return t, nil
}

func (t *Trace) addHelios(tb *table) error {
	if strings.TrimSpace(tb.text("gpu_num")) == "" {
		t.Skip("no GPU")
		return nil
	}
	gpus, err := tb.int("gpu_num", 0)
	if err != nil {
		return err
	}
	submit, err := tb.timeS("submit_time")
	if err != nil {
		return err
	}
	duration, err := tb.runS()
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

// runS is how long a job of a Helios or Acme trace ran: 0 where it never
// started.
func (t *table) runS() (float64, error) {
	if !t.has("start_time") || !t.has("end_time") {
		return t.float("duration")
	}
	start, err1 := t.timeS("start_time")
	end, err2 := t.timeS("end_time")
	switch {
	case t.text("start_time") == "":
		return 0, nil
	case err1 != nil || err2 != nil || end < start:
		return t.float("duration")
	}
	return end - start, nil
}

func nameOf(candidates ...string) string {
	for _, c := range candidates {
		if strings.TrimSpace(c) != "" {
			return c
		}
	}
	return ""
}
