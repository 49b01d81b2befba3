// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"strings"
	"testing"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/hostile"
)

// TestResubmittedSentences checks what is said about the members of a running job whose file is run
// again.
func TestResubmittedSentences(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind   string
		count  int
		placed bool
		want   string
		state  palapi.State
	}{
		"the same":               {"batch", 2, true, "would keep them", palapi.Running},
		"larger":                 {"batch", 3, true, "nomad-pal would stop the whole job and start it again", palapi.Starting},
		"a larger service":       {"service", 3, true, "Nomad would start, stop or replace members as the update block says", palapi.Running},
		"too large":              {"batch", 3, false, "would keep running unchanged, because the new version does not fit: no room", palapi.Running},
		"a service is too large": {"service", 3, false, "Nomad would start, stop or replace members as the update block says", palapi.Running},
	} {
		was, now := hostile.Plain("j", 2, 1, 1), hostile.Plain("j", c.count, 1, 1)
		was.Type, now.Type = &c.kind, &c.kind
		st := gang.Observed{Job: was, Members: []*cluster.Alloc{{GPUs: []string{"a"}}, {GPUs: []string{"b"}}}}
		e := &draft{Explanation: palapi.Explanation{Obstacles: []palapi.Obstacle{{}}, Decision: &pal.Decision{}}}
		e.resubmitted(st, now, gang.SameRequests(was, now), gang.Room{Fits: c.placed, Reason: reason.Unread("no room")})
		if !strings.HasPrefix(e.Reason.String(), "runs on 2 GPUs") || !strings.Contains(e.Reason.String(), c.want) || e.State != c.state || e.Obstacles != nil {
			t.Errorf("%s: %s, %s", name, e.State, e.Reason.String())
		}
		if st.Members = st.Members[:1]; c.want == "would keep them" {
			e.resubmitted(st, now, true, gang.Room{})
			if !strings.HasPrefix(e.Reason.String(), "runs on 1 GPU and would keep it;") {
				t.Errorf("one GPU: %s", e.Reason.String())
			}
		}
	}
}
