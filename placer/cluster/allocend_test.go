// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
)

// An allocation ended when its last task did, if its client reports that. After a crash of the
// machine, the events show only the start.
func TestEndByEvents(t *testing.T) {
	at := func(hours float64) time.Time { return time.Unix(1e9, 0).Add(time.Duration(hours * float64(time.Hour))) }
	began, heard := at(0), at(8)
	task := func(types ...string) *api.TaskState { // one event per hour
		s := &api.TaskState{State: "dead"}
		for i, kind := range types {
			s.Events = append(s.Events, &api.TaskEvent{Type: kind, Time: at(float64(i + 1)).UnixNano()})
		}
		return s
	}
	for name, c := range map[string]struct {
		want   time.Time
		client string
		tasks  []*api.TaskState
	}{
		"ended by itself":                   {at(3), "complete", []*api.TaskState{task(api.TaskReceived, api.TaskStarted, api.TaskTerminated)}},
		"killed":                            {at(4), "complete", []*api.TaskState{task(api.TaskStarted, api.TaskKilling, api.TaskTerminated, api.TaskKilled)}},
		"failed":                            {at(3), "failed", []*api.TaskState{task(api.TaskStarted, api.TaskTerminated, api.TaskNotRestarting)}},
		"found unhealthy afterwards":        {at(3), "failed", []*api.TaskState{task(api.TaskStarted, api.TaskTerminated, api.TaskNotRestarting, "Alloc Unhealthy")}},
		"never started":                     {at(2), "failed", []*api.TaskState{task(api.TaskReceived, api.TaskDriverFailure)}},
		"crashed with its machine":          {heard, "complete", []*api.TaskState{task(api.TaskReceived, api.TaskStarted)}},
		"crashed, and was to be killed":     {heard, "complete", []*api.TaskState{task(api.TaskStarted, "Failed Restoring Task", api.TaskKilling)}},
		"crashed after it was restarted":    {heard, "complete", []*api.TaskState{task(api.TaskStarted, api.TaskTerminated, api.TaskRestarting, api.TaskStarted)}},
		"stopped before it was restarted":   {heard, "complete", []*api.TaskState{task(api.TaskStarted, api.TaskTerminated, api.TaskRestarting)}},
		"of two tasks, one after the other": {at(3), "complete", []*api.TaskState{task(api.TaskStarted, api.TaskTerminated), task(api.TaskReceived, api.TaskStarted, api.TaskTerminated)}},
		"of two tasks, one shows no end":    {heard, "complete", []*api.TaskState{task(api.TaskStarted, api.TaskTerminated), task(api.TaskStarted)}},
		"of two tasks, one was not needed":  {at(2), "complete", []*api.TaskState{task(api.TaskStarted, api.TaskTerminated), task(api.TaskReceived)}},
		"lost":                              {heard, "lost", []*api.TaskState{task(api.TaskStarted, api.TaskTerminated)}},
		"without tasks":                     {heard, "complete", nil},
	} {
		a := &Alloc{Client: c.client, CreateTime: began.UnixNano(), ModifyTime: heard.UnixNano(), Tasks: map[string]*api.TaskState{}}
		for i, s := range c.tasks {
			a.Tasks[string(rune('a'+i))] = s
		}
		if got := a.End(); !got.Equal(c.want) {
			t.Errorf("%s: ended %v, want %v", name, got, c.want)
		}
	}
}
