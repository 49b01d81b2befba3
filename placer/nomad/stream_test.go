// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

// The stream reads nodes from their own events and skips those that report an allocation on the
// node. It passes on an event that cannot be parsed, marked as unread. Text that is not JSON ends
// the stream.
func TestNodesOfEvents(t *testing.T) {
	for _, c := range []struct {
		name, event string
		want        string
		passed      bool
		fails       bool
		unread      bool
	}{
		{name: "registered", event: `{"Topic": "Node", "Type": "NodeRegistration", "Payload": {"Node": {"ID": "n"}}}`, want: "n"},
		{name: "drained", event: `{"Topic": "Node", "Type": "NodeDrain", "Payload": {"Node": {"ID": "n"}}}`, want: "n"},
		{name: "an allocation ended", event: `{"Topic": "Node", "Type": "AllocationUpdated", "Payload": {"Node": {"ID": "n"}}}`, passed: true},
		{name: "an allocation was made", event: `{"Topic": "Node", "Type": "PlanResult", "Payload": {"Node": {"ID": "n"}}}`, passed: true},
		{name: "an allocation itself", event: `{"Topic": "Allocation", "Type": "PlanResult", "Payload": {"Allocation": {"ID": "a"}}}`},
		{name: "no node", event: `{"Topic": "Node", "Type": "NodeDeregistration", "Payload": {}}`},
		{name: "unreadable", event: `{"Topic": "Node", "Type": "NodeEvent", "Payload": {"Node": {"ID": 7}}}`, unread: true},
		{name: "cut off", event: `{"Topic": "Node", "Type": "NodeEvent", "Payload": {"Node": {"ID": "n"`, fails: true},
		{name: "no JSON", event: "]}\n502 Bad Gateway", fails: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			body := io.NopCloser(strings.NewReader(`{"Index": 1, "Events": [` + c.event + "]}\n"))
			got, seen, unread := "", false, false
			err := (&Stream{body: body, cancel: func() {}}).Run(func(es []cluster.Event) error {
				seen, unread = true, es[0].Unread != nil
				if n := es[0].Payload.Node; n != nil {
					got = n.ID
				}
				return nil
			})
			if unread != c.unread || got != c.want || seen == (c.fails || c.passed) || errors.Is(err, io.EOF) == c.fails {
				t.Errorf("node %q, events passed on: %v, ended with %v; want node %q", got, seen, err, c.want)
			}
		})
	}
}

// wholeJob has the fields that every job in Nomad has.
const wholeJob = `{"ID": "j", "Name": "j", "Namespace": "default", "Type": "batch", "Priority": 50, "Version": 0, "ModifyIndex": 1, "JobModifyIndex": 1, "SubmitTime": 1}`

// Progress is an event that neither frees a GPU nor requests one. All other events need a reaction.
func TestProgress(t *testing.T) {
	for _, c := range []struct {
		name  string
		event string
		want  bool
	}{
		{"made", `{"Topic": "Allocation", "Type": "PlanResult", "Payload": {"Allocation": {"DesiredStatus": "run", "ClientStatus": "pending"}}}`, true},
		{"runs", `{"Topic": "Allocation", "Type": "AllocationUpdated", "Payload": {"Allocation": {"DesiredStatus": "run", "ClientStatus": "running"}}}`, true},
		{"complete", `{"Topic": "Allocation", "Type": "AllocationUpdated", "Payload": {"Allocation": {"DesiredStatus": "run", "ClientStatus": "complete"}}}`, false},
		{"failed", `{"Topic": "Allocation", "Type": "AllocationUpdated", "Payload": {"Allocation": {"DesiredStatus": "run", "ClientStatus": "failed"}}}`, false},
		{"is being stopped", `{"Topic": "Allocation", "Type": "PlanResult", "Payload": {"Allocation": {"DesiredStatus": "stop", "ClientStatus": "running"}}}`, false},
		{"job registered", `{"Topic": "Job", "Type": "JobRegistered", "Payload": {"Job": ` + wholeJob + `}}`, false},
		{"job stopped", `{"Topic": "Job", "Type": "JobDeregistered", "Payload": {"Job": ` + wholeJob + `}}`, false},
		{"job status", `{"Topic": "Job", "Type": "EvaluationUpdated", "Payload": {"Job": ` + wholeJob + `}}`, true},
		{"node", `{"Topic": "Node", "Type": "NodeDrain", "Payload": {"Node": {"ID": "n"}}}`, false},
	} {
		es, err := eventsIn([]byte(`{"Events": [` + c.event + `]}`))
		if err != nil || len(es) != 1 {
			t.Fatalf("%s: %v, %v", c.name, es, err)
		}
		if got := es[0].Progress(); got != c.want {
			t.Errorf("%s: progress %v, want %v", c.name, got, c.want)
		}
	}
}
