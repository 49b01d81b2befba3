// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"testing"

	"github.com/hashicorp/nomad/api"
)

// As recorded from Nomad 1.10.5 and 1.11.3: only the latter says that a purged job is deleted.
func TestPurgedJobsAreForgotten(t *testing.T) {
	yes, no := true, false
	for _, c := range []struct {
		name, kind    string
		stop, deleted bool
		gone          bool
	}{
		{name: "registered", kind: "JobRegistered"},
		{name: "stopped", kind: "JobDeregistered", stop: true},
		{name: "purged, 1.10", kind: "JobDeregistered", gone: true},
		{name: "purged, 1.11", kind: "JobDeregistered", deleted: true, gone: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			id, namespace, stop := "x", "default", &no
			if c.stop {
				stop = &yes
			}
			e := Event{Topic: "Job", Type: c.kind}
			e.Payload.Job = &api.Job{ID: &id, Namespace: &namespace, Stop: stop}
			e.Payload.Deleted = c.deleted
			if got := e.purged(); got != c.gone {
				t.Errorf("purged = %v, want %v", got, c.gone)
			}
		})
	}
}
