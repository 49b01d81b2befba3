// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// A request for the decision on a gang that has just been placed waits for the gang's record, but
// only if the placer is about to write the record.
func TestRecordToCome(t *testing.T) {
	t.Parallel()
	began := time.Now()
	old, last := &gang.Record{JobModifyIndex: 10}, &gang.Record{JobModifyIndex: 20}
	pinned := rewrite.Pins{Groups: []rewrite.GroupPins{{}}}
	for _, c := range []struct {
		name   string
		record *gang.Record
		phase  palapi.State
		pins   rewrite.Pins
		placed time.Duration // before the placer started
		waited time.Duration
		want   bool
	}{
		{name: "moved a moment ago", record: old, phase: palapi.Running, pins: pinned, want: true},
		{name: "placed a moment ago", phase: palapi.Running, pins: pinned, want: true},
		{name: "ended at once", phase: palapi.Ended, pins: pinned, want: true},
		{name: "there", record: last, phase: palapi.Running, pins: pinned},
		{name: "its members are not there", record: old, phase: palapi.Starting, pins: pinned},
		{name: "not ours to place", phase: palapi.Native},
		{name: "no pins", phase: palapi.Running},
		{name: "placed long ago", record: old, phase: palapi.Running, pins: pinned, placed: 2 * recordComes},
		{name: "never written", phase: palapi.Running, pins: pinned, waited: 2 * recordComes},
		{name: "never written, by a clock that is ahead", phase: palapi.Running, pins: pinned, placed: -time.Hour, waited: 2 * recordComes},
		{name: "by a clock that is ahead", phase: palapi.Running, pins: pinned, placed: -time.Hour, want: true},
	} {
		job, index, at := &api.Job{}, uint64(20), began.Add(-c.placed).UnixNano()
		job.JobModifyIndex, job.SubmitTime = &index, &at
		st := gang.Observed{Job: job, Nomad: c.phase, Pins: c.pins}
		if got := recordToCome(c.record, st, began, began.Add(c.waited)); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// A job may be named by the beginning of its ID if that is unique.
func TestFindJob(t *testing.T) {
	t.Parallel()
	known := []cluster.JobKey{{Namespace: "a", ID: "train"}, {Namespace: "a", ID: "train-2"}, {Namespace: "b", ID: "serve"}}
	for _, c := range []struct {
		namespace, id string
		want          cluster.JobKey // zero: not unique
	}{
		{"a", "train", known[0]},
		{"a", "train-", known[1]},
		{"a", "tr", cluster.JobKey{}},
		{"a", "se", cluster.JobKey{Namespace: "a", ID: "se"}},
		{"*", "se", known[2]},
		{"*", "none", cluster.JobKey{Namespace: "default", ID: "none"}},
	} {
		if got, err := FindJob(known, c.namespace, c.id); got != c.want || (err == nil) != (c.want.ID != "") {
			t.Errorf("%s in %s: %v, %v, want %v", c.id, c.namespace, got, err, c.want)
		}
	}
	if _, err := FindJob(known, "a", "tr"); err == nil || err.Error() != `job prefix "tr" is not unique: a/train, a/train-2` {
		t.Error(err)
	}
}
