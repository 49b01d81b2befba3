// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package failure

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

// book is evidence that grows.
type book Evidence

// note judges a failure, and stores it and its strikes.
func (b *book) note(now time.Time, f palapi.Failure) (spared []Strike) {
	if b.Quarantine == nil {
		b.Quarantine = map[string]palapi.Quarantine{}
	}
	b.Failures = append(b.Failures, f)
	strikes, spared := Evidence(*b).Judge(f, now)
	for _, s := range strikes {
		b.Quarantine[s.GPU] = Struck(b.Quarantine[s.GPU], s, now)
	}
	return spared
}

// fleet is n GPUs of one model, g1 to gn.
func fleet(n int) map[string]string {
	models := map[string]string{}
	for i := range n {
		models[fmt.Sprint("g", i+1)] = "H200"
	}
	return models
}

// story plays one failed or successful allocation per minute: "job gpu,gpu" is a failure, "ok job
// gpu,gpu" a success. The job may have the prefix "namespace:".
func story(b *book, events ...string) (end time.Time, spared []Strike) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, e := range events {
		now = now.Add(time.Minute)
		what, ok := strings.CutPrefix(e, "ok ")
		who, gpus, _ := strings.Cut(what, " ")
		ns, job, named := strings.Cut(who, ":")
		if !named {
			ns, job = "default", who
		}
		ids := strings.Split(gpus, ",")
		if ok {
			b.Successes = append(b.Successes, cluster.Success{Job: cluster.JobKey{Namespace: ns, ID: job}, At: now, GPUs: ids})
			continue
		}
		f := palapi.Failure{At: now, Placed: now.Add(-10 * time.Second), Namespace: ns, Job: job, Cause: palapi.CauseUser, GPUs: ids}
		switch {
		case strings.HasPrefix(job, "image"):
			f.Cause, f.Driver = palapi.CauseInfrastructure, true
		case strings.HasPrefix(job, "driver"):
			f.Cause, f.Unhealthy, f.Named, f.Reason = palapi.CauseInfrastructure, ids, true, "the driver says so"
		case strings.HasPrefix(job, "plugin"):
			f.Cause, f.Unhealthy, f.Reason = palapi.CauseInfrastructure, ids, "lost"
		}
		spared = append(spared, b.note(now, f)...)
	}
	return now, spared
}

func TestJudge(t *testing.T) {
	fine := func(events ...string) []string {
		return append([]string{"ok fine g2", "ok fine g3", "ok fine g4", "ok fine g5", "ok fine g6", "ok fine g7"}, events...)
	}
	for _, c := range []struct {
		name   string
		events []string
		want   []string
		spared []string
	}{
		{"three jobs that fail on it alone", fine("a g1", "b g1", "c g1"), []string{"g1"}, nil},
		{"two", fine("a g1", "b g1"), nil, nil},
		{"one, three times", fine("a g1", "a g1", "a g1"), nil, nil},
		{"of one family", fine("sweep-1 g1", "sweep-2 g1", "sweep-3 g1"), nil, nil},
		{"of one template", fine("t/dispatch-17-ab g1", "t/dispatch-18-cd g1", "t/periodic-3 g1"), nil, nil},
		{"with a success between them", fine("a g1", "b g1", "ok x g1", "c g1"), nil, nil},
		{"one of which could not be started", fine("a g1", "image g1", "c g1"), []string{"g1"}, nil},
		{"that failed elsewhere before", fine("a g2", "b g3", "c g4", "a g1", "b g1", "c g1"), nil, nil},
		{"one of which fails elsewhere then", fine("a g1", "b g1", "a g2", "c g1"), nil, nil},
		{"of a namespace that used no other GPU", []string{"a g1", "b g1", "c g1"}, nil, nil},
		{"of two namespaces, each known to work elsewhere", fine("ok x:fine g3,g4,g5,g6", "x:a g1", "a g1", "b g1"), []string{"g1"}, nil},
		{"of two namespaces, one of which fails everywhere", fine("ok x:fine g3,g4,g5,g6", "x:e g3", "x:f g4", "x:a g1", "a g1", "b g1"), nil, nil},
		{"gangs that share it", []string{"ok x g9,g10,g11,g12", "a g1,g2", "b g1,g3", "c g1,g4"}, []string{"g1"}, nil},
		{
			"gangs on the same GPUs: no more than the cap", []string{"ok x g9,g10,g11,g12", "a g1,g2,g3,g4", "b g1,g2,g3,g4", "c g1,g2,g3,g4"},
			[]string{"g1", "g2"}, []string{"g3", "g4"},
		},
		{
			"a driver that names all: no more than the cap", []string{"driver g1,g2,g3,g4,g5,g6"},
			[]string{"g1", "g2"}, []string{"g3", "g4", "g5", "g6"},
		},
		{"the plugin is trusted", []string{"plugin g1,g2,g3,g4"}, []string{"g1", "g2", "g3", "g4"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := book{Models: fleet(16)}
			end, spared := story(&b, c.events...)
			if d := cmp.Diff(c.want, slices.Sorted(maps.Keys(QuarantinedGPUs(b.Quarantine, end)))); d != "" {
				t.Errorf("kept out (-want +got)\n%s", d)
			}
			var ids []string
			for _, s := range spared {
				ids = append(ids, s.GPU)
			}
			if d := cmp.Diff(c.spared, ids); d != "" {
				t.Errorf("spared (-want +got)\n%s", d)
			}
			for id, q := range b.Quarantine {
				if q.ByJobs && !strings.HasPrefix(q.Reason, "a task driver named this GPU") && !strings.HasPrefix(q.Reason, "jobs with 3 different names failed") {
					t.Errorf("%s: reason %q", id, q.Reason)
				}
			}
		})
	}
}

