// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"strings"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/hostile"
)

// TestTenantSentences checks how a tenant's quota and share are described.
func TestTenantSentences(t *testing.T) {
	t.Parallel()
	limit := 12
	share := func(halfLife time.Duration) (c model.Config) {
		c.Queue.FairShare, c.Queue.HalfLife = true, halfLife
		return c
	}
	for _, c := range []struct {
		cfg  model.Config
		use  queue.TenantUse
		want string
	}{
		{model.Config{}, queue.TenantUse{Tenant: "a", GPUs: 4}, ""},
		{model.Config{}, queue.TenantUse{Tenant: "a", GPUs: 4, Quota: 8}, "tenant a holds 4 GPUs of its quota of 8"},
		{model.Config{}, queue.TenantUse{Tenant: "a", GPUs: 0.75, Quota: 8}, "tenant a holds 0.75 GPUs of its quota of 8"},
		{model.Config{}, queue.TenantUse{Tenant: "a", GPUs: 8.5, Quota: 8}, "tenant a holds 8.5 GPUs, 0.5 of them borrowed beyond its quota of 8"},
		{model.Config{}, queue.TenantUse{Tenant: "a", GPUs: 4, Limit: &limit}, "tenant a holds 4 GPUs, 4 of them borrowed beyond its quota of 0, and may hold at most 12"},
		{model.Config{}, queue.TenantUse{Tenant: "a", GPUs: 9, Quota: 8, Limit: &limit}, "tenant a holds 9 GPUs, 1 of them borrowed beyond its quota of 8, and may hold at most 12"},
		{model.Config{}, queue.TenantUse{Tenant: "a", MaxGPUsPerUser: 8, MaxJobsPerUser: 2, Users: []queue.UserUse{{User: "ada", GPUs: 3, Jobs: 1}}},
			"user ada has 3 of at most 8 GPUs and 1 of at most 2 running jobs in tenant a"},
		{model.Config{}, queue.TenantUse{Tenant: "a", MaxJobsPerUser: 2}, "user ada has 0 of at most 2 running jobs in tenant a"},
		{share(0), queue.TenantUse{Tenant: "a", GPUs: 4, Weight: 2}, "fair share: tenant a has 4 GPUs in use, and a weight of 2; "},
		{share(24 * time.Hour), queue.TenantUse{Tenant: "a", GPUs: 4, GPUHours: 0.123456}, "fair share: tenant a has used 0.123 GPU hours (GPU hours used a day ago count half), and has 4 GPUs in use; "},
		{share(7 * 24 * time.Hour), queue.TenantUse{Tenant: "a", GPUHours: 1234.5, Times: 2.1}, "fair share: tenant a has used 1234 GPU hours, 2.1 times its share (GPU hours used 7 days ago count half), and has 0 GPUs in use; "},
		{share(36 * time.Hour), queue.TenantUse{Tenant: "a", GPUHours: 100}, "fair share: tenant a has used 100 GPU hours (GPU hours used 36h ago count half), and has 0 GPUs in use; "},
	} {
		got := quotaSentence(c.use) + userSentence(c.use, "ada") + shareSentence(c.cfg, c.use)
		if c.want == "" && got != "" || !strings.HasPrefix(got, c.want) {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

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
