// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/internal/long"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// killAtStart kills the placer when it has registered the job's pins but not yet recorded why.
func (w *World) killAtStart(p *Placer, name string) {
	w.T.Helper()
	pinned := func() bool {
		_, pinned := rewrite.Pinned(w.Nomad.Job(Key(name)))
		return pinned && !rewrite.Gated(w.Nomad.Job(Key(name)))
	}
	if !w.until(time.Minute, 10*time.Millisecond, pinned) {
		w.T.Fatalf("%s does not start:\n%s", name, w.Describe())
	}
	p.Kill()
}

// chosen returns the GPUs in a record's decision, sorted.
func chosen(r gang.Record) []string {
	return slices.Sorted(slices.Values(r.Decision.Chosen.GPUIDs()))
}

// The record of a purged job goes at once, not at the next full read.
func TestRecordGoesWithItsJob(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(1, 2)
		w.StartPlacer()
		w.Submit(Gang{Name: "a", Members: 1, GPUs: 2, Runs: time.Hour})
		w.ExpectRunning("a", 5*time.Second)
		w.RunFor(20 * time.Second)
		path := store.DecisionPath(Key("a"))
		recorded := func() bool { return w.Nomad.Variable("default", path) != nil }
		if !recorded() {
			t.Fatal("the job has no record")
		}
		if err := w.Purge(Key("a")); err != nil {
			t.Fatal(err)
		}
		w.Expect("the record is gone", 5*time.Second, func() bool { return !recorded() })
	})
}

// A gang was stopped for another gang before and starts on other GPUs, with each kind of pins. The
// placer is killed after it has started the gang and before it has recorded that. The next placer
// reads from Nomad which GPUs the gang has. Its earlier run time still counts, but the reason for its
// earlier GPUs does not.
// This also holds if the clock of Nomad's servers is three minutes behind the placer's, or ahead,
// and if the author edits the job before the next placer starts.
func TestKilledBeforeItRecordedAStart(t *testing.T) {
	for _, step := range []time.Duration{0, -3 * time.Minute, 3 * time.Minute} {
		for _, pin := range []string{"gpu", "class", "prefer"} {
			for _, edit := range []bool{false, true} {
				if step != 0 && edit {
					continue
				}
				t.Run(fmt.Sprint(pin, step, edit), func(t *testing.T) {
					Run(t, Options{Seed: 1, Placer: preempting}, func(w *World) {
						w.AddNodes(2, 2)
						w.Nomad.StepClock(step)
						first := w.StartPlacer()
						w.RunFor(time.Second)
						w.Submit(Gang{Name: "a", Members: 1, GPUs: 2, Runs: time.Hour, Priority: 20, Meta: map[string]string{"pal_preempt": "true", "pal_pin": pin}})
						w.ExpectRunning("a", 5*time.Second)
						had := w.GPUs(Key("a"))
						w.Submit(Gang{Name: "b", Members: 1, GPUs: 2, Runs: 9 * time.Hour, Priority: 20})
						w.ExpectRunning("b", 5*time.Second)
						w.RunFor(10 * time.Minute)
						w.Submit(Gang{Name: "urgent", Members: 1, GPUs: 2, Runs: 9 * time.Hour, Priority: 90})
						w.ExpectRunning("urgent", time.Minute)
						w.RunFor(time.Minute)
						if err := w.Stop(Key("b")); err != nil {
							t.Fatal(err)
						}
						w.killAtStart(first, "a")
						w.RunFor(5 * time.Second)
						if edit {
							if err := w.Edit(Key("a"), func(j *api.Job) { j.Priority = new(30) }); err != nil {
								t.Fatal(err)
							}
						}
						w.StartPlacer()
						w.RunFor(time.Minute)
						w.ExpectRunning("a", 0)
						now, r := w.GPUs(Key("a")), w.decision("a")
						if slices.Equal(now, had) {
							t.Fatalf("it runs where it ran")
						}
						if !slices.Equal(chosen(r), now) || r.Predicted != nil {
							t.Errorf("recorded are %v, predicted %v; it has %v, and had %v", chosen(r), r.Predicted, now, had)
						}
						if !r.StoppedWhy.IsZero() || step == 0 && (r.Attained < 10*time.Minute || r.Attained > 12*time.Minute || r.Waited < time.Minute || r.Waited > 2*time.Minute) {
							t.Errorf("stopped %q, ran %v, waited %v", r.StoppedWhy.String(), r.Attained, r.Waited)
						}
					})
				})
			}
		}
	}
}

