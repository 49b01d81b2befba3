// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"time"

	"github.com/hashicorp/nomad/api"
)

// watch counts the replicas of a service again and again.
type watch struct {
	before  map[string]bool // allocations that ran at the start
	healthy map[string]bool // allocations that have ever been healthy, including those at the start
	renews  bool            // an update replaces all allocations, which count once they are healthy
	gone    string          // id of the lost node

	start, last, well time.Time
	event             event
}

func (w *watch) begin(now time.Time) {
	w.start, w.last, w.event = now, now, event{Fewest: replicas}
	if w.healthy == nil {
		w.healthy = map[string]bool{}
	}
}

// look counts the replicas among the live allocations, checks the latest deployment, and reports
// whether all replicas have run for a while.
func (w *watch) look(now time.Time, live []*api.AllocationListStub, d *api.Deployment) bool {
	count, fresh := 0, 0
	for _, a := range live {
		if a.DeploymentStatus != nil && a.DeploymentStatus.Healthy != nil && *a.DeploymentStatus.Healthy {
			w.healthy[a.ID] = true
		}
		if a.ClientStatus != api.AllocClientStatusRunning || a.NodeID == w.gone || w.renews && !w.healthy[a.ID] {
			continue
		}
		count++
		if !w.before[a.ID] {
			fresh++
		}
	}
	w.event.Fewest = min(w.event.Fewest, count)
	if count < replicas {
		w.event.ShortS += now.Sub(w.last).Seconds()
	}
	w.last = now
	if count != replicas || w.renews && fresh != replicas || d == nil || d.Status != api.DeploymentStatusSuccessful {
		w.well = time.Time{}
		return false
	}
	if w.well.IsZero() {
		w.well = now
		w.event.TookS = now.Sub(w.start).Seconds()
	}
	return now.Sub(w.well) >= quiet
}
