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

func (t *Trace) addHelios(tb *table) {
	if strings.TrimSpace(tb.text("gpu_num")) == "" {
		t.Skip("no GPU")
		return
	}
	j := Job{ID: tb.text("job_id"), Line: tb.line, Name: nameOf(tb.text("jobname"), tb.text("user")), Tenant: nameOf(tb.text("vc"), tb.text("user")),
		Class: pal.ClassA, GPUs: tb.int("gpu_num", 0), SubmitS: tb.timeS("submit_time"), Iterations: tb.runS(), IterTimeS: 1}
	switch {
	case j.GPUs == 0:
		t.Skip("no GPU")
	case j.Iterations == 0:
		t.Skip("never ran")
	default:
		t.Jobs = append(t.Jobs, j)
	}
}

// runS is how long a job of a Helios or Acme trace ran: 0 where it never
// started.
func (t *table) runS() float64 {
	start, ok1 := timeS(t.text("start_time"))
	end, ok2 := timeS(t.text("end_time"))
	switch {
	case t.has("start_time") && t.has("end_time") && t.text("start_time") == "":
		return 0
	case !ok1 || !ok2 || end < start:
		return t.float("duration")
	}
	return end - start
}

func nameOf(candidates ...string) string {
	for _, c := range candidates {
		if strings.TrimSpace(c) != "" {
			return c
		}
	}
	return ""
}