// A job has run and finished. Two hours later its author runs it again. It waits five minutes, and
// the placer is killed while it starts the job. The only record is that of the earlier run.
func TestKilledBeforeItRecordedAnotherRun(t *testing.T) {
	for _, how := range []string{"same GPUs", "other GPUs", "purged", "class"} {
		t.Run(how, func(t *testing.T) {
			Run(t, Options{Seed: 1, Unchecked: true, Placer: preempting}, func(w *World) {
				w.AddNodes(2, 2)
				first := w.StartPlacer()
				pin := "gpu"
				if how == "class" {
					pin = "class"
				}
				a := Gang{Name: "a", GPUs: 2, Runs: 2 * time.Hour, Priority: 20, Meta: map[string]string{"pal_preempt": "true", "pal_pin": pin}}
				w.Submit(a)
				w.ExpectRunning("a", 10*time.Second)
				w.Submit(Gang{Name: "x", GPUs: 2, Runs: 100 * time.Hour, Priority: 20})
				w.ExpectRunning("x", 10*time.Second)
				w.RunFor(time.Hour)
				w.Submit(Gang{Name: "urgent", GPUs: 2, Runs: 10 * time.Minute, Priority: 90})
				w.ExpectFinished("urgent", time.Hour)
				w.ExpectFinished("a", 3*time.Hour)
				w.RunFor(2 * time.Hour)
				w.Submit(Gang{Name: "full", GPUs: 2, Runs: 100 * time.Hour, Priority: 20})
				w.ExpectRunning("full", time.Minute)
				if how == "purged" {
					if err := w.Purge(Key("a")); err != nil {
						t.Fatal(err)
					}
					w.RunFor(time.Second)
				}
				again := time.Now()
				w.Submit(a)
				w.RunFor(5 * time.Minute)
				goes := "full"
				if how == "other GPUs" {
					goes = "x"
				}
				if err := w.Stop(Key(goes)); err != nil {
					t.Fatal(err)
				}
				w.killAtStart(first, "a")
				w.StartPlacer()
				w.RunFor(time.Minute)
				r := w.decision("a")
				if r.Submitted.Before(again) || r.Attained > 0 || r.Waited > 6*time.Minute || r.Decided.Before(again) {
					t.Errorf("run again at %v: submitted %v, decided %v, ran %v, waited %v", again, r.Submitted, r.Decided, r.Attained, r.Waited)
				}
			})
		})
	}
}

// A gang was preempted and now runs on other GPUs. Its author reverts it to the version that ran
// first. Later the placer restarts.
func TestRecordOfARevertedGang(t *testing.T) {
	Run(t, Options{Seed: 1, Placer: preempting}, func(w *World) {
		w.AddNodes(2, 2)
		first := w.StartPlacer()
		w.Submit(Gang{Name: "a", Members: 1, GPUs: 2, Runs: 100 * time.Hour, Priority: 20, Meta: map[string]string{"pal_preempt": "true", "pal_pin": "gpu"}})
		w.ExpectRunning("a", 5*time.Second)
		ran, had := copyOf(w.Nomad.Job(Key("a"))), w.GPUs(Key("a"))
		w.Submit(Gang{Name: "b", Members: 1, GPUs: 2, Runs: 9 * time.Hour, Priority: 20})
		w.ExpectRunning("b", 5*time.Second)
		w.RunFor(10 * time.Minute)
		w.Submit(Gang{Name: "urgent", Members: 1, GPUs: 2, Runs: time.Hour, Priority: 90})
		w.ExpectRunning("urgent", time.Minute)
		w.RunFor(time.Minute)
		if err := w.Stop(Key("b")); err != nil {
			t.Fatal(err)
		}
		w.ExpectRunning("a", time.Minute)
		w.RunFor(3 * time.Hour)
		if err := w.Register(ran); err != nil {
			t.Fatal(err)
		}
		w.RunFor(10 * time.Minute)
		w.ExpectRunning("a", time.Minute)
		if !slices.Equal(w.GPUs(Key("a")), had) {
			t.Fatalf("%v, had %v", w.GPUs(Key("a")), had)
		}
		before := w.decision("a")
		first.Kill()
		w.StartPlacer()
		w.RunFor(10 * time.Minute)
		r := w.decision("a")
		if r.Waited > before.Waited+time.Minute {
			t.Errorf("it has waited %v, was %v", r.Waited, before.Waited)
		}
	})
}

