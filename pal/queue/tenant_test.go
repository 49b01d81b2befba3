// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/reason"
)

// readTenants reads lines "name [quota=n] [limit=n] [weight=n] [ns=a,b]".
func readTenants(input string, o *Options) error {
	for _, line := range strings.Split(strings.TrimSpace(input), "\n") {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		var t Tenant
		for _, kv := range f[1:] {
			k, v, _ := strings.Cut(kv, "=")
			var n int
			_, _ = fmt.Sscan(v, &n)
			switch k {
			case "quota":
				t.Quota = n
			case "limit":
				t.BorrowingLimit = &n
			case "user-gpus":
				t.MaxGPUsPerUser = n
			case "user-jobs":
				t.MaxJobsPerUser = n
			case "weight":
				t.Weight = float64(n)
			case "ns":
				t.Namespaces = strings.Split(v, ",")
			default:
				return fmt.Errorf("tenant attribute %q", kv)
			}
		}
		if o.Tenants == nil {
			o.Tenants = map[string]Tenant{}
		}
		o.Tenants[f[0]] = t
	}
	return nil
}

// tenants prints the state of all tenants.
func (w *world) tenants() string {
	var b strings.Builder
	for _, u := range w.queue.Tenants(w.now) {
		fmt.Fprintf(&b, "%s: %g GPUs, %g borrowed, %.2f GPU hours, share %.3f, %.2f times that\n", u.Tenant, u.GPUs, u.Borrowed(), u.GPUHours, u.Share, u.Times)
		for _, user := range u.Users {
			fmt.Fprintf(&b, "  user %s: %g GPUs, %d jobs\n", user.User, user.GPUs, user.Jobs)
		}
	}
	return b.String()
}

// TestTenantOf: a name takes precedence over a pattern, and a longer pattern over a
// shorter one.
func TestTenantOf(t *testing.T) {
	o := Options{Tenants: map[string]Tenant{"all": {Namespaces: []string{"*"}}, "r/vision": {Namespaces: []string{"vision-*", "eyes"}},
		"r/vision/lab": {Namespaces: []string{"vision-lab-*"}}, "ops": {}, "r/ml": {}}}
	got := map[string]string{}
	for _, ns := range []string{"vision-1", "vision-lab-1", "eyes", "ops", "ml", "r", "else"} {
		got[ns] = o.TenantOf(ns)
	}
	want := map[string]string{"vision-1": "r/vision", "vision-lab-1": "r/vision/lab", "eyes": "r/vision", "ops": "ops", "ml": "r/ml", "r": "all", "else": "all"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("namespaces (-want +got):\n%s", d)
	}
	if got := (Options{}).TenantOf("x"); got != "" {
		t.Errorf("without tenants a namespace belongs to %q", got)
	}
}

// A namespace that belongs to no tenant is a tenant of its own, even if a tenant with other
// namespaces has the same name.
func TestTenantNamedLikeANamespace(t *testing.T) {
	q := newTestLine(t, Options{Order: FIFO, Placement: pal.Policy{Name: pal.PAL}, Tenants: map[string]Tenant{"ml": {Namespaces: []string{"ml-*"}, Quota: 8}}})
	for _, namespace := range []string{"ml", "ml-vision"} { // both have jobs
		q.namespace(namespace)
	}
	for namespace, quota := range map[string]int{"ml": 0, "ml-vision": 8} {
		if u := q.TenantUse(namespace, 0); u.Quota != quota || len(u.Namespaces) != 1 || u.Namespaces[0] != namespace {
			t.Errorf("namespace %s: %+v, want a quota of %d", namespace, u, quota)
		}
	}
}

