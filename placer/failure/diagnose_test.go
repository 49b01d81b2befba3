// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package failure

import (
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

// A failed allocation lost no negative time, although the clocks of two Nomad servers differ.
func TestNothingLostBeforeItBegan(t *testing.T) {
	a := &cluster.Alloc{GPUs: []string{"g1"}, CreateTime: int64(2 * time.Second), ModifyTime: int64(time.Second)}
	if f := Diagnose(a, a.GPUs, "node", nil); f.GPUHours != 0 {
		t.Errorf("%v GPU hours", f.GPUHours)
	}
}

func TestDiagnose(t *testing.T) {
	ended := func(details map[string]string) map[string]*api.TaskState {
		return map[string]*api.TaskState{"t": {Events: []*api.TaskEvent{
			{Type: api.TaskStarted}, {Type: api.TaskTerminated, Details: details},
		}}}
	}
	for _, c := range []struct {
		name      string
		alloc     cluster.Alloc
		unhealthy map[string]string
		cause     palapi.Cause
		reason    string
	}{
		{"exit code", cluster.Alloc{Client: "failed", Tasks: ended(map[string]string{"exit_code": "3"})}, nil, palapi.CauseUser, `task "t" ended with exit code 3`},
		{"out of memory", cluster.Alloc{Client: "failed", Tasks: ended(map[string]string{"exit_code": "137", "oom_killed": "true"})}, nil, palapi.CauseUser, `task "t" ran out of memory`},
		{"node", cluster.Alloc{Client: "lost", Tasks: ended(map[string]string{"exit_code": "3"})}, nil, palapi.CauseInfrastructure, NodeDown},
		{
			"unhealthy GPU", cluster.Alloc{Client: "failed", Tasks: ended(map[string]string{"exit_code": "3"})}, map[string]string{"g1": "xid:79"},
			palapi.CauseInfrastructure, "GPU g1 is unhealthy: xid:79",
		},
		{"signal", cluster.Alloc{Client: "failed", Tasks: ended(map[string]string{"exit_code": "137", "signal": "9"})}, nil, palapi.CauseUser, `task "t" ended with exit code 137 by signal 9 (killed)`},
		{"another GPU is unhealthy", cluster.Alloc{Client: "failed", Tasks: ended(map[string]string{"exit_code": "3"})}, map[string]string{"g2": "xid:79"}, palapi.CauseUser, `task "t" ended with exit code 3`},
		{
			"driver", cluster.Alloc{Client: "failed", Tasks: map[string]*api.TaskState{"t": {Events: []*api.TaskEvent{
				{Type: api.TaskDriverFailure, DisplayMessage: "no docker"},
			}}}}, nil, palapi.CauseInfrastructure, `task "t": Driver Failure: no docker`,
		},
		{
			"environment too large", cluster.Alloc{Client: "failed", Tasks: map[string]*api.TaskState{"t": {Events: []*api.TaskEvent{
				{Type: api.TaskDriverFailure, DisplayMessage: "fork/exec /bin/sh: argument list too long"},
			}}}}, nil, palapi.CauseUser, `task "t": its environment, which includes the job's meta, is too large for Linux: fork/exec /bin/sh: argument list too long`,
		},
		{
			"device could not be reserved", cluster.Alloc{Client: "failed", Tasks: map[string]*api.TaskState{"t": {Events: []*api.TaskEvent{
				{Type: "Task hook failed", Message: "devices: failed to reserve device nvidia/gpu/H200: unhealthy device IDs: g1 (xid:79)"},
				{Type: api.TaskNotRestarting, DisplayMessage: "Error was unrecoverable"},
			}}}}, nil, palapi.CauseInfrastructure, `task "t": devices: failed to reserve device nvidia/gpu/H200: unhealthy device IDs: g1 (xid:79)`,
		},
		{
			"another hook", cluster.Alloc{Client: "failed", Tasks: map[string]*api.TaskState{"t": {Events: []*api.TaskEvent{
				{Type: "Task hook failed", Message: "logmon: no g1"},
			}}}}, nil, palapi.CauseInfrastructure, `task "t": logmon: no g1`,
		},
		{
			"the last event counts", cluster.Alloc{Client: "failed", Tasks: map[string]*api.TaskState{"t": {Events: []*api.TaskEvent{
				{Type: api.TaskTerminated, Details: map[string]string{"exit_code": "3"}}, {Type: api.TaskRestarting},
				{Type: api.TaskDriverFailure, DisplayMessage: "no docker"},
			}}}}, nil, palapi.CauseInfrastructure, `task "t": Driver Failure: no docker`,
		},
		{
			"killed with another task", cluster.Alloc{Client: "failed", Tasks: map[string]*api.TaskState{
				"a": {Events: []*api.TaskEvent{{Type: api.TaskTerminated, Details: map[string]string{"exit_code": "143"}}}},
				"t": {Failed: true, Events: []*api.TaskEvent{{Type: api.TaskDriverFailure, DisplayMessage: "no docker"}}},
			}}, nil, palapi.CauseInfrastructure, `task "t": Driver Failure: no docker`,
		},
		{
			"ended because it was killed", cluster.Alloc{Client: "failed", Tasks: map[string]*api.TaskState{"t": {Events: []*api.TaskEvent{
				{Type: api.TaskStarted}, {Type: api.TaskKilling}, {Type: api.TaskTerminated, Details: map[string]string{"exit_code": "143"}},
			}}}}, nil, palapi.CauseUnknown, "it was being stopped",
		},
		{
			"ended well, and not to be started again", cluster.Alloc{Client: "failed", Tasks: map[string]*api.TaskState{
				"a": {}, "t": {Failed: true, Events: []*api.TaskEvent{
					{Type: api.TaskTerminated, Details: map[string]string{"exit_code": "0"}}, {Type: api.TaskNotRestarting, DisplayMessage: "Policy allows no restarts"},
				}},
			}}, nil, palapi.CauseUnknown, `task "t" ended with exit code 0, and is not started again: Policy allows no restarts`,
		},
		{"nothing known", cluster.Alloc{Client: "failed"}, nil, palapi.CauseUnknown, "no cause is known"},
	} {
		c.alloc.GPUs = []string{"g1"}
		c.alloc.CreateTime, c.alloc.ModifyTime = 0, int64(90*time.Minute)
		f := Diagnose(&c.alloc, c.alloc.GPUs, "node", c.unhealthy)
		if f.Cause != c.cause || f.Reason != c.reason || f.GPUHours != 1.5 {
			t.Errorf("%s: %s: %s, %v GPU hours", c.name, f.Cause, f.Reason, f.GPUHours)
		}
	}
}
