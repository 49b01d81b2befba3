// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
)

// An author has purged hundreds of jobs. Nomad is slow to remove the records of their decisions,
// but no other job waits for that.
func TestManyRecordsToRemove(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(2, 4)
		const many = 300
		gone := func() (n int) {
			for i := range many {
				if w.Nomad.Variable("default", fmt.Sprint("nomad-pal/decisions/aaa/old-", i)) == nil {
					n++
				}
			}
			return n
		}
		for i := range many {
			w.Nomad.SetVariable("default", fmt.Sprint("nomad-pal/decisions/aaa/old-", i), map[string]string{"decision": "{}"})
		}
		w.Nomad.FailBy(func(r nomadtest.Request) nomadtest.Fault {
			if r.Method == http.MethodDelete {
				return nomadtest.Slow
			}
			return nomadtest.None
		})
		w.StartPlacer()
		w.Submit(Gang{Name: "a", Members: 2, GPUs: 2, Runs: time.Minute})
		w.ExpectRunning("a", time.Minute)
		w.Nomad.FailBy(nil)
		w.Expect("they are removed in the end", 2*time.Hour, func() bool { return gone() == many })
	})
}

// While Nomad takes long to answer about one job, jobs in the same namespace start if the placer
// needs no answer about them.
func TestSlowAnswerHoldsNoNewJob(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(2, 4)
		edited := Gang{Name: "aaa", GPUs: 8, Runs: time.Hour}.Job()
		for range 2 {
			if err := w.Register(edited); err != nil {
				t.Fatal(err)
			}
			edited.Meta = map[string]string{"changed": "yes"}
		}
		w.Submit(Gang{Name: "new", GPUs: 4, Runs: time.Hour})
		w.Nomad.FailBy(func(r nomadtest.Request) nomadtest.Fault {
			if strings.HasSuffix(r.Path, "/job/aaa/versions") {
				return nomadtest.Slow
			}
			return nomadtest.None
		})
		w.StartPlacer()
		w.ExpectRunning("new", 15*time.Second) // the slow answer takes ten of these
	})
}

// While a start waits for an answer of Nomad, Nomad gives the start's GPUs to another job. Then the
// start is postponed (walks 8500446 and 8500622). Otherwise Nomad may preempt that job, and start
// some of the gang's members while the other job's tasks still run. This also holds if the placer
// cannot know about that job, because the servers have restarted and its event stream has ended
// (walk 9002546).
func TestGPUsTakenBeforeTheStart(t *testing.T) {
	const source, plan = "GET /v1/job/gang/submission", "PUT /v1/job/gang/plan"
	for name, c := range map[string]struct {
		slow    string
		restart bool
	}{"source": {source, false}, "plan": {plan, false}, "source, restart": {source, true}, "plan, restart": {plan, true}} {
		t.Run(name, func(t *testing.T) {
			Run(t, Options{Seed: 1}, func(w *World) {
				w.AddNodes(1, 2)
				w.Nomad.SetPreemption(true)
				w.StartPlacer()
				w.RunFor(time.Second)
				w.Nomad.Fail("placer-1", c.slow, nomadtest.Slow, 1)
				w.Submit(Gang{Name: "gang", Members: 2, Runs: time.Minute, Change: func(j *api.Job) {
					j.TaskGroups[0].Tasks[0].Resources.Cores = new(1) // makes the placer request a dry run
				}})
				w.RunFor(500 * time.Millisecond)
				if c.restart {
					w.Nomad.Restart()
				}
				w.Submit(Gang{Name: "other", GPUs: 2, Runs: 5 * time.Minute, Ungated: true, Priority: 10})
				w.ExpectRunning("other", 5*time.Second)
				w.ExpectWaiting("gang", 4*time.Minute)
				if log := w.log.String(); !strings.Contains(log, "not started: job=gang") || strings.Contains(log, "registered: job=gang") {
					t.Errorf("nothing was sent for the gang, but the log is\n%s", log)
				}
				w.ExpectFinished("gang", 5*time.Minute)
			})
		})
	}
}

// startsSlowly submits a gang, and returns while the placer waits for this answer of Nomad to start it.
func (w *World) startsSlowly(request string) *Placer {
	w.T.Helper()
	w.AddNodes(1, 2)
	p := w.StartPlacer()
	w.RunFor(time.Second)
	w.Nomad.Fail(p.Name, request, nomadtest.Slow, 1)
	w.Submit(Gang{Name: "gang", Members: 2, Runs: time.Minute, Change: func(j *api.Job) {
		j.TaskGroups[0].Tasks[0].Resources.Cores = new(1) // makes the placer request a dry run
	}})
	w.Expect("the placer waits for Nomad", 3*time.Second, func() bool { return w.Nomad.Faults()["slow"] > 0 })
	return p
}