// TestUsageSurvivesRestart: a Queue that gets another queue's usage returns the same usage later.
// It does not matter whether running gangs are restored before or after that, and whether the
// caller asks for the usage before it is complete.
func TestUsageSurvivesRestart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := Options{Order: FIFO, Placement: pal.Policy{Name: pal.PAL}, FairShare: true, HalfLife: time.Duration(rapid.IntRange(1, 300).Draw(t, "half")) * time.Hour,
			Tenants: map[string]Tenant{"r/a": {}, "r/b": {}}}
		first, second := newTestLine(t, o), newTestLine(t, o)
		hour := func(n int) time.Duration { return time.Duration(n) * time.Hour }
		run := func(q *Queue, id, tenant string, gpus, from int) {
			p := pal.Placement{Members: []pal.Member{{GPUs: make([]int, gpus)}}, PMScore: 1, Penalty: 1}
			if err := q.Restore(Job{ID: id, Tenant: tenant, Gang: pal.SingleGPUs(id, pal.ClassA, gpus)}, p, hour(from)); err != nil {
				t.Fatal(err)
			}
		}
		gpus, ended := rapid.IntRange(1, 9).Draw(t, "gpus"), rapid.IntRange(11, 20).Draw(t, "ended")
		saved := hour(ended + rapid.IntRange(0, 5).Draw(t, "saved"))
		end := saved + hour(rapid.IntRange(0, 99).Draw(t, "end"))
		run(first, "past", "a", 3, 10)
		first.Finished(hour(ended), "past")
		run(first, "runs", "b", gpus, 5)
		kept := first.Usage(saved)
		if rapid.Bool().Draw(t, "restored first") {
			run(second, "runs", "b", gpus, 5)
			second.Tenants(saved)
			second.RememberUsage(saved, kept)
		} else {
			second.RememberUsage(saved, kept)
			run(second, "runs", "b", gpus, 5)
		}
		first.Removed(end, "runs")
		second.Removed(end, "runs")
		end += hour(rapid.IntRange(0, 99).Draw(t, "later"))
		want, got := first.Tenants(end), second.Tenants(end)
		for i := range want {
			if math.Abs(want[i].GPUHours-got[i].GPUHours) > 1e-6 {
				t.Errorf("tenant %s: %v GPU hours, the first queue says %v", want[i].Tenant, got[i].GPUHours, want[i].GPUHours)
			}
		}
		// Computed by hand: each GPU hour is halved every half-life.
		half := func(h float64) float64 { return math.Exp2(-h / o.HalfLife.Hours()) }
		tau := o.HalfLife.Hours() / math.Ln2
		byHand := 3 * tau * (half(end.Hours()-float64(ended)) - half(end.Hours()-10))
		if got := first.TenantUse("a", end).GPUHours; byHand >= 1. && math.Abs(got-byHand) > 1e-6*byHand {
			t.Errorf("a has used %v GPU hours, by hand %v", got, byHand)
		}
	})
}