// failNext makes the next matching request fail, and returns a function that reports whether it
// has.
func (w *World) failNext(f nomadtest.Fault, which func(nomadtest.Request) bool) (tried func() bool) {
	var done atomic.Bool
	w.Nomad.FailBy(func(r nomadtest.Request) nomadtest.Fault {
		if which(r) && done.CompareAndSwap(false, true) {
			return f
		}
		return nomadtest.None
	})
	return done.Load
}

// A gang, elastic or not, gets more members. The placer cannot record that, and is killed. The
// gang's run time counts once, and none of it as waiting.
func TestKilledBeforeItRecordedASize(t *testing.T) {
	for _, kind := range []string{"gang", "elastic"} {
		t.Run(kind, func(t *testing.T) {
			Run(t, Options{Seed: 1, Unchecked: true, Placer: preempting}, func(w *World) {
				w.AddNodes(1, 8)
				first := w.StartPlacer()
				if kind == "elastic" {
					w.Submit(Gang{Name: "other", Members: 6, GPUs: 1, Runs: 100 * time.Hour})
					w.ExpectRunning("other", 10*time.Second)
				}
				g := Gang{Name: "a", Members: 2, Runs: 50 * time.Hour, Priority: 20, Meta: map[string]string{"pal_preempt": "true", "pal_pin": "class"}}
				if kind == "elastic" {
					g.Change = elastic(1, 4)
				}
				w.Submit(g)
				w.ExpectRunning("a", 10*time.Second)
				w.RunFor(2 * time.Hour)
				back := w.Nomad.Fail("placer-1", "PUT /v1/var/nomad-pal/decisions/default/a", nomadtest.Failed, -1)
				if kind == "elastic" {
					if err := w.Stop(Key("other")); err != nil {
						t.Fatal(err)
					}
				} else {
					g.Members = 4
					w.Submit(g)
				}
				w.Expect("resized", 10*time.Minute, func() bool { return len(w.Members(Key("a"))) == 4 && w.Running(Key("a")) })
				w.RunFor(time.Second)
				first.Kill()
				if back() == 0 {
					t.Error("the placer tried to record nothing")
				}
				w.StartPlacer()
				w.RunFor(10 * time.Minute)
				is := w.decision("a")
				if is.Waited > time.Minute {
					t.Errorf("it never waited, but %v of waiting are recorded", is.Waited)
				}
				w.Submit(Gang{Name: "urgent", Members: 8, Runs: time.Hour, Priority: 90})
				w.ExpectRunning("urgent", 10*time.Minute)
				is = w.decision("a")
				if is.Attained < 2*time.Hour || is.Waited > time.Minute {
					t.Errorf("it ran two hours and never waited, but %v of running and %v of waiting are recorded (note %q)", is.Attained, is.Waited, is.Note)
				}
			})
		})
	}
}

// The members of a gang all end together: their node goes down, or they fail. The time of that run
// is no time of waiting, although no member is left when the placer sees the loss.
func TestRunOfLostGangIsNoWait(t *testing.T) {
	for _, how := range []string{"node", "failed"} {
		t.Run(how, func(t *testing.T) {
			Run(t, Options{Seed: 1, Placer: func(c *model.Config) { c.Retries = 5 }}, func(w *World) {
				w.AddNodes(1, 2)
				w.StartPlacer()
				g := Gang{Name: "a", Members: 2, GPUs: 1, Runs: 10 * time.Hour}
				if how == "failed" {
					g.Runs, g.Exit = 2*time.Hour, 1
				}
				w.Submit(g)
				w.ExpectRunning("a", 10*time.Second)
				first := w.Members(Key("a"))[0]
				w.RunFor(2*time.Hour - time.Minute)
				if how == "node" {
					w.Nomad.CrashNode(first.Node)
					w.RunFor(5 * time.Minute)
					w.Nomad.RecoverNode(first.Node)
				}
				w.Expect("it runs again", time.Hour, func() bool {
					return w.Running(Key("a")) && w.Members(Key("a"))[0].ID != first.ID
				})
				w.RunFor(time.Minute)
				if r := w.decision("a"); r.Attained < 119*time.Minute || r.Attained > 122*time.Minute || r.Waited > 10*time.Minute {
					t.Errorf("ran %v, waited %v", r.Attained, r.Waited)
				}
			})
		})
	}
}

