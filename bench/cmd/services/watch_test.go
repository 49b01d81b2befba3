// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
)

// moment is the state at one look. Each letter of allocs is an allocation; a capital letter is
// healthy.
type moment struct {
	at     time.Duration
	allocs string
	status string
}

// A replica of a lost node is gone at once. A replica of a new version counts once it is healthy. A
// disturbance is over when the service has been well for a while.
func TestWatch(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		name    string
		watch   watch
		looks   []moment
		want    event
		wantEnd bool
	}{
		{"nothing happens", watch{}, []moment{{s, "abc", "successful"}, {6 * s, "abc", "successful"}}, event{Fewest: 3, TookS: 1}, true},
		{"a node is lost", watch{gone: "a"}, []moment{{s, "abc", "successful"}, {3 * s, "bcd", "successful"}, {8 * s, "bcd", "successful"}},
			event{Fewest: 2, ShortS: 1, TookS: 3}, true},
		{"a second dip counts", watch{}, []moment{{s, "abc", "successful"}, {2 * s, "b", "successful"}, {4 * s, "abc", "successful"}, {5 * s, "abc", "successful"}},
			event{Fewest: 1, ShortS: 1, TookS: 4}, false},
		{"an update", watch{renews: true, before: map[string]bool{"a": true, "b": true, "c": true}, healthy: map[string]bool{"a": true, "b": true, "c": true}},
			[]moment{{s, "abcd", "running"}, {2 * s, "bcd", "running"}, {4 * s, "bcD", "running"}, {5 * s, "DEF", "running"}, {6 * s, "DEF", "successful"}, {11 * s, "DEF", "successful"}},
			event{Fewest: 2, ShortS: 1, TookS: 6}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, start, end := c.watch, time.Unix(0, 0), false
			w.begin(start)
			for _, m := range c.looks {
				end = w.look(start.Add(m.at), m.live(), &api.Deployment{Status: m.status})
			}
			if w.event != c.want || end != c.wantEnd {
				t.Errorf("%+v, end %v; want %+v, %v", w.event, end, c.want, c.wantEnd)
			}
		})
	}
}

// live returns the moment's allocations. Allocation x is on node x.
func (m moment) live() (as []*api.AllocationListStub) {
	for _, r := range m.allocs {
		healthy := r < 'a'
		if healthy {
			r += 'a' - 'A'
		}
		as = append(as, &api.AllocationListStub{ID: string(r), NodeID: string(r), ClientStatus: "running", DeploymentStatus: &api.AllocDeploymentStatus{Healthy: &healthy}})
	}
	return as
}
