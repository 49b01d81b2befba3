// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/internal/long"
	"github.com/nomad-pal/nomad-pal/internal/race"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
)

// testSeeds is the number of walks in a normal run of the tests.
const testSeeds = 60

// ranAgain counts finished gangs that ran again and were not stopped in time.
const ranAgain = "ran again while Nomad did not answer"

// mostFailed is the number of failed walks that ends the test.
const mostFailed = 20

// TestWalk walks at random. No invariant may be broken, and everything must settle once faults have
// stopped.
//
//	SIMULATE_SEED=7         one walk, with the placer's log
//	SIMULATE_STEPS=1000000  walks of a million steps together, from seed SIMULATE_FROM on
//	SIMULATE_FOR=10m        as many walks as fit in this time
//	SIMULATE_REPORT=x.md    the outcome, as a page of the docs and x.csv
func TestWalk(t *testing.T) {
	if text := os.Getenv("SIMULATE_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		walk(t, seed, true)
		return
	}
	from, _ := strconv.ParseUint(os.Getenv("SIMULATE_FROM"), 10, 64)
	during, _ := time.ParseDuration(os.Getenv("SIMULATE_FOR"))
	steps, _ := strconv.Atoi(os.Getenv("SIMULATE_STEPS"))
	seeds := uint64(testSeeds)
	if race.Enabled {
		seeds = 3
	}
	began := time.Now()
	sum := walkAll(t, from, func(w walked) bool {
		switch {
		case w.failed >= mostFailed, long.Over():
			return false
		case steps > 0:
			return w.steps < steps
		case during > 0:
			return time.Since(began) < during
		}
		return w.begun < seeds
	})
	t.Logf("%d walks, %d failed, %d steps", sum.walks, sum.failed, sum.steps)
	if path := os.Getenv("SIMULATE_REPORT"); path != "" {
		worlds, _ := allSmall(t)
		for file, text := range map[string]string{path: sum.report(len(worlds)), strings.TrimSuffix(path, ".md") + ".csv": sum.csv()} {
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// walkAll walks seeds from the first on while more wants more. It runs as many walks in parallel as
// there are processors.
func walkAll(t *testing.T, from uint64, more func(walked) bool) walked {
	sum := walked{from: from, acts: map[string]int{}, faults: map[string]int{}, met: map[string]int{}, badly: map[string]int{}}
	var mu sync.Mutex
	sideBySide(func() func() {
		mu.Lock()
		defer mu.Unlock()
		if !more(sum) {
			return nil
		}
		seed := from + sum.begun
		sum.begun++
		return func() {
			came := walk(t, seed, false)
			mu.Lock()
			defer mu.Unlock()
			sum.add(came)
			if came.failed > 0 {
				sum.bad = append(sum.bad, seed)
			}
		}
	})
	slices.Sort(sum.bad)
	return sum
}

// sideBySide runs the functions that next returns, as many in parallel as there are processors,
// until next returns nil.
func sideBySide(next func() func()) {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // walks need little memory
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for do := next(); do != nil; do = next() {
				do()
			}
		})
	}
	workers.Wait()
}

// walked is the result of walks.
type walked struct {
	from, begun          uint64
	walks, failed, steps int
	broken, open         int
	acts, faults         map[string]int
	// met counts the walks in which an action or fault happened, badly those of them that failed.
	met, badly map[string]int
	bad        []uint64 // seeds that failed
}

func (s *walked) add(o walked) {
	s.walks, s.failed, s.steps, s.broken, s.open = s.walks+1, s.failed+o.failed, s.steps+o.steps, s.broken+o.broken, s.open+o.open
	for what, n := range o.acts {
		s.acts[what] += n
	}
	for what, n := range o.faults {
		s.faults[what] += n
	}
	for _, all := range []map[string]int{o.acts, o.faults} {
		for what := range all {
			s.met[what]++
			s.badly[what] += o.failed
		}
	}
}

