// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// TestPlacerCanaries: services whose new versions start beside the old ones.
func TestPlacerCanaries(t *testing.T) {
	t.Parallel()
	b := newBed(t, [][]float64{{1, 1, 1, 1}, {1, 1, 1, 1}}, cluster.Options{})
	b.tell([]scene{
		{"promoted by hand", "", testCanaryByHand},
		{"no room for the canary", "", testCanaryWithoutRoom},
	})
	b.tellLong([]scene{
		{"promoted by itself", "", testCanaryAuto},
		{"fails, and Nomad reverts it", "", testCanaryReverted},
	})
}

// canaried is a service whose updates start one canary.
func canaried(id string, count, gpus int, auto bool) job {
	j := gang(id, count, gpus)
	j.kind = "service"
	j.groups[0].extra = fmt.Sprintf("update {\n canary = 1\n auto_promote = %v\n max_parallel = 1\n min_healthy_time = \"100ms\"\n healthy_deadline = \"30s\"\n progress_deadline = \"1m\"\n}\n", auto)
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
	j := canaried("web", 2, 1, false)
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

// auto_promote: the same without an operator.
func testCanaryAuto(t *testing.T, b *bed) {
	j := canaried("auto", 3, 1, true)
	b.runs(j, 3)
	b.untilDeployed("auto")
	j.seconds = 4000
	b.run(j.hcl())
	b.untilReplaced("auto", 3, "4000")
	b.pinned("auto")
	b.untilState("auto", "running")
	b.purge("auto")
}

// auto_revert: Nomad puts an old version back, with its old submit time. The placer
// must not count that as a lost update, although the failing version was submitted
// just before.
func testCanaryReverted(t *testing.T, b *bed) {
	j := canaried("back", 2, 1, false)
	j.groups[0].extra = strings.Replace(j.groups[0].extra, "{\n", "{\n auto_revert = true\n", 1)
	b.runs(j, 2)
	b.untilDeployed("back")
	before := b.members("back")
	j.seconds = 4000
	b.run(j.hcl())
	b.untilCanary("back", 2)
	d, _, err := b.API().Jobs().LatestDeployment("back", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.API().Deployments().Fail(d.ID, nil); err != nil {
		t.Fatal(err)
	}
	b.untilReplaced("back", 2, "3600")
	version := *b.info("back").Version
	b.holds("the version that Nomad put back stays", func() string {
		if now := *b.info("back").Version; now != version {
			return fmt.Sprintf("version %d, then %d", version, now)
		}
		return b.gate("back")
	})
	same(t, "old members that run on", 2, kept(before, b.members("back")))
	b.purge("back")
}

// With all GPUs in use, the canary waits and the old members keep running. It
// starts when a GPU becomes free.
func testCanaryWithoutRoom(t *testing.T, b *bed) {
	j := canaried("tight", 2, 2, true)
	b.runs(j, 4)
	b.untilDeployed("tight")
	b.runs(gang("filler", 2, 2), 4)
	before := b.members("tight")
	j.seconds = 4000
	b.run(j.hcl())
	b.holds("the old members run on", func() string {
		if n := kept(before, b.members("tight")); n != 2 {
			return fmt.Sprintf("%d of 2 keep running", n)
		}
		return ""
	})
	b.once("tight", "filler")
	b.until("explain says that the canary lacks room", func() string {
		if e := b.explain("tight"); e.State != "running" || !strings.Contains(e.Reason, "2 of 2 members run; Nomad has no room for group \"workers\": ") {
			return fmt.Sprintf("%s: %s", e.State, e.Reason)
		}
		return ""
	})
	b.purge("filler")
	b.untilReplaced("tight", 2, "4000")
	b.until("explain no longer mentions canaries", func() string {
		if e := b.explain("tight"); e.Reason != "2 of 2 members run" {
			return e.Reason
		}
		return ""
	})
	b.purge("tight")
}