// TestUsageIsBookedOnce: if a running gang leaves the Queue because its author edits it, and is
// then restored, its usage is the same as that of a gang that stayed.
func TestUsageIsBookedOnce(t *testing.T) {
	o := Options{Order: FIFO, Placement: pal.Policy{Name: pal.PAL}, HalfLife: 7 * 24 * time.Hour}
	stays, leaves := newTestLine(t, o), newTestLine(t, o)
	p := pal.Placement{Members: []pal.Member{{GPUs: make([]int, 4)}}, PMScore: 1, Penalty: 1}
	j := Job{ID: "j", Tenant: "a", Gang: pal.SingleGPUs("j", pal.ClassA, 4)}
	for _, q := range []*Queue{stays, leaves} {
		if err := q.Restore(j, p, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	leaves.Removed(10*time.Hour, "j")
	j.Booked = 10 * time.Hour
	if err := leaves.Restore(j, p, time.Hour); err != nil { // its run time counts from here on
		t.Fatal(err)
	}
	for _, at := range []time.Duration{11 * time.Hour, 20 * time.Hour} {
		if want, got := stays.TenantUse("a", at).GPUHours, leaves.TenantUse("a", at).GPUHours; math.Abs(want-got) > 1e-6 {
			t.Errorf("after %s: %v GPU hours, had it stayed %v", at, got, want)
		}
	}
}

func newTestLine(t interface{ Fatal(...any) }, o Options) *Queue {
	q, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// TestUsageMakesSense: RememberUsage ignores impossible values.
func TestUsageMakesSense(t *testing.T) {
	q := newTestLine(t, Options{Order: FIFO, Placement: pal.Policy{Name: pal.PAL}, FairShare: true, HalfLife: time.Hour})
	q.RememberUsage(time.Hour, []Usage{{Tenant: "a", GPUSeconds: math.NaN()}, {Tenant: "b", GPUSeconds: -5}, {Tenant: "c", GPUSeconds: math.Inf(1)}, {Tenant: "d", GPUSeconds: 7200}})
	if d := cmp.Diff([]Usage{{Tenant: "d", GPUSeconds: 7200}}, q.Usage(time.Hour)); d != "" {
		t.Errorf("usage (-want +got):\n%s", d)
	}
}

// TestResizedGang: a gang that has another size in a new cluster counts with this size, also when
// it ends.
func TestResizedGang(t *testing.T) {
	q := newTestLine(t, Options{Order: FIFO, Placement: pal.Policy{Name: pal.PAL}, HalfLife: time.Hour})
	p := pal.Placement{Members: []pal.Member{{GPUs: make([]int, 4)}}, PMScore: 1, Penalty: 1}
	if err := q.Restore(Job{ID: "j", Tenant: "a", Gang: pal.SingleGPUs("j", pal.ClassA, 4)}, p, 0); err != nil {
		t.Fatal(err)
	}
	q.Rebase(func(string, pal.Gang, pal.Placement) (pal.Gang, pal.Placement) {
		return pal.SingleGPUs("j", pal.ClassA, 2), pal.Placement{Members: []pal.Member{{GPUs: make([]int, 2)}}, PMScore: 1, Penalty: 1}
	})
	during := q.TenantUse("a", time.Hour).GPUs
	q.Removed(time.Hour, "j")
	if after := q.TenantUse("a", time.Hour).GPUs; during != 2 || after != 0 {
		t.Errorf("the tenant holds %g GPUs with a gang of 2 and %v after its end", during, after)
	}
}

// TestMoreThanAsked: GPUs beyond a gang's request count, whether the gang runs or is being stopped.
// Nomad may have reported only some of the members on a node. Then one gang seems to have a GPU of
// another gang, and the other gang seems smaller (walk 9002209).
func TestMoreThanAsked(t *testing.T) {
	q := newTestLine(t, Options{Order: FIFO, Placement: pal.Policy{Name: pal.PAL}, HalfLife: time.Hour})
	on := func(gpus ...int) pal.Placement {
		p := pal.Placement{PMScore: 1, Penalty: 1}
		for _, g := range gpus {
			p.Members = append(p.Members, pal.Member{GPUs: []int{g}})
		}
		return p
	}
	if err := q.Restore(Job{ID: "two", Tenant: "a", Gang: pal.SingleGPUs("two", pal.ClassA, 2)}, on(0, 1), 0); err != nil {
		t.Fatal(err)
	}
	if err := q.Restore(Job{ID: "some", Tenant: "a", Least: 1, Gang: pal.SingleGPUs("some", pal.ClassA, 2)}, on(2, 3), 0); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		two, some pal.Placement
	}{{on(0, 1, 3), on(2)}, {on(1, 3), on(0, 2)}} {
		q.SetPlacement(time.Second, "two", c.two)
		q.SetPlacement(time.Second, "some", c.some)
		if n := q.TenantUse("a", time.Second).GPUs; n != 4 {
			t.Errorf("with gangs on %v and %v the tenant has %g GPUs", c.two.GPUs(), c.some.GPUs(), n)
		}
	}
	q.Removed(time.Hour, "two")
	q.Removed(time.Hour, "some")
	if n := q.TenantUse("a", time.Hour).GPUs; n != 0 {
		t.Errorf("after their end the tenant has %g GPUs", n)
	}
}

// TestQuotasHold: no tenant ever exceeds its limit, and no gang within its quota is stopped for a
// gang that would borrow.
func TestQuotasHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(0, 8).Draw(t, "limit")
		o := Options{Order: Adaptive, Backfill: BackfillReserved, Preempt: true, FairShare: rapid.Bool().Draw(t, "fair"), HalfLife: time.Hour, Placement: pal.Policy{Name: pal.PAL},
			Tenants: map[string]Tenant{"r": {Quota: 10, BorrowingLimit: &limit}, "r/a": {Quota: 6}, "r/b": {Quota: 4, BorrowingLimit: &limit}, "c": {Quota: 4}}}
		w := &world{queue: newTestLine(t, o), gangs: map[string]pal.Gang{}, places: map[string]pal.Placement{}}
		var err error
		if w.cluster, err = pal.NewCluster(testNodes(4, ""), pal.TwoTier(1.7)); err != nil {
			t.Fatal(err)
		}
		var ids []string
		for i := range rapid.IntRange(1, 40).Draw(t, "steps") {
			w.now += time.Duration(rapid.IntRange(0, 30).Draw(t, "minutes")) * time.Minute
			if rapid.IntRange(0, 3).Draw(t, "what") == 0 && len(ids) > 0 {
				w.report("end", ids[0])
				ids = ids[1:]
			} else {
				id := fmt.Sprint("j", i)
				tenant, n := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "tenant"), rapid.IntRange(1, 6).Draw(t, "gpus")
				est := rapid.SampledFrom([]string{"", " est=5", " est=600"}).Draw(t, "est")
				if err := w.submit(fmt.Sprintf("%s %d tenant=%s%s pre=1", id, n, tenant, est)); err != nil {
					t.Fatal(err)
				}
				ids = append(ids, id)
			}
			for more := true; more; {
				held := map[*tenant]float64{} // GPUs of each tenant at the time of the action
				w.queue.count(w.now)
				for _, n := range w.queue.tree.byName {
					held[n] = n.gpus
				}
				actions := w.queue.Decide(w.now, w.cluster)
				for _, a := range actions {
					e, by := w.queue.entries[a.Job], w.queue.entries[a.For]
					if a.Kind == Start {
						for n := e.of.tenant; n != nil; n = n.parent {
							held[n] += float64(e.gpus)
						}
						continue
					}
					own, others := apart(by.of.tenant, e.of.tenant)
					if others != nil && held[others] <= float64(others.Quota) && (own == nil || held[own]+float64(by.gpus) > float64(own.Quota)) {
						t.Fatalf("%v: %s is stopped within quota for %s, which borrows: %v", w.now, a.Job, a.For, actions)
					}
				}
				for _, a := range actions {
					w.carryOut(a)
				}
				for _, u := range w.queue.Tenants(w.now) {
					if u.Limit != nil && u.GPUs > float64(*u.Limit) {
						t.Fatalf("%v: tenant %s holds %g GPUs, its limit is %d", w.now, u.Tenant, u.GPUs, *u.Limit)
					}
				}
				more = len(actions) > 0
			}
		}
	})
}