// While a start waits for an answer of Nomad, somebody puts the job on hold. If the placer has not
// yet sent the start, it does not send it. Otherwise, the answer to the hold reports this.
func TestHeldBeforeTheStart(t *testing.T) {
	const source, plan, registration = "GET /v1/job/gang/submission", "PUT /v1/job/gang/plan", "PUT /v1/jobs"
	for name, slow := range map[string]string{"source": source, "plan": plan, "registration": registration} {
		t.Run(name, func(t *testing.T) {
			Run(t, Options{Seed: 1}, func(w *World) {
				p := w.startsSlowly(slow)
				is, err := p.Control(w.T.Context(), Key("gang"), func(of *gang.Control) { of.Held = &gang.Said{By: "ada", At: time.Now()} })
				if sent := slow == registration; err != nil || is.Starting != sent {
					t.Errorf("the start was sent: %v, told %v, %v", sent, is.Starting, err)
				}
				w.RunFor(time.Minute)
				if got := w.GPUs(Key("gang")); len(got) > 0 != is.Starting {
					t.Errorf("the held gang has %v, although its start was sent: %v", got, is.Starting)
				}
			})
		})
	}
}

// While a start waits for an answer of Nomad, an operator puts one of its GPUs in quarantine. The
// start is not sent.
func TestKeptFromTheStart(t *testing.T) {
	for _, slow := range []string{"GET /v1/job/gang/submission", "PUT /v1/job/gang/plan"} {
		t.Run(slow, func(t *testing.T) {
			Run(t, Options{Seed: 1}, func(w *World) {
				p := w.startsSlowly(slow)
				if err := placer.PutInQuarantine(w.T.Context(), w.client(), time.Hour, "fan", "GPU-0-1"); err != nil {
					t.Fatal(err)
				}
				p.Reread()
				w.RunFor(time.Minute)
				if log := w.log.String(); !strings.Contains(log, "not started: job=gang") || strings.Contains(log, "registered: job=gang") {
					t.Errorf("nothing was sent for the gang, but the log is\n%s", log)
				}
			})
		})
	}
}

// If Nomad does not answer requests about one author's jobs, for example because their versions are
// huge, only that author's jobs are not placed.
func TestOneAuthorsRequestsAreNotAnswered(t *testing.T) {
	for _, f := range []nomadtest.Fault{nomadtest.Lost, nomadtest.Slow} {
		t.Run(f.String(), func(t *testing.T) {
			Run(t, Options{Seed: 1}, func(w *World) {
				w.AddNodes(2, 4)
				w.Nomad.FailBy(func(r nomadtest.Request) nomadtest.Fault {
					if r.Client != "author" && strings.HasPrefix(r.Path, "/v1/job/aaa-") && strings.HasSuffix(r.Path, "/versions") {
						return f
					}
					return nomadtest.None
				})
				p := w.StartPlacer()
				w.RunFor(time.Second)
				for i := range 50 {
					job := Gang{Name: fmt.Sprint("aaa-", i), Namespace: "aaa", GPUs: 8}.Job()
					for range 2 { // the second one becomes version 1
						if err := w.Register(job); err != nil {
							t.Fatal(err)
						}
						job.Meta = map[string]string{"changed": "yes"}
					}
				}
				for i := range 5 {
					name := fmt.Sprint("good-", i)
					w.Submit(Gang{Name: name, Members: 2, GPUs: 2, Runs: 10 * time.Second, Change: func(j *api.Job) { j.Meta = map[string]string{} }})
					w.ExpectRunning(name, time.Minute)
					w.ExpectFinished(name, 2*time.Minute)
				}
				if v := p.Vitals(); v.Restarts > 0 {
					t.Errorf("the placer restarted %d times: %s", v.Restarts, v.LastError)
				}
			})
		})
	}
}

// Nomad is slow to answer why a gang is incomplete, and meanwhile the gang becomes complete.
// Nothing of it is stopped because of the old state (walk 45888).
func TestWholeWhileNomadAnswers(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(2, 2)
		w.StartPlacer()
		w.Submit(Gang{Name: "a", GPUs: 2, Runs: time.Hour, Reschedules: 1})
		w.ExpectRunning("a", time.Minute)
		w.RunFor(10 * time.Second) // longer than the gang may be incomplete
		node := w.Members(Key("a"))[0].Node
		w.Nomad.CutNode(node)
		w.Nomad.Fail("placer-1", "GET /v1/job/a/evaluations", nomadtest.Slow, 1)
		w.Expect("its member is lost", time.Minute, func() bool { return len(w.Members(Key("a"))) == 0 })
		w.RunFor(time.Second)
		w.Nomad.RecoverNode(node)
		w.ExpectRunning("a", 5*time.Second)
		version := *w.Nomad.Job(Key("a")).Version
		w.RunFor(time.Minute)
		if job := w.Nomad.Job(Key("a")); *job.Version != version || !w.Running(Key("a")) {
			t.Errorf("it was registered again while it ran: %s", w.Describe())
		}
	})
}