// countsOnce waits until gang a, which has failed once after twenty minutes, runs again with a
// first member other than was. The failure must count once, with at least the time that the gang
// was seen to run. The next two failures must count once, too.
func (w *World) countsOnce(was string, ran time.Duration) {
	w.T.Helper()
	runs := func() bool {
		return w.Running(Key("a")) && len(w.Members(Key("a"))) > 0 && w.Members(Key("a"))[0].ID != was
	}
	if !w.until(time.Hour, time.Second, runs) {
		w.T.Fatalf("does not run again:\n%s", w.Describe())
	}
	w.RunFor(time.Minute)
	if r := w.decision("a"); r.UserFailures != 1 || r.Attained < ran || r.Attained > 25*time.Minute {
		w.T.Errorf("one failure counts as %d; ran %v, waited %v", r.UserFailures, r.Attained, r.Waited)
	}
	if !w.until(2*time.Hour, time.Second, func() bool { return w.decision("a").UserFailures == 3 }) {
		w.T.Errorf("not given up, failures: %d", w.decision("a").UserFailures)
	}
}

// A gang fails through its own fault. The write of the failure's record, or the registration of the
// gate, fails in each way, and the placer is killed some time later. The failure counts once, with
// the gang's run time, and so do the next failures.
func TestFailureCountsOnce(t *testing.T) {
	record := func(r nomadtest.Request) bool {
		return strings.HasPrefix(r.Path, "/v1/var") && strings.Contains(r.Path, "decision")
	}
	gate := func(r nomadtest.Request) bool { return r.Client == "placer-1" && r.Match("PUT /v1/jobs") }
	for n, f := range []nomadtest.Fault{nomadtest.None, nomadtest.Failed, nomadtest.Broken, nomadtest.Unanswered, nomadtest.DoneButFailed, nomadtest.Lost, nomadtest.LateWrite, nomadtest.SlowWrite} {
		for i, kill := range []time.Duration{-1, 0, 500 * time.Millisecond, 35 * time.Second} {
			if long.Skips(n, i, 4) {
				continue
			}
			for name, write := range map[string]func(nomadtest.Request) bool{"record": record, "gate": gate} {
				t.Run(fmt.Sprint(name, f, kill), func(t *testing.T) {
					Run(t, Options{Seed: 1, Unchecked: true, Placer: func(c *model.Config) { c.Retries = 2 }}, func(w *World) {
						w.AddNodes(2, 2)
						first := w.StartPlacer()
						w.RunFor(time.Second)
						w.Submit(Gang{Name: "a", Members: 2, GPUs: 1, Runs: 20 * time.Minute, Change: func(j *api.Job) {
							runsScript(j.TaskGroups[0], "[ $NOMAD_ALLOC_INDEX = 0 ] && sleep 1200 && exit 3; sleep 36000")
						}})
						w.ExpectRunning("a", 10*time.Second)
						w.RunFor(19 * time.Minute) // from here on, each moment matters
						was := w.Members(Key("a"))[0].ID
						tried := w.failNext(f, func(r nomadtest.Request) bool { return r.Write() && write(r) })
						if !w.until(time.Hour, 20*time.Millisecond, tried) {
							t.Fatal("not written")
						}
						if kill >= 0 {
							w.RunFor(kill)
							first.Kill()
							w.StartPlacer()
						}
						w.countsOnce(was, 19*time.Minute)
					})
				})
			}
		}
	}
}

