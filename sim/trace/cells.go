// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package trace

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// opt is an optional number of a row.
type opt struct {
	v  float64
	ok bool
}

// set keeps the first value. If two columns have the same meaning, the format's first column
// counts.
func (o *opt) set(v float64) {
	if !o.ok {
		*o = opt{v, true}
	}
}

// missing reports whether a cell stands for a missing number, time or duration.
func missing(cell string) bool {
	switch strings.ToLower(cell) {
	case "", "-", "none", "null", "(null)", `\n`, "nan", "nat", "n/a", "na", "unknown", "invalid":
		return true
	}
	return false
}

// number reads a finite number of at least low.
func number(cell string, low float64) (float64, error) {
	v, err := strconv.ParseFloat(cell, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number", cell)
	}
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("%v is not a finite number", v)
	}
	if v < low {
		return 0, fmt.Errorf("%v is less than %v", v, low)
	}
	return v, nil
}

// most limits numbers of GPUs and members; no cluster is larger.
const most = 1e6

// whole reads a whole number, also in the form "8.0". Some tools write all integers of a column in
// this form if a value is missing.
func whole(cell string, low int) (int, error) {
	v, err := strconv.Atoi(strings.TrimSuffix(cell, ".0"))
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is not a whole number", cell)
	case v < low:
		return 0, fmt.Errorf("%d is less than %d", v, low)
	}
	return v, nil
}

// atLeast reads a whole number of at least low.
func atLeast(low int) func(string) (int, error) {
	return func(cell string) (int, error) { return whole(cell, low) }
}

// truth reads yes or no.
func truth(cell string) (bool, error) {
	switch strings.ToLower(cell) {
	case "true", "yes", "1":
		return true, nil
	case "false", "no", "0":
		return false, nil
	}
	return false, fmt.Errorf("%q is neither true nor false", cell)
}

var clockTime = regexp.MustCompile(`^(?:(\d+)(?:-| days? |  ?days?, ))?(\d+):([0-5]\d):([0-5]\d(?:\.\d+)?)$`)

// longest is an upper limit for a run or a log, in seconds: about 31 years.
const longest = 1e9

// span reads a duration in seconds: "3600", "1h30m", "01:30:00" or "1-01:30:00", but not "01:30",
// which can mean minutes or hours.
func span(cell string) (s float64, err error) {
	if s, err = strconv.ParseFloat(cell, 64); err != nil {
		if s, err = spanText(cell); err != nil {
			return 0, err
		}
	}
	if !(math.Abs(s) <= longest) {
		return 0, fmt.Errorf("%s is not a plausible duration (at most %.0f s)", cell, longest)
	}
	return s, nil
}

func spanText(cell string) (float64, error) {
	if d, err := time.ParseDuration(cell); err == nil {
		return d.Seconds(), nil
	}
	m := clockTime.FindStringSubmatch(cell)
	if m == nil {
		return 0, fmt.Errorf("%q is not a duration such as 3600 (seconds), 1h30m, 01:30:00 or 1-01:30:00 (days-hours)", cell)
	}
	s := 0.0
	for i, unit := range []float64{86400, 3600, 60, 1} {
		v, _ := strconv.ParseFloat(m[i+1], 64)
		s += v * unit
	}
	return s, nil
}

// clock reads the times of a file. All times must be of the same kind as the first time.
type clock struct {
	kind  clockKind
	first string // the first time, with its column and line
}

type clockKind string

const (
	seconds clockKind = "a number of seconds"
	local   clockKind = "a date without an offset from UTC"
	zoned   clockKind = "a date with an offset from UTC"
)

// afterAll is later than every submission, in seconds since 1970. A larger number must be in
// milliseconds.
const afterAll = 9e9

// read reads a time in seconds since an origin that all times of the file share.
func (c *clock) read(cell, column string, line int) (float64, error) {
	kind, s := seconds, 0.0
	v, err := strconv.ParseFloat(cell, 64)
	switch {
	case err != nil:
		if kind, s, err = c.date(cell); err != nil {
			return 0, err
		}
	case v >= afterAll && !math.IsInf(v, 0):
		return 0, fmt.Errorf("%s is too large for a time in seconds; if the time is in milliseconds, divide it by 1000", cell)
	default:
		if s, err = number(cell, 0); err != nil {
			return 0, err
		}
	}
	if c.kind == "" {
		c.kind, c.first = kind, fmt.Sprintf("%q (column %q, line %d)", cell, column, line)
	}
	if c.kind != kind {
		return 0, fmt.Errorf("%q is %s, but %s is %s; use the same format for all times in the file", cell, kind, c.first, c.kind)
	}
	return s, nil
}

// dates are the accepted forms of a date. A space between date and time has already been replaced
// by T.
var dates = []struct {
	layout string
	kind   clockKind
}{
	{"2006-01-02T15:04:05", local}, {"2006-01-02T15:04:05Z07:00", zoned}, {"2006-01-02T15:04:05Z0700", zoned}, {"2006-01-02T15:04:05Z07", zoned},
	{"2006-01-02T15:04", local}, {"2006-01-02T15:04Z07:00", zoned},
}

func (c *clock) date(cell string) (clockKind, float64, error) {
	at := strings.TrimSuffix(cell, " UTC")
	if at != cell {
		at += "Z"
	}
	if len(at) > 10 && at[10] == ' ' {
		at = at[:10] + "T" + at[11:]
	}
	at = strings.ReplaceAll(at, " ", "") // space before an offset
	for _, d := range dates {
		if t, err := time.Parse(d.layout, at); err == nil {
			return d.kind, float64(t.UnixMicro()) / 1e6, nil
		}
	}
	return "", 0, fmt.Errorf("%q is not a time such as 2020-04-01 00:04:03, 2020-04-01T00:04:03+08:00, or seconds", cell)
}

// state is the outcome of a run.
type state uint8

const (
	unsaid state = iota
	waiting
	running
	ended
)

// states are the names in Slurm, in Alibaba's and Microsoft's traces, and in Kubernetes.
var states = map[string]state{
	"pending": waiting, "waiting": waiting, "configuring": waiting, "requeue_hold": waiting, "requeue_fed": waiting,
	"special_exit": waiting, "resv_del_hold": waiting, "power_up_node": waiting, "queued": waiting,
	"running": running, "completing": running, "suspended": running, "stopped": running,
	"signaling": running, "stage_out": running,
	"completed": ended, "cancelled": ended, "canceled": ended, "failed": ended, "timeout": ended, "out_of_memory": ended,
	"node_fail": ended, "boot_fail": ended, "launch_failed": ended, "reconfig_fail": ended, "deadline": ended, "preempted": ended, "requeued": ended, "resizing": ended,
	"revoked": ended, "terminated": ended, "succeeded": ended, "pass": ended, "killed": ended, "interrupted": ended,
}

// stateOf reads a state, also "CANCELLED by 1001".
func stateOf(cell string) (state, error) {
	if missing(cell) {
		return unsaid, nil
	}
	is := states[strings.ToLower(strings.Fields(cell)[0])]
	if is == unsaid {
		return unsaid, fmt.Errorf("%q is not a job state such as COMPLETED, FAILED, CANCELLED, RUNNING or PENDING", cell)
	}
	return is, nil
}
