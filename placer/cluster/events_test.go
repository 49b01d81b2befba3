// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"testing"

	"github.com/hashicorp/nomad/api"
)

// The events are recorded from Nomad 1.10.5 and 1.11.3. Only 1.11.3 marks a purged job as deleted.
func TestPurgedJobsAreForgotten(t *testing.T) {
	for _, c := range []struct {
		name, kind    string
		index, modify uint64
		stop, deleted bool
		gone          bool
	}{
		{name: "registered", kind: "JobRegistered", index: 11, modify: 11},
		{name: "stopped", kind: "JobDeregistered", index: 14, modify: 14, stop: true},
		{name: "evaluated", kind: "EvaluationUpdated", index: 15, modify: 15, stop: true},
		{name: "purged after a stop, 1.10", kind: "JobDeregistered", index: 16, modify: 15, stop: true, gone: true},
		{name: "purged after a stop, 1.11", kind: "JobDeregistered", index: 16, modify: 15, stop: true, deleted: true, gone: true},
		{name: "purged, 1.10", kind: "JobDeregistered", index: 21, modify: 18, gone: true},
		{name: "purged, 1.11", kind: "JobDeregistered", index: 21, modify: 18, deleted: true, gone: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			id, namespace := "x", "default"
			e := Event{Topic: "Job", Type: c.kind, Index: c.index}
			e.Payload.Job = &api.Job{ID: &id, Namespace: &namespace, Stop: &c.stop, ModifyIndex: &c.modify}
			e.Payload.Deleted = c.deleted
			if got := e.Purged(); got != c.gone {
				t.Errorf("purged = %v, want %v", got, c.gone)
			}
		})
	}
}