// Whatever happens to a running gang, a placer that starts later trusts its record: it does not
// change how long the gang ran and waited, nor when and why it was placed.
func TestValidRecordStays(t *testing.T) {
	type what struct {
		name string
		g    Gang
		do   func(w *World)
	}
	stopOne := func(w *World) {
		if _, err := w.Author.Allocations().Stop(&api.Allocation{ID: w.Members(Key("a"))[0].ID}, nil); err != nil {
			w.T.Fatal(err)
		}
	}
	scale := func(n int) func(w *World) { return func(w *World) { w.scale("a", n) } }
	var all []what
	for i, pin := range []string{"gpu", "class", "prefer"} {
		m := map[string]string{"pal_pin": pin, "pal_preempt": "true"}
		batch := Gang{Name: "a", Members: 3, Runs: 50 * time.Hour, Priority: 20, Meta: m, Change: func(j *api.Job) {
			runsScript(j.TaskGroups[0], "[ $NOMAD_ALLOC_INDEX = 0 ] && sleep 4000 && exit 0; sleep 360000")
		}}
		loose := batch
		loose.Reschedules = 5
		together := maps.Clone(m)
		together["pal_on_failure"] = "gang"
		svc := Gang{Name: "a", Members: 3, Service: true, Reschedules: 20, Priority: 20, Meta: together}
		of := []what{
			{pin + " finished in part", batch, func(w *World) { w.RunFor(2 * time.Hour) }},
			{pin + " alloc stopped", loose, stopOne},
			{pin + " scaled down", batch, scale(2)},
			{pin + " scaled up", batch, scale(4)},
			{pin + " service scaled down", svc, scale(2)},
			{pin + " service scaled up", svc, scale(5)},
			{pin + " service alloc stopped", svc, stopOne},
			{pin + " edited", batch, func(w *World) {
				if err := w.Edit(Key("a"), func(j *api.Job) { j.Priority = new(30) }); err != nil {
					w.T.Fatal(err)
				}
			}},
			{pin + " service updated", svc, func(w *World) {
				if err := w.Edit(Key("a"), func(j *api.Job) { j.TaskGroups[0].Tasks[0].Env = map[string]string{"x": "y"} }); err != nil {
					w.T.Fatal(err)
				}
			}},
			{pin + " service drained", svc, func(w *World) { w.Nomad.Drain(w.Members(Key("a"))[0].Node) }},
			{pin + " drained", batch, func(w *World) { w.Nomad.Drain(w.Members(Key("a"))[0].Node) }},
		}
		for n, x := range of {
			if !long.Skips(n, i, 3) {
				all = append(all, x)
			}
		}
	}
	for _, x := range all {
		t.Run(x.name, func(t *testing.T) {
			Run(t, Options{Seed: 1, Unchecked: true, Placer: func(c *model.Config) { preempting(c) }}, func(w *World) {
				w.AddNodes(3, 3)
				first := w.StartPlacer()
				w.Submit(x.g)
				w.ExpectRunning("a", 20*time.Second)
				w.RunFor(10 * time.Minute)
				if x.g.Change != nil { // it has been stopped once, and has run before
					w.Submit(Gang{Name: "urgent", Members: 9, Runs: 5 * time.Minute, Priority: 90})
					w.RunFor(20 * time.Minute)
					w.ExpectRunning("a", 20*time.Minute)
					w.RunFor(10 * time.Minute)
				}
				x.do(w)
				w.RunFor(20 * time.Minute)
				b := w.decision("a")
				first.Kill()
				w.StartPlacer()
				w.RunFor(20 * time.Minute)
				r := w.decision("a")
				if say := differs(b, r); say != "" {
					t.Errorf("%s\n%s", say, w.Describe())
				}
			})
		})
	}
}

func differs(b, r gang.Record) string {
	if b.Attained != r.Attained || b.Waited != r.Waited || b.Note != r.Note || !b.Decided.Equal(r.Decided) || !b.Submitted.Equal(r.Submitted) || b.UserFailures != r.UserFailures || b.Outage.Failures != r.Outage.Failures {
		return fmt.Sprintf("ran %v waited %v decided %v submitted %v note %q failures %d %d\nnow %v %v %v %v %q %d %d", b.Attained, b.Waited, b.Decided, b.Submitted, b.Note, b.UserFailures, b.Outage.Failures,
			r.Attained, r.Waited, r.Decided, r.Submitted, r.Note, r.UserFailures, r.Outage.Failures)
	}
	return ""
}

// The same for elastic gangs that have shrunk and grown.
func TestValidElasticRecordStays(t *testing.T) {
	for _, size := range []int{1, 2, 3, 8} {
		for _, step := range []time.Duration{0, time.Minute, -time.Minute} {
			t.Run(fmt.Sprint(size, step), func(t *testing.T) {
				Run(t, Options{Seed: 1, Unchecked: true}, func(w *World) {
					w.AddNodes(2, 4)
					w.Nomad.StepClock(step)
					first := w.StartPlacer()
					w.Submit(Gang{Name: "a", Members: 2, GPUs: 1, Runs: 100 * time.Hour, Reschedules: 5, Change: elastic(1, 8), Meta: map[string]string{"pal_duration": "10h"}})
					w.RunFor(20 * time.Minute)
					if size < 8 {
						w.Submit(Gang{Name: "b", Members: 8 - size, GPUs: 1, Runs: 50 * time.Hour, Meta: map[string]string{"pal_duration": "1m"}})
					}
					w.RunFor(20 * time.Minute)
					if n := len(w.Members(Key("a"))); n != size {
						t.Fatalf("%d members", n)
					}
					b := w.decision("a")
					first.Kill()
					w.StartPlacer()
					w.RunFor(20 * time.Minute)
					if say := differs(b, w.decision("a")); say != "" {
						t.Errorf("%s", say)
					}
				})
			})
		}
	}
}
