// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package api

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// The elements of an array become one entry, at the place of the first, with the GPUs of all listed
// elements. A single element is not replaced, and neither are elements in another namespace.
func TestByArray(t *testing.T) {
	run := func(parent, id string, state State, position int) JobStatus {
		return JobStatus{Namespace: "default", Job: parent + "/" + id, Parent: parent, State: state, Position: position, GPUs: 2}
	}
	of := func(id string, r Runs) JobStatus {
		return JobStatus{Namespace: "default", Job: id, State: Template, Runs: &r}
	}
	all := []JobStatus{
		of("a", Runs{Running: 1, Waiting: 2, Complete: 7}), of("b", Runs{Waiting: 1}),
		run("a", "1", Running, 0), run("a", "2", Waiting, 1), {Namespace: "default", Job: "c", State: Waiting, Position: 2, GPUs: 4},
		run("a", "3", Waiting, 3), run("b", "1", Waiting, 4),
		{Namespace: "other", Job: "a/9", Parent: "a", State: Waiting, Position: 5, GPUs: 1},
	}
	said := func(js []JobStatus) (out []string) {
		for _, j := range js {
			text := j.Job
			if j.Runs != nil {
				text += " (" + j.Runs.String() + ")"
			}
			out = append(out, text+" "+string(j.State))
		}
		return out
	}
	waiting := slices.DeleteFunc(slices.Clone(all), func(j JobStatus) bool { return j.State != Waiting })
	for name, c := range map[string]struct {
		listed []JobStatus
		want   string
		gpus   int
	}{
		"waiting jobs": {waiting, "a (1 running, 2 waiting, 7 complete, of 10) waiting|c waiting|b/1 waiting|a/9 waiting", 4},
		"all":          {all, "a (1 running, 2 waiting, 7 complete, of 10) running|b (1 waiting, of 1) template|c waiting|b/1 waiting|a/9 waiting", 6},
	} {
		got := ByArray(c.listed, all)
		if text := strings.Join(said(got), "|"); text != c.want || got[0].GPUs != c.gpus {
			t.Errorf("%s: %s, %d GPUs, want %s, %d", name, text, got[0].GPUs, c.want, c.gpus)
		}
	}
	early, late := time.Unix(100, 0), time.Unix(200, 0)
	all[2].Submitted, all[3].Submitted, all[5].Submitted = late, early, late
	if got := ByArray(all, all); !got[0].Submitted.Equal(early) {
		t.Errorf("submitted %v, want the time of the first element, %v", got[0].Submitted, early)
	}
	all[2].EndFrom, all[2].EndTo = early, late // the others' ends are unknown
	if got := ByArray(all, all); !got[0].EndTo.IsZero() || !got[0].EndFrom.IsZero() {
		t.Errorf("ends %v to %v although the end of one element is unknown", got[0].EndFrom, got[0].EndTo)
	}
	all[2].EndFrom, all[2].EndTo, all[5].EndFrom, all[5].EndTo = time.Time{}, time.Time{}, early, late
	if got := ByArray(all, all); !got[0].EndTo.IsZero() || !got[0].EndFrom.IsZero() {
		t.Errorf("ends %v to %v although the end of the first element is unknown", got[0].EndFrom, got[0].EndTo)
	}
	if all[0].State != Template || all[2].Job != "a/1" {
		t.Error("ByArray changes its argument")
	}
}
