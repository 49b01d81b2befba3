// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/internal/long"
	"github.com/nomad-pal/nomad-pal/internal/race"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
)

// small is one combination of events in a small world: the author changes one of two gangs,
// something crashes, and an answer is lost. Times are counted in the placers' requests since the
// first gang's submission. An event at 2n happens while request n is on its way, one at 2n+1
// shortly after its answer. The lost answer is that to the n-th write.
type small struct {
	edit, crash, lose int
	how               string // kind of edit
	what              string // what crashes
}

func (s small) String() string {
	return fmt.Sprintf("%s at request %g, %s crashes at request %g, no answer to write %d", s.how, float64(s.edit)/2, s.what, float64(s.crash)/2, s.lose)
}

var edits = map[string]func(w *World) error{
	"edit": func(w *World) error {
		return w.Edit(Key("job-001"), func(j *api.Job) { j.TaskGroups[0].Count = new(1) })
	},
	"re-run": func(w *World) error { return w.Rerun(Key("job-001")) },
	"stop":   func(w *World) error { return w.Stop(Key("job-001")) },
	"purge":  func(w *World) error { return w.Purge(Key("job-001")) },
}

// script makes things happen at the placers' requests.
type script struct {
	mu               sync.Mutex
	requests, writes int
	at               map[int][]chan struct{} // by number of the request
	lose             int
	over             chan struct{}
	acts             sync.WaitGroup
}

func (x *script) fault(r nomadtest.Request) nomadtest.Fault {
	if !strings.HasPrefix(r.Client, "placer") {
		return nomadtest.None
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.requests++
	for _, c := range x.at[x.requests] {
		close(c)
	}
	delete(x.at, x.requests)
	if r.Write() {
		if x.writes++; x.writes == x.lose {
			return nomadtest.Unanswered
		}
	}
	return nomadtest.None
}

// on schedules do at a moment, in half requests.
func (x *script) on(moment int, do func()) {
	c := make(chan struct{})
	x.mu.Lock()
	x.at[moment/2] = append(x.at[moment/2], c)
	x.mu.Unlock()
	after := time.Microsecond // Nomad is working on the request
	if moment%2 == 1 {
		after = 3 * time.Millisecond // the placer has its answer
	}
	x.acts.Go(func() {
		select {
		case <-c:
			time.Sleep(after)
			do()
		case <-x.over:
		}
	})
}

// live runs a small world to its end and returns what is wrong then. unknown: the job was purged in
// the very moment in which a placer wrote it, and that placer was killed. Nothing in Nomad
// distinguishes the result from a new job.
func (s small) live(t *testing.T) (wrong []string, unknown bool, seen *script, log string) {
	Run(t, Options{Seed: 1, Unchecked: true, Partial: 90 * time.Second, Sampled: true}, func(w *World) {
		x := &Walk{World: w, made: 2, gone: map[int]bool{}, sick: map[string]bool{}, left: map[nomadtest.Key]bool{}}
		w.AddNodes(2, 2)
		w.StartPlacer()
		w.RunFor(time.Second)
		seen = &script{at: map[int][]chan struct{}{}, lose: s.lose, over: make(chan struct{})}
		w.Nomad.FailBy(seen.fault)
		w.Submit(Gang{Name: "job-001", Members: 2, GPUs: 1, Runs: 40 * time.Second, Priority: 20, Meta: map[string]string{"pal_preempt": "true"}})
		seen.on(s.edit, func() {
			if err := edits[s.how](w); err != nil {
				t.Errorf("%v: %v", s, err)
			}
		})
		seen.on(s.crash, func() { s.crashes(w) })
		w.RunFor(3 * time.Second)
		w.Submit(Gang{Name: "job-002", Members: 2, GPUs: 2, Runs: 5 * time.Second, Priority: 90, Meta: map[string]string{"pal_duration": "5s"}})
		w.RunFor(40 * time.Second)
		close(seen.over)
		seen.acts.Wait()
		wrong = append(x.Settle(20*time.Minute), w.Broken()...)
		if s.how == "purge" && s.what == "the placer" && len(wrong) == 1 && wrong[0] == "default/job-001: stopped by its author, but started again" && *w.Nomad.Job(Key("job-001")).Version == 0 {
			unknown, wrong = true, nil
		}
		log = w.Log() + w.Describe()
	})
	return wrong, unknown, seen, log
}

// crashes makes the placer or a node crash and come back.
func (s small) crashes(w *World) {
	w.Excuse()
	if s.what == "a node" {
		w.Nomad.CrashNode(NodeID(0))
		time.Sleep(10 * time.Second)
		w.Nomad.RecoverNode(NodeID(0))
		w.Excuse()
		return
	}
	for _, p := range w.placers {
		p.Kill()
	}
	time.Sleep(time.Second)
	w.StartPlacer()
}

// All combinations of an edit, a crash and a lost answer in a small world of two nodes with two
// GPUs, while one gang runs and is preempted for another. Events between the same two requests
// count as simultaneous.
//
//	SMALL_WORLD=17   one world, with the placer's log
func TestAllSmallWorlds(t *testing.T) {
	worlds, base := allSmall(t)
	t.Logf("%d worlds: %d requests, %d of them writes", len(worlds), base.requests, base.writes)
	if one, err := strconv.Atoi(os.Getenv("SMALL_WORLD")); err == nil {
		wrong, _, _, log := worlds[one].live(t)
		t.Logf("%v: %q\n%s", worlds[one], wrong, log)
		return
	}
	var next, failed, limit atomic.Int64
	sideBySide(func() func() {
		i := int(next.Add(1)) - 1
		if i >= len(worlds) || failed.Load() >= 10 || long.Over() {
			return nil
		}
		return func() {
			if i%oneWorldOf() != 0 {
				return
			}
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				wrong, unknown, _, _ := worlds[i].live(t)
				if unknown {
					limit.Add(1)
				}
				if len(wrong) > 0 {
					failed.Add(1)
					t.Errorf("SMALL_WORLD=%d: %v:\n%s", i, worlds[i], strings.Join(wrong, "\n"))
				}
			})
		}
	})
	if long.Over() {
		t.Log("the first ", min(int(next.Load()), len(worlds)), " of them: ", long.NoTime)
	}
	t.Logf("in %d of them a killed placer's write restored a job that was purged in that moment", limit.Load())
}

// oneWorldOf: the test tries one in this many worlds. The number is coprime to the number of worlds
// of each kind, so that a sample has all kinds.
func oneWorldOf() int {
	switch {
	case race.Enabled:
		return 401
	case long.All():
		return 1
	}
	return 47
}

// allSmall returns all small worlds, and the placer's requests in a world in which nothing happens.
func allSmall(t *testing.T) (worlds []small, base *script) {
	_, _, base, _ = small{}.live(t)
	for _, what := range []string{"the placer", "a node"} {
		for _, how := range slices.Sorted(maps.Keys(edits)) {
			for edit := range 2 * base.requests {
				for crash := range base.requests {
					for lose := range base.writes {
						worlds = append(worlds, small{2 + edit, 2 + 2*crash, 1 + lose, how, what})
					}
				}
			}
		}
	}
	return worlds, base
}