// The members of a gang fail together: that does not count as a failure elsewhere.
func TestGangFailsAtOnce(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	b := book{Models: fleet(16)}
	story(&b, "ok fine g9,g10,g11,g12,g13,g14")
	for i, others := range []string{"g2", "g3", "g4"} {
		at := now.Add(time.Duration(i+1) * time.Hour)
		for m, gpu := range []string{"g1", others} {
			b.note(at, palapi.Failure{
				At: at.Add(time.Duration(m) * time.Second), Placed: at.Add(time.Duration(m) * time.Millisecond),
				Job: fmt.Sprint("job", string(rune('w'+i))), Namespace: "default", Cause: palapi.CauseUser, GPUs: []string{gpu},
			})
		}
	}
	if d := cmp.Diff([]string{"g1"}, slices.Sorted(maps.Keys(b.Quarantine))); d != "" {
		t.Errorf("kept out (-want +got)\n%s", d)
	}
}

// A sweep of jobs with the same mistake puts no GPU in quarantine if their names differ only in
// numbers; if each has a different name, at most one of eight GPUs.
func TestSweepWithATypo(t *testing.T) {
	for _, c := range []struct {
		name  string
		named func(r *rand.Rand, i int) string
		most  int
	}{
		{"numbered", func(_ *rand.Rand, i int) string { return fmt.Sprintf("sweep-%d", i) }, 0},
		{"hashed", func(r *rand.Rand, _ int) string { return fmt.Sprintf("run-%016x", r.Uint64()) }, 0},
		{"dispatched", func(_ *rand.Rand, i int) string { return fmt.Sprintf("train/dispatch-%d-0a%d", i, i) }, 0},
		{"with names", func(_ *rand.Rand, i int) string { return strings.Repeat("x", i+1) }, 1},
	} {
		for seed := range uint64(50) {
			r := rand.New(rand.NewPCG(seed, 1))
			now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			b := book{Models: fleet(8)}
			for i := range 30 {
				now = now.Add(150 * time.Millisecond)
				b.note(now, palapi.Failure{At: now, Placed: now.Add(-time.Second), Namespace: "default", Job: c.named(r, i), Cause: palapi.CauseUser, GPUs: []string{fmt.Sprint("g", 1+r.IntN(8))}})
			}
			if out := QuarantinedGPUs(b.Quarantine, now); len(out) > c.most {
				t.Errorf("%s, seed %d: %d of 8 GPUs are kept out", c.name, seed, len(out))
			}
		}
	}
}

// Whatever jobs do, they cannot put more GPUs in quarantine than the [Cap], in all and of each
// model.
func TestCap(t *testing.T) {
	for n, want := range map[int]int{0: 0, 1: 0, 2: 1, 8: 1, 15: 1, 16: 2, 80_000: 10_000} {
		if got := Cap(n); got != want {
			t.Errorf("Cap(%d) = %d, want %d", n, got, want)
		}
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	b := book{Models: fleet(30)}
	b.Models["a1"], b.Models["a2"] = "A100", "A100"
	for _, id := range []string{"g1", "g2", "a1", "a2", "g3", "g4", "g5", "g6", "g7"} {
		f := palapi.Failure{At: now, Job: "j", Cause: palapi.CauseInfrastructure, GPUs: []string{id}, Unhealthy: []string{id}, Named: id != "g1" && id != "g2"}
		b.note(now, f)
	}
	// Two because the machine reports them. Because of jobs, 1 of 2 A100, 3 of 30 H200, and so 4 of
	// all 32.
	want := []string{"a1", "g1", "g2", "g3", "g4", "g5"}
	if d := cmp.Diff(want, slices.Sorted(maps.Keys(QuarantinedGPUs(b.Quarantine, now)))); d != "" {
		t.Errorf("kept out (-want +got)\n%s", d)
	}
}

func TestFamily(t *testing.T) {
	for job, want := range map[string]string{
		"train": "train", "sweep-12": "sweep-#", "sweep-7": "sweep-#", "run-7f3a9c01": "run-#", "Train_V2": "train_v#",
		"t/dispatch-1700000000-ab12": "t", "nightly/periodic-1700000000": "nightly", "": "",
		"3f2504e0-4f89-11d3-9a0c-0305e82c3301": "#-#-#-#-#",
	} {
		if got := Family(job); got != want {
			t.Errorf("Family(%q) = %q, want %q", job, got, want)
		}
	}
}