// A namespace that belongs to no tenant and has the name of one is shown as "a (namespace)".
func TestTenantsHaveNamesOfTheirOwn(t *testing.T) {
	q := newTestLine(t, Options{Order: FIFO, Placement: pal.Policy{Name: pal.PAL}, Tenants: map[string]Tenant{"a": {Namespaces: []string{"x"}}}})
	var names []string
	for _, namespace := range []string{"a", "b", "x"} {
		names = append(names, q.TenantUse(namespace, 0).Tenant)
	}
	if got := strings.Join(names, ", "); got != "a (namespace), b, a" {
		t.Errorf("namespaces a, b and x belong to %s", got)
	}
}

// TestOutside: GPUs that a tenant holds in jobs outside the queue count towards its limits.
func TestOutside(t *testing.T) {
	none := 0
	o := Options{Order: FIFO, Placement: pal.Policy{Name: pal.PAL}, Tenants: map[string]Tenant{"r": {Quota: 5, BorrowingLimit: &none}, "r/a": {}, "r/b": {}}}
	w := &world{queue: newTestLine(t, o), gangs: map[string]pal.Gang{}, places: map[string]pal.Placement{}}
	var err error
	if w.cluster, err = pal.NewCluster(testNodes(4, ""), pal.TwoTier(1.7)); err != nil {
		t.Fatal(err)
	}
	if err := w.submit("j 3 tenant=a"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		outside map[Payer]Held
		reason  reason.Kind
	}{
		{map[Payer]Held{{Tenant: "a"}: {GPUs: 3}}, reason.Quota},
		{map[Payer]Held{{Tenant: "b"}: {GPUs: 3}}, reason.Quota}, // held by another child of the same tenant
		{map[Payer]Held{{Tenant: "b"}: {GPUs: 2}, {Tenant: "a"}: {GPUs: 1}}, reason.Quota},
		{map[Payer]Held{{Tenant: "c"}: {GPUs: 9}}, reason.Next}, // held by another tenant
		{map[Payer]Held{{Tenant: "b"}: {GPUs: 2}}, reason.Next},
		{nil, reason.Next},
	} {
		w.queue.Outside(0, c.outside)
		if got := w.queue.Waiting(0, w.cluster)[0].Reason; got != c.reason {
			t.Errorf("outside %v: it waits for %q, want %q", c.outside, got, c.reason)
		}
		if got, want := w.queue.TenantUse("a", 0).GPUs, c.outside[Payer{Tenant: "a"}].GPUs; got != want {
			t.Errorf("outside %v: it has %g GPUs", c.outside, got)
		}
	}
	if w.queue.Counts("j") || w.queue.Counts("unknown") {
		t.Error("the GPUs of a waiting gang count")
	}
	for _, a := range w.queue.Decide(0, w.cluster) {
		w.carryOut(a)
	}
	if !w.queue.Counts("j") {
		t.Error("the GPUs of a running gang do not count")
	}
}

