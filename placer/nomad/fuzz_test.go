// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"testing"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/cluster/clustertest"
	"github.com/nomad-pal/nomad-pal/placer/ledger"
)

// Whatever the stream sends is applied, skipped or an error, never a panic.
func FuzzEvents(f *testing.F) {
	for _, seed := range []string{
		`{}`,
		`{"Index": 7, "Events": [{"Topic": "Node", "Type": "NodeRegistration", "Key": "n", "Index": 7, "Payload": {"Node": {"ID": "n", "NodeResources": {"Devices": [{"Vendor": "nvidia", "Type": "gpu", "Name": "H200", "Instances": [{"ID": "G"}, null]}, null]}}}}]}`,
		`{"Index": 8, "Events": [{"Topic": "Node", "Type": "NodeDeregistration", "Key": "n", "Index": 8}]}`,
		`{"Index": 9, "Events": [{"Topic": "Job", "Type": "JobRegistered", "Index": 9, "Payload": {"Job": {"ID": "j", "Namespace": "default", "Type": "batch", "Version": 0, "ModifyIndex": 9, "JobModifyIndex": 9, "SubmitTime": 1, "TaskGroups": [{"Name": "g", "Count": 1, "Tasks": [{"Name": "t", "Resources": {"Devices": [{"Name": "gpu", "Count": 1}]}}]}]}}}]}`,
		`{"Index": 9, "Events": [{"Topic": "Job", "Type": "JobDeregistered", "Index": 9, "Payload": {"Deleted": true, "Job": {"ID": "j", "Namespace": "default"}}}]}`,
		`{"Index": 9, "Events": [{"Topic": "Job", "Type": "JobRegistered", "Index": 9, "Payload": {"Job": {"ID": "j", "TaskGroups": [null]}}}, null, 3]}`,
		`{"Index": 9, "Events": [{"Topic": "Allocation", "Type": "AllocationUpdated", "Index": 9, "Payload": {"Allocation": {"ID": "a", "JobID": "j", "Namespace": "default", "NodeID": "n", "ClientStatus": "failed", "TaskStates": {"t": null, "u": {"Events": [null]}}, "AllocatedResources": {"Tasks": {"t": null, "u": {"Devices": [null, {"Vendor": "nvidia", "Type": "gpu", "DeviceIDs": ["G"]}]}}}}}}]}`,
		`{"Events": {"a": 1}}`, `[]`, `{"Events": [`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		es, err := eventsIn(line)
		if err != nil {
			return
		}
		s := cluster.NewState()
		s.PutNode(clustertest.Node("good", "ready", 2, "G"))
		for _, e := range es {
			e.Progress()
			s.Apply(e)
		}
		if _, err := ledger.New(s, ledger.Options{Locality: pal.TwoTier(1.7)}); err != nil {
			t.Fatal(err)
		}
		s.Successes()
		s.Failed()
		for _, a := range s.Allocs {
			for _, task := range a.Tasks {
				for _, e := range task.Events {
					_ = e.Type
				}
			}
		}
	})
}
