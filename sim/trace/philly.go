// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package trace

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// phillyJob is an entry of cluster_job_log of the public Philly traces.
type phillyJob struct {
	ID       string          `json:"jobid"`
	User     string          `json:"user"`
	VC       string          `json:"vc"`
	Status   string          `json:"status"`
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

// readPhilly reads the public Philly trace (cluster_job_log.json of msr-fiddle/philly-traces): a
// list of jobs with their attempts, which are the runs of a requeued job. The trace has no
// models, so every job is of class A.
func readPhilly(b *book, r io.Reader) error {
	d, t := &lineDecoder{r: r}, &table{starts: true, ends: true}
	d.json = json.NewDecoder(d)
	if tok, err := d.json.Token(); err != nil || tok != json.Delim('[') {
		return fmt.Errorf("%s:1: not a list of jobs, as Philly's cluster_job_log is; for Slurm, use sacct -P instead of --json", b.name)
	}
	for n := 1; d.json.More(); n++ {
		var p phillyJob
		if err := d.json.Decode(&p); err != nil {
			return fmt.Errorf("%s:%d: read job %d: %w", b.name, d.line(), n, err)
		}
		if err := p.book(b, t, d.line()); err != nil {
			return fmt.Errorf("%s:%d: job %q: %w", b.name, d.line(), p.ID, err)
		}
	}
	if _, err := d.json.Token(); err != nil {
		return fmt.Errorf("%s:%d: the list of jobs does not end: %w", b.name, d.line(), err)
	}
	if _, err := d.json.Token(); err != io.EOF {
		return fmt.Errorf("%s:%d: text follows the list of jobs; the file must be one list", b.name, d.line())
	}
	return nil
}

// book adds the attempts of the job to b. A job without attempts counts as never started.
func (p *phillyJob) book(b *book, t *table, line int) error {
	if p.ID == "" {
		return errors.New("the job has no jobid")
	}
	attempts := p.Attempts
	if len(attempts) == 0 {
		attempts = []phillyAttempt{{}}
	}
	for i, a := range attempts {
		r := row{line: line, clock: &t.clock, user: p.User}
		r.ID, r.Tenant, r.Priority = p.ID, p.VC, defaultPriority
		for _, f := range []struct {
			name, text string
			read       func(*row, string) error
		}{
			{"status", p.Status, became}, {"submitted_time", p.Submit, moment(submit)},
			{"start_time", a.Start, moment(start)}, {"end_time", a.End, moment(end)},
		} {
			r.column = f.name
			if err := f.read(&r, strings.TrimSpace(f.text)); err != nil {
				return fmt.Errorf("%s: %w", f.name, err)
			}
		}
		if i+1 < len(attempts) {
			r.state = unsaid // state of the last attempt
		}
		n := 0
		for _, d := range a.Detail {
			n += len(d.GPUs)
		}
		if n > 0 || a.Start != "" {
			r.gpus.set(float64(n))
		}
		if err := b.add(&r, t); err != nil {
			return err
		}
	}
	return nil
}

// lineDecoder finds the line that a JSON decoder has reached.
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

// line is the line that the decoder has reached. A log has millions of lines, so line searches the
// offsets of the line ends, and does not count.
func (d *lineDecoder) line() int {
	n, _ := slices.BinarySearch(d.lines, d.json.InputOffset())
	return n + 1
}