func (s *walked) report(worlds int) string {
	var b strings.Builder
	fmt.Fprintf(&b, `# What random faults do to the placer

Written by `+"`make simulate-faults`"+`. In each random walk, the real placer works on an in-memory Nomad in virtual time. For four minutes authors
submit, edit, stop, purge and rerun jobs, machines fail, and requests and events go wrong. Then the faults end, and within 40 minutes each
job must have finished in its author's last version. The CSV file beside this page counts the events. Half of the walks use
settings other than the defaults for queue, placement and restart cost. In half of all walks Nomad itself preempts. These invariants
always hold:

* No two allocations have the same GPU, even if a job was purged or a node returns.
* Each gang is placed whole or not at all, and within its tenant's limit (one walk in four has a limit).
* The placer changes only what belongs to it.
* No finished job runs again unless its author requests this. If members do not need each other, no finished member runs again either.
* At most `+"`pal_array_parallel`"+` runs of an array are active at a time.
* Before each decision, the queue and the placer agree about which GPUs each gang holds.
* A job on hold does not start, and is not in the queue.
* After each decision, explain and the list of jobs agree with the queue and the ledger about why a job waits, which jobs go first, when
  it starts, and who holds how many GPUs.

A step is one event in the in-memory Nomad, such as an answer to a request, an evaluation, or a task that starts or ends.

| | |
|---|---|
| walks | %d, seeds %d to %d |
| steps | %d |
| walks with a broken invariant | %d |
| walks that did not settle | %d |
| seeds that failed | %v |

A seed always gives the same walk. This target and `+"`make test-long`"+` also go through all %d small worlds (`+"`make simulations`"+`:
one in 23). A small world has two nodes of two GPUs, and two gangs, one of which preempts the other. An author edits, stops, purges
or reruns one gang, the placer or a node crashes, and one write is not answered. Each of these events happens at each request of the placer.

`+"`go doc ./placer/nomadtest/bed`"+` lists what the walks allow because no placer could do better, and what the walks leave out.
`, s.walks, s.from, s.from+uint64(s.walks)-1, s.steps, s.broken, s.open, s.bad, worlds)
	return b.String()
}

// csv counts what happened, and what failed.
func (s *walked) csv() string {
	var b strings.Builder
	b.WriteString("kind,what,times,in_walks,of_which_failed\n")
	for _, of := range []struct {
		kind   string
		counts map[string]int
	}{{"event", s.acts}, {"fault", s.faults}} {
		for _, what := range slices.Sorted(maps.Keys(of.counts)) {
			fmt.Fprintf(&b, "%s,%q,%d,%d,%d\n", of.kind, what, of.counts[what], s.met[what], s.badly[what])
		}
	}
	return b.String()
}

// walk runs the walk of one seed.
func walk(t *testing.T, seed uint64, verbose bool) (out walked) {
	ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
		Run(t, Options{Seed: seed, Unchecked: true, Partial: 90 * time.Second, Placer: vary(seed), Sampled: true}, func(w *World) {
			x := NewWalk(w, DefaultMix())
			w.rules.limit, w.rules.perUser = limited(seed), perUser(seed)
			x.Go(4 * time.Minute)
			open, broken := x.Settle(40*time.Minute), w.Broken()
			counted := w.rules.counted()
			if n := counted.ranAgain; n > 0 {
				x.Counts[ranAgain] = n
			}
			if n := counted.reverted; n > 0 {
				x.Counts["reverted by Nomad"] = n
			}
			if n := w.Nomad.Preempted(); n > 0 {
				x.Counts["preempted by Nomad"] = n
			}
			if n, back := w.Nomad.Unknown(); n > 0 {
				x.Counts["a member's node is away"], x.Counts["its node is back in time"] = n, back
			}
			out = walked{steps: w.Nomad.Steps(), acts: x.Counts, faults: w.Nomad.Faults(), open: min(1, len(open)), broken: min(1, len(broken))}
			if len(open)+len(broken) == 0 {
				return
			}
			t.Errorf("replay with: SIMULATE_SEED=%d go test -v -run TestWalk ./placer/nomadtest/bed\nbroken:\n%s\nnot settled:\n%s",
				seed, strings.Join(broken, "\n"), strings.Join(open, "\n"))
			if verbose {
				t.Logf("at the end:\n%s\n%s", w.Describe(), w.Log())
			}
		})
	})
	if !ok {
		out.failed = 1
	}
	return out
}

// Walks contain every fault that a request may have, except late writes: TestPurgedBeforeALateWrite
// covers those. Walks also step Nomad's clock, and then no version shows which of two registrations
// was written late (walk 122 with both).
func TestWalksMeetEveryFault(t *testing.T) {
	t.Parallel()
	got, want := slices.Sorted(slices.Values(DefaultMix().Faults)), nomadtest.EveryFault()
	if want = slices.DeleteFunc(want, func(f nomadtest.Fault) bool { return f == nomadtest.LateWrite }); !slices.Equal(got, want) {
		t.Errorf("walks contain %v, but the faults are %v", got, want)
	}
}