// TestOutsideUsage: jobs outside the queue use their tenant's fair share and their user's limit of
// jobs, also after the usage was restored.
func TestOutsideUsage(t *testing.T) {
	o := Options{Order: FIFO, Placement: pal.Policy{Name: pal.PAL}, HalfLife: 1000 * time.Hour, FairShare: true, Tenants: map[string]Tenant{"r": {MaxJobsPerUser: 2}, "r/a": {}}}
	q := newTestLine(t, o)
	q.Outside(0, map[Payer]Held{{Tenant: "a", User: "ada"}: {GPUs: 3, Jobs: 2}})
	hours := func(now time.Duration) float64 { return math.Round(q.TenantUse("a", now).GPUHours) }
	if got := hours(10 * time.Hour); got != 30 {
		t.Errorf("after 10 hours, the tenant has used %g GPU hours, want 30", got)
	}
	if err := q.Submit(0, Job{ID: "j", Tenant: "a", User: "ada", Gang: pal.SingleGPUs("j", pal.ClassA, 1)}); err != nil {
		t.Fatal(err)
	}
	c, err := pal.NewCluster(testNodes(4, ""), pal.TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	if got := q.Waiting(0, c)[0].Reason; got != reason.Quota {
		t.Errorf("with two jobs outside the queue, it waits for %q", got)
	}
	q.RememberUsage(10*time.Hour, []Usage{{Tenant: "a", GPUSeconds: 100 * 3600}})
	if got := hours(11 * time.Hour); got != 103 {
		t.Errorf("an hour after 100 GPU hours were restored, the tenant has used %g GPU hours, want 103", got)
	}
	q.Outside(11*time.Hour, nil)
	if got := hours(12 * time.Hour); got != 103 {
		t.Errorf("an hour after the jobs ended, the tenant has used %g GPU hours, want 103", got)
	}
}

// In quotas and limits, a part of a shared GPU counts as this part of one GPU.
func TestPartsInLimits(t *testing.T) {
	none := 0
	for name, c := range map[string]struct {
		tenants map[string]Tenant
		parts   int // of a GPU
		starts  int // how many jobs that request one part start
		why     string
	}{
		"quota":         {map[string]Tenant{"t": {Quota: 1, BorrowingLimit: &none}}, 4, 4, "needs 0.25 GPUs; tenant t holds 1 and may hold at most 1 (quota and borrowing_limit)"},
		"thirds":        {map[string]Tenant{"t": {Quota: 1, BorrowingLimit: &none}}, 3, 3, "needs 0.333 GPUs; tenant t holds 1 and may hold at most 1 (quota and borrowing_limit)"},
		"user":          {map[string]Tenant{"t": {MaxGPUsPerUser: 1}}, 4, 4, "needs 0.25 GPUs; user ada holds 1 in tenant t and may hold at most 1 (max_gpus_per_user)"},
		"whole GPUs":    {map[string]Tenant{"t": {Quota: 1, BorrowingLimit: &none}}, 1, 1, "needs 1 GPU; tenant t holds 1 and may hold at most 1 (quota and borrowing_limit)"},
		"enough of all": {map[string]Tenant{"t": {Quota: 2}}, 4, 5, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{queue: newTestLine(t, Options{Order: FIFO, Placement: pal.Policy{Name: pal.PAL}, Tenants: c.tenants}), gangs: map[string]pal.Gang{}, places: map[string]pal.Placement{}}
			nodes := testNodes(2, "")
			for i := range nodes {
				g := &nodes[i].Groups[0]
				if g.GPUs = g.GPUs[:c.parts]; c.parts > 1 {
					g.Shared = true
				}
			}
			var err error
			if w.cluster, err = pal.NewCluster(nodes, pal.TwoTier(1.7)); err != nil {
				t.Fatal(err)
			}
			for i := range 5 {
				g := pal.SingleGPUs(fmt.Sprint("j", i), pal.ClassA, 1)
				if c.parts > 1 {
					g.Sharing, g.Share = &pal.Sharing{Beside: pal.AnyClass}, w.cluster.LargestShare(nil)
				}
				w.gangs[g.ID] = g
				if err := w.queue.Submit(w.now, Job{ID: g.ID, Tenant: "t", User: "ada", Gang: g}); err != nil {
					t.Fatal(err)
				}
			}
			if got := strings.Count(w.decide(), "start"); got != c.starts {
				t.Fatalf("%d jobs start, want %d", got, c.starts)
			}
			if waits := w.queue.Waiting(w.now, w.cluster); len(waits) > 0 && waits[0].Why().String() != c.why {
				t.Errorf("it waits: %s, want %s", waits[0].Why().String(), c.why)
			}
			for i := range c.starts {
				w.queue.Removed(w.now, fmt.Sprint("j", i))
			}
			w.queue.count(w.now)
			if u := w.queue.tree.byName["t"]; u.gpus != 0 || len(u.users) > 0 {
				t.Errorf("after all have ended, %v GPUs are counted, for users %v", u.gpus, u.users)
			}
		})
	}
}

