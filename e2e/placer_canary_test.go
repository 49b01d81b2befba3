// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// canaried is a service whose updates start one canary.
func canaried(id string, count, gpus int) job {
	j := gang(id, count, gpus)
	j.kind = "service"
	j.groups[0].extra = "update {\n canary = 1\n max_parallel = 1\n min_healthy_time = \"100ms\"\n healthy_deadline = \"30s\"\n progress_deadline = \"1m\"\n}\n"
	return j
}

// once checks that no GPU is given twice, within the job or across jobs.
func (b *bed) once(ids ...string) []string {
	b.t.Helper()
	var all []string
	for _, id := range ids {
		all = append(all, b.gpusOf(id)...)
	}
	slices.Sort(all)
	if n := len(slices.Compact(slices.Clone(all))); n != len(all) {
		b.t.Fatalf("a GPU is given twice: %v", all)
	}
	return all
}

// untilCanary waits until a healthy canary runs beside the n old members, and
// returns all members.
func (b *bed) untilCanary(id string, n int) []member {
	b.t.Helper()
	var ms []member
	b.until("a canary beside the old members", func() string {
		ms = b.members(id)
		if len(ms) != n+1 {
			return fmt.Sprintf("%d members", len(ms))
		}
		d, _, err := b.API().Jobs().LatestDeployment(id, nil)
		if err != nil || d == nil {
			return fmt.Sprint("no deployment: ", err)
		}
		if s := d.TaskGroups["workers"]; s == nil || len(s.PlacedCanaries) != 1 || s.HealthyAllocs != 1 {
			return fmt.Sprintf("%s: %s", d.Status, d.StatusDescription)
		}
		return ""
	})
	b.once(id)
	b.pinned(id)
	return ms
}

// pinned checks that the job has the placer's pins and no gate.
func (b *bed) pinned(id string) {
	b.t.Helper()
	info := b.info(id)
	if pins, _ := rewrite.Pinned(info); len(pins.Groups) != len(info.TaskGroups) {
		b.t.Errorf("%s has pins for %d of %d groups", id, len(pins.Groups), len(info.TaskGroups))
	}
	if rewrite.Gated(info) {
		b.t.Errorf("%s has the gate: %v", id, info.Constraints)
	}
}

func kept(before, after []member) int {
	n := 0
	for _, m := range before {
		if slices.ContainsFunc(after, func(a member) bool { return a.ID == m.ID }) {
			n++
		}
	}
	return n
}

// A new version with a gate: the canary runs beside the old members, and
// promotion replaces those. nomad job revert brings the old version back in the
// same way.
func testCanaryByHand(t *testing.T, b *bed) {
	j := canaried("web", 2, 1)
	b.runs(j, 2)
	b.untilDeployed("web")
	before := b.members("web")
	j.seconds = 4000
	b.run(j.hcl())
	ms := b.untilCanary("web", 2)
	same(t, "old members that run on", 2, kept(before, ms))
	b.holds("nobody is promoted by itself", func() string {
		if got := b.members("web"); len(got) != 3 {
			return fmt.Sprint(got)
		}
		return b.gate("web")
	})
	b.promote("web")
	b.untilReplaced("web", 2, "4000")
	now := b.members("web")
	same(t, "the canary stays", 1, kept(ms, now))
	b.revertTo("web", "3600")
	ms = b.untilCanary("web", 2)
	same(t, "members that run on while reverting", 2, kept(now, ms))
	b.promote("web")
	b.untilReplaced("web", 2, "3600")
	b.purge("web")
}

// revertTo reverts the job to its newest pinned version with this sleep.
func (b *bed) revertTo(id, seconds string) {
	b.t.Helper()
	versions, _, _, err := b.API().Jobs().Versions(id, false, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, v := range versions {
		if !rewrite.Gated(v) && fmt.Sprint(v.TaskGroups[0].Tasks[0].Config["args"]) == "[-c exec sleep "+seconds+"]" {
			if _, _, err := b.API().Jobs().Revert(id, *v.Version, nil, nil, "", ""); err != nil {
				b.t.Fatal(err)
			}
			return
		}
	}
	b.t.Fatalf("no version of %s has sleep %s", id, seconds)
}

// promote runs the command that explain names for a job with waiting canaries.
func (b *bed) promote(id string) {
	b.t.Helper()
	b.types(id, "nomad deployment promote")
}

// untilVersion waits until n members run, all with this sleep.
func (b *bed) untilVersion(id string, n int, seconds string) {
	b.t.Helper()
	b.until(fmt.Sprintf("%d members of %s with sleep %s", n, id, seconds), func() string {
		ms := b.members(id)
		if len(ms) != n {
			return fmt.Sprintf("%d members", len(ms))
		}
		for _, m := range ms {
			a, _, err := b.API().Allocations().Info(m.ID, nil)
			if err != nil {
				return err.Error()
			}
			if args := fmt.Sprint(a.Job.TaskGroups[0].Tasks[0].Config["args"]); args != "[-c exec sleep "+seconds+"]" {
				return "it runs with " + args
			}
		}
		return ""
	})
}

// untilReplaced is like untilVersion, but also waits for the end of the deployment. No
// GPU is given twice.
func (b *bed) untilReplaced(id string, n int, seconds string) {
	b.t.Helper()
	b.untilVersion(id, n, seconds)
	b.untilDeployed(id)
	b.once(id)
}
