// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package trace

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// phillyJob is an entry of cluster_job_log of the public Philly traces.
type phillyJob struct {
	ID       string          `json:"jobid"`
	User     string          `json:"user"`
	VC       string          `json:"vc"`
	Submit   string          `json:"submitted_time"`
	Attempts []phillyAttempt `json:"attempts"`
}

type phillyAttempt struct {
	Start  string `json:"start_time"`
	End    string `json:"end_time"`
	Detail []struct {
		GPUs []string `json:"gpus"`
	} `json:"detail"`
}

// durationS is the attempt's length, 0 where a time is missing.
func (a phillyAttempt) durationS() float64 {
	start, err1 := time.Parse(time.DateTime, a.Start)
	end, err2 := time.Parse(time.DateTime, a.End)
	if err1 != nil || err2 != nil {
		return 0
	}
	return end.Sub(start).Seconds()
}

func (a phillyAttempt) gpus() int {
	n := 0
	for _, d := range a.Detail {
		n += len(d.GPUs)
	}
	return n
}

// ReadPhilly reads the public Philly trace (cluster_job_log.json of
// msr-fiddle/philly-traces): a list of jobs with their attempts. The work of a
// job is the sum of its attempts, its GPUs those of the last attempt that ran.
// The trace knows no models; every job is of class A.
func ReadPhilly(name string, r io.Reader) (Trace, error) {
	d := &lineDecoder{r: r}
	d.json = json.NewDecoder(d)
	if tok, err := d.json.Token(); err != nil || tok != json.Delim('[') {
		return Trace{}, fmt.Errorf("%s:1: not a list of jobs", name)
	}
	t := Trace{Name: name, Format: "philly"}
	for d.json.More() {
		var p phillyJob
		if err := d.json.Decode(&p); err != nil {
			return Trace{}, fmt.Errorf("%s:%d: read job %d: %w", name, d.line(), len(t.Jobs)+1, err)
		}
		submit, err := time.Parse(time.DateTime, p.Submit)
		if err != nil {
			return Trace{}, fmt.Errorf("%s:%d: job %q: submitted_time: %w", name, d.line(), p.ID, err)
		}
		j := Job{ID: p.ID, Line: d.line(), Name: p.User, Tenant: p.VC, Class: pal.ClassA, SubmitS: float64(submit.Unix()), IterTimeS: 1}
		for _, a := range p.Attempts {
			if s, n := a.durationS(), a.gpus(); s > 0 && n > 0 {
				j.Iterations += s
				j.GPUs = n
			}
		}
		if j.GPUs == 0 {
			t.Skip("never ran on a GPU")
			continue
		}
		t.Jobs = append(t.Jobs, j)
	}
	if _, err := d.json.Token(); err != nil {
		return Trace{}, fmt.Errorf("%s:%d: the list of jobs does not end: %w", name, d.line(), err)
	}
	t.Rebase()
	return t, nil
}

// lineDecoder counts the lines that a JSON decoder has consumed.
type lineDecoder struct {
	r     io.Reader
	json  *json.Decoder
	read  int64
	lines []int64 // offsets of line ends
}

func (d *lineDecoder) Read(p []byte) (int, error) {
	n, err := d.r.Read(p)
	for i, b := range p[:n] {
		if b == '\n' {
			d.lines = append(d.lines, d.read+int64(i))
		}
	}
	d.read += int64(n)
	return n, err
}

// line is the line that the decoder is on: the log has millions, so that they
// are searched, not counted.
func (d *lineDecoder) line() int {
	n, _ := slices.BinarySearch(d.lines, d.json.InputOffset())
	return n + 1
}