// If a limit begins to keep the gang waiting whose turn it was, the next overdue gang has its turn
// in the same pass. Otherwise gangs that are not overdue would get the kept GPUs.
func TestNextTurnAtLimit(t *testing.T) {
	c, err := pal.NewCluster(testNodes(3, ""), pal.TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	none := 0
	q := newTestLine(t, Options{Order: FIFO, Backfill: BackfillReserved, Placement: pal.Policy{Name: pal.PAL}, MaxWait: time.Hour,
		Tenants: map[string]Tenant{"limited": {Quota: 8, BorrowingLimit: &none}}})
	job := func(id, tenant string, gpus int) Job {
		return Job{ID: id, Tenant: tenant, Gang: pal.SingleGPUs(id, pal.ClassA, gpus)}
	}
	submit := func(now time.Duration, j Job) {
		j.Submitted = now
		if err := q.Submit(now, j); err != nil {
			t.Fatal(err)
		}
	}
	decide := func(now time.Duration) {
		for _, a := range q.Decide(now, c) {
			c.Take(q.entries[a.Job].job.Gang, a.Placement)
			q.Started(now, a.Job, a.Placement)
		}
	}
	submit(0, job("runs", "other", 11))
	decide(0)
	submit(0, job("first", "limited", 8))
	submit(0, job("next", "other", 8))
	decide(2 * time.Hour)
	if q.turn == nil || q.turn.head.job.ID != "first" {
		t.Fatalf("%+v", q.turn)
	}
	submit(2*time.Hour, job("small", "limited", 1))
	at := pal.Placement{PMScore: 1, Penalty: 1, Members: []pal.Member{{Group: 2, GPUs: []int{11}}}}
	c.Take(pal.SingleGPUs("small", pal.ClassA, 1), at)
	q.Started(2*time.Hour, "small", at)
	if decide(3 * time.Hour); q.turn == nil || q.turn.head.job.ID != "next" {
		t.Errorf("after the first gang's tenant has reached its limit: %+v", q.turn)
	}
}
