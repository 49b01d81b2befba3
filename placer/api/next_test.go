// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package api

import (
	"slices"
	"testing"
)

// The commands in the next steps can be typed as they are printed.
func TestNext(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		e       Explanation
		jobspec string
		want    []string
	}{
		"a failed gang": {e: Explanation{Namespace: "team", Job: "j", State: Failed,
			Failures: []Try{{Try: 1, Failure: Failure{Alloc: "11111111-old"}}, {Try: 2, Failure: Failure{Alloc: "22222222-last"}}}},
			want: []string{"Output of the last failed member: nomad alloc logs -stderr -namespace team 22222222", "Events of this member: nomad alloc status -namespace team 22222222"}},
		"a new version waits to be promoted": {e: Explanation{Namespace: "team", Job: "web", State: Running, Deployment: &Deployment{ID: "b5787e71-1111", Version: 3, Promotable: true, Promote: true}},
			want: []string{"To promote version 3: nomad deployment promote -namespace team b5787e71. To give up this version: nomad deployment fail -namespace team b5787e71"}},
		"a new version whose canaries are not healthy yet": {e: Explanation{Job: "web", State: Running, Deployment: &Deployment{ID: "b5787e71-1111", Version: 3, Promotable: true}},
			want: []string{"To promote version 3, once its canaries are healthy: nomad deployment promote b5787e71. To give up this version: nomad deployment fail b5787e71"}},
		"a parameterized job":         {e: Explanation{Job: "sweep", State: Template, StartRun: "nomad job dispatch sweep"}, want: []string{"To start a run: nomad job dispatch sweep"}},
		"a new version that does not": {e: Explanation{Job: "web", State: Running, Deployment: &Deployment{ID: "b5787e71-1111", Version: 3}}},
		"a failed deployment": {e: Explanation{Namespace: "team", Job: "web", State: Running, Deployment: &Deployment{ID: "b5787e71-1111", Version: 3, Status: "failed"}},
			want: []string{"The deployment of version 3 failed: change the job and run it, or go back to a version that ran: nomad job history -namespace team web, then nomad job revert"}},
		"a member that does not run yet": {e: Explanation{Namespace: "team", Job: "j", State: Running, Allocations: []Allocation{
			{ID: "11111111-runs", Status: "running"}, {ID: "22222222-pulls", Status: "pending"}, {ID: "33333333-too", Status: "pending"}}},
			want: []string{"To see what a pending member waits for: nomad alloc status -namespace team 22222222"}},
		"a change to try": {e: Explanation{Namespace: "team", Job: "my job", State: Waiting, Try: "count=2"},
			want: []string{"To try a change without making it: nomad-pal explain -what-if count=2 -namespace team 'my job'"}},
		"a change of a jobspec": {e: Explanation{Namespace: "team", Job: "j", State: Unschedulable, Try: "count=2"}, jobspec: "my job.hcl",
			want: []string{"To try a change without making it: nomad-pal explain -what-if count=2 'my job.hcl'"}},
	} {
		if got := c.e.Next(c.jobspec); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q\nwant %q", name, got, c.want)
		}
	}
}
