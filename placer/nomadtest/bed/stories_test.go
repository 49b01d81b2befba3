// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
)

// Nomad refuses the placer its events, without an error. Gangs start late, and operators get a
// warning until events arrive.
func TestEventsRefused(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(2, 4)
		w.Nomad.RefuseEvents("placer-1", true)
		p := w.StartPlacer()
		w.RunFor(5 * time.Second)
		w.Submit(Gang{Name: "a", Members: 2, GPUs: 4, Runs: time.Minute})
		w.ExpectRunning("a", time.Minute)
		warned := func() bool {
			return slices.ContainsFunc(p.Status().Warnings, func(s string) bool { return strings.Contains(s, "following Nomad's events fails: ") })
		}
		w.Expect("a warning", time.Minute, warned)
		w.Nomad.RefuseEvents("placer-1", false)
		w.RunFor(time.Minute)
		w.Submit(Gang{Name: "b", Members: 2, GPUs: 4, Runs: time.Minute})
		w.Expect("the warning has disappeared", time.Minute, func() bool { return !warned() })
		w.ExpectFinished("b", 5*time.Minute)
	})
}

// The event stream goes silent, loses events, or delivers them late and twice. The placer continues
// with what the lists show.
func TestEventsGoWrong(t *testing.T) {
	for name, wrong := range map[string]func(w *World){
		"silent":        func(w *World) { w.Nomad.Silence() },
		"all are lost":  func(w *World) { w.Nomad.SetEventFaults(nomadtest.EventFaults{SilentlyLost: 1}) },
		"some are lost": func(w *World) { w.Nomad.SetEventFaults(nomadtest.EventFaults{Lost: 0.3}) },
		"late and twice": func(w *World) {
			w.Nomad.SetEventFaults(nomadtest.EventFaults{Late: 0.4, Doubled: 0.4, Delay: 20 * time.Second})
		},
	} {
		t.Run(name, func(t *testing.T) {
			Run(t, Options{Seed: 1, Partial: 10 * time.Minute}, func(w *World) {
				w.AddNodes(2, 4)
				w.StartPlacer()
				w.Submit(Gang{Name: "a", Members: 2, GPUs: 4, Runs: time.Minute})
				w.ExpectRunning("a", 5*time.Second)
				wrong(w)
				w.Submit(Gang{Name: "b", Members: 2, GPUs: 4, Runs: time.Minute})
				w.ExpectFinished("a", 2*time.Minute)
				w.ExpectFinished("b", 15*time.Minute)
			})
		})
	}
}

// A machine is reinstalled: its node is purged, without an event from Nomad, and comes back with
// another id. Its GPUs do not count for the old node until the next full read.
func TestPurgedAndBack(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(1, 2)
		w.StartPlacer()
		w.RunFor(time.Minute)
		w.Nomad.PurgeNode(NodeID(0))
		w.RunFor(time.Minute)
		back := nomadtest.GPUNode(0, 2)
		back.ID = NodeID(9)
		w.Nomad.AddNode(back)
		w.Submit(Gang{Name: "a", GPUs: 2})
		w.ExpectRunning("a", 30*time.Second)
	})
}

// For a minute, in the middle of its work, none of the placer's requests is answered.
func TestBlackHole(t *testing.T) {
	for _, f := range []nomadtest.Fault{nomadtest.Lost, nomadtest.Unanswered} {
		t.Run(f.String(), func(t *testing.T) {
			Run(t, Options{Seed: 1}, func(w *World) {
				w.AddNodes(2, 4)
				w.StartPlacer()
				w.Submit(Gang{Name: "before", Members: 2, GPUs: 2, Runs: 30 * time.Second})
				w.ExpectRunning("before", 5*time.Second)
				w.Nomad.FailBy(func(r nomadtest.Request) nomadtest.Fault {
					if r.Client == "author" {
						return nomadtest.None
					}
					return f
				})
				w.Submit(Gang{Name: "in it", Members: 2, GPUs: 2, Runs: 30 * time.Second})
				w.RunFor(time.Minute)
				w.Nomad.FailBy(nil)
				w.Excuse()
				w.Submit(Gang{Name: "after", Members: 2, GPUs: 2, Runs: 30 * time.Second})
				for _, name := range []string{"before", "in it", "after"} {
					w.ExpectFinished(name, 5*time.Minute)
				}
			})
		})
	}
}

// A gang that fails through its own fault is retried on other nodes each time, even if its other
// members take longer to end than the pause before the next try.
func TestRetriesGoElsewhere(t *testing.T) {
	for _, kill := range []time.Duration{300 * time.Millisecond, 5 * time.Second} {
		t.Run(kill.String(), func(t *testing.T) {
			Run(t, Options{Seed: 1, Nomad: nomadtest.Options{Kill: kill}}, func(w *World) {
				w.AddNodes(8, 8)
				w.StartPlacer()
				w.Submit(Gang{Name: "a", Members: 2, GPUs: 1, Runs: 6 * time.Second, Exit: 1, Change: func(j *api.Job) {
					j.TaskGroups[0].Tasks[0].Config["args"] = []string{"-c", "[ $NOMAD_ALLOC_INDEX = 0 ] && exit 1; sleep infinity"}
					j.TaskGroups[0].Tasks[0].KillTimeout = new(time.Minute)
				}})
				w.RunFor(3 * time.Minute)
				tried := map[string]uint64{}
				for _, m := range w.Nomad.Members(Key("a")) {
					if v, ok := tried[m.Node]; ok && v != *m.Version.Version {
						t.Errorf("node %s is used again, although others are free", m.Node)
					}
					tried[m.Node] = *m.Version.Version
				}
				if len(tried) != 3 {
					t.Errorf("tried on %d nodes, want three", len(tried))
				}
			})
		})
	}
}

// All members of a gang fail at once, so Nomad shows its job as dead. The gang is retried on other
// GPUs and then given up, unless its author wants no retry (pal_on_failure).
func TestFailsAtOnceAndIsTriedElsewhere(t *testing.T) {
	for _, c := range []struct {
		name        string
		reschedules int
		meta        map[string]string
		want        int // GPUs
	}{
		{"Nomad's default", 1, nil, 3},
		{"never by Nomad", 0, nil, 3},
		{"no other try", 1, map[string]string{"pal_on_failure": "none"}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			Run(t, Options{Seed: 1}, func(w *World) {
				w.AddNodes(8, 2)
				p := w.StartPlacer()
				w.Submit(Gang{Name: "a", GPUs: 1, Runs: 2 * time.Second, Exit: 1, Reschedules: c.reschedules, Meta: c.meta})
				w.Expect("it runs", 5*time.Second, func() bool { return len(w.GPUs(Key("a"))) > 0 })
				tried := map[string]bool{}
				for range 300 {
					for _, id := range w.GPUs(Key("a")) {
						tried[id] = true
					}
					w.RunFor(200 * time.Millisecond)
				}
				if len(tried) != c.want {
					w.T.Errorf("tried on %v, want %d GPUs", tried, c.want)
				}
				var phase palapi.State
				for _, j := range p.Status().Jobs {
					phase = j.State
				}
				if phase != palapi.Failed {
					w.T.Errorf("it is %q", phase)
				}
			})
		})
	}
}

// A job that cannot fit on this cluster comes after all jobs that can run.
func TestImpossibleStandsLast(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(2, 4)
		p := w.StartPlacer()
		w.Submit(Gang{Name: "busy", Members: 2, GPUs: 4})
		w.ExpectRunning("busy", 5*time.Second)
		w.Submit(Gang{Name: "impossible", Members: 3, GPUs: 4})
		w.RunFor(time.Second)
		w.Submit(Gang{Name: "next", Members: 1, GPUs: 4})
		w.RunFor(5 * time.Second)
		for _, j := range p.Status().Jobs {
			if j.Job == "impossible" && (j.Position != 0 || j.State != palapi.Unschedulable) || j.Job == "next" && j.Position != 1 {
				t.Errorf("%s has position %d: %s: %s", j.Job, j.Position, j.State, j.Reason.String())
			}
		}
	})
}

// A node is back while the servers' clocks are wrong. Nothing starts on GPUs on which it still runs
// tasks (walks 4, 26, 28, 63 with steps of the clocks).
func TestNodeIsBackAfterAClockStep(t *testing.T) {
	for _, by := range []time.Duration{-time.Hour, 0, time.Hour} {
		t.Run(by.String(), func(t *testing.T) {
			Run(t, Options{Seed: 1, Nomad: nomadtest.Options{Kill: 10 * time.Second}}, func(w *World) {
				w.AddNodes(1, 2)
				w.StartPlacer()
				w.Submit(Gang{Name: "a", GPUs: 2})
				w.ExpectRunning("a", 5*time.Second)
				w.Nomad.CutNode(NodeID(0))
				w.RunFor(5 * time.Second)
				if err := w.Stop(Key("a")); err != nil {
					t.Fatal(err)
				}
				w.Submit(Gang{Name: "b", GPUs: 2, Runs: time.Second})
				w.Nomad.StepClock(by)
				w.Nomad.RecoverNode(NodeID(0))
				w.ExpectFinished("b", time.Minute)
			})
		})
	}
}

// A job whose pins name nodes, not GPUs, does not get a GPU that is in quarantine, or one on which
// a returned node still runs lost tasks (walk 172).
func TestServiceGetsNoGPUThatIsKeptOut(t *testing.T) {
	t.Run("its node is back", func(t *testing.T) {
		Run(t, Options{Seed: 3, Nomad: nomadtest.Options{Kill: 10 * time.Second}}, func(w *World) {
			w.AddNodes(1, 2)
			w.Nomad.Observe(nomadtest.Observer{Shared: func(gpu string, a, b nomadtest.Member) {
				t.Errorf("%s starts on GPU %s, which still runs %s", b.Job, gpu, a.Job)
			}})
			w.StartPlacer()
			w.Submit(Gang{Name: "a", GPUs: 1, Priority: 20})
			w.ExpectRunning("a", 5*time.Second)
			w.Nomad.CutNode(NodeID(0))
			w.RunFor(5 * time.Second)
			if err := w.Stop(Key("a")); err != nil {
				t.Fatal(err)
			}
			w.Submit(Gang{Name: "s", GPUs: 1, Service: true, Meta: map[string]string{"pal_on_failure": "gang"}, Priority: 80})
			w.Nomad.RecoverNode(NodeID(0))
			w.ExpectRunning("s", 8*time.Second)
		})
	})
	t.Run("quarantine", func(t *testing.T) {
		for seed := range uint64(4) {
			Run(t, Options{Seed: seed}, func(w *World) {
				w.AddNodes(1, 2)
				w.Quarantine("GPU-0-1")
				w.StartPlacer()
				w.Submit(Gang{Name: "s", GPUs: 1, Service: true, Meta: map[string]string{"pal_on_failure": "gang"}})
				w.ExpectRunning("s", 8*time.Second)
				if got := w.GPUs(Key("s")); got[0] == "GPU-0-1" {
					t.Errorf("seed %d: it runs on %v, which is in quarantine", seed, got)
				}
			})
		}
	})
}

// The tasks of a purged job run for up to their kill_timeout, although no list contains their
// allocations. Until then, their GPUs are not given to others, even if the job is registered again.
func TestPurgedTasksGoOn(t *testing.T) {
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprint(again), func(t *testing.T) {
			Run(t, Options{Seed: 1, Nomad: nomadtest.Options{Kill: 8 * time.Second}}, func(w *World) {
				w.AddNodes(1, 2)
				w.StartPlacer()
				w.Submit(Gang{Name: "a", GPUs: 2, Change: func(j *api.Job) { j.TaskGroups[0].Tasks[0].KillTimeout = new(20 * time.Second) }})
				w.ExpectRunning("a", 5*time.Second)
				w.RunFor(10 * time.Second)
				w.Submit(Gang{Name: "b", GPUs: 2, Runs: time.Second, Priority: 80})
				if err := w.Purge(Key("a")); err != nil {
					t.Fatal(err)
				}
				if w.RunFor(100 * time.Millisecond); again {
					w.Submit(Gang{Name: "a", GPUs: 2})
				}
				w.ExpectFinished("b", time.Minute)
			})
		})
	}
}

// While a cycle waits for an answer, Nomad places a job that only it manages, which the placer has
// never seen. The author purges that job (walk 301247), or its node is lost until shortly after the
// answer (walk 4001471). Its tasks take a while to end, and Nomad counts its GPUs as free. Meanwhile
// no gang may be sent there.
func TestGoneDuringACycle(t *testing.T) {
	for name, goes := range map[string]func(w *World){
		"purged": func(w *World) {
			w.RunFor(9 * time.Second)
			if err := w.Purge(Key("native")); err != nil {
				t.Fatal(err)
			}
		},
		"lost": func(w *World) {
			w.Nomad.CutNode(NodeID(0))
			w.RunFor(5 * time.Second)
			if err := w.Stop(Key("native")); err != nil {
				t.Fatal(err)
			}
			w.RunFor(4800 * time.Millisecond)
			w.Nomad.RecoverNode(NodeID(0))
		},
	} {
		t.Run(name, func(t *testing.T) {
			Run(t, Options{Seed: 1, Nomad: nomadtest.Options{Kill: 8 * time.Second}}, func(w *World) {
				w.AddNodes(1, 2)
				w.StartPlacer()
				w.Submit(Gang{Name: "fails", GPUs: 2, Runs: 30 * time.Second, Exit: 1, Meta: map[string]string{"pal_on_failure": "none"}})
				w.ExpectRunning("fails", 5*time.Second)
				w.RunFor(10 * time.Second)
				w.Submit(Gang{Name: "waits", GPUs: 2, Runs: time.Minute})
				w.Submit(Gang{Name: "native", GPUs: 2, Ungated: true, Runs: time.Hour})
				w.Nomad.Fail("placer-1", "PUT /v1/var/nomad-pal/failures", nomadtest.Slow, 1)
				w.ExpectRunning("native", time.Minute)
				goes(w)
				w.ExpectFinished("waits", 2*time.Minute)
			})
		})
	}
}

// A gang is purged while it is requeued, and Nomad writes the registration late: that restores the
// job, and the decision that follows makes a second version. The job is purged again (walk 178 with
// steps of the clocks).
func TestPurgedWhileItIsRequeued(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(2, 2)
		w.StartPlacer()
		w.Submit(Gang{Name: "a", GPUs: 2, Runs: time.Hour})
		w.ExpectRunning("a", 5*time.Second)
		var late atomic.Bool
		w.Nomad.FailBy(func(r nomadtest.Request) nomadtest.Fault {
			if r.Match("PUT /v1/jobs") && late.CompareAndSwap(false, true) {
				return nomadtest.SlowWrite
			}
			return nomadtest.None
		})
		w.Nomad.Drain(w.Members(Key("a"))[0].Node)
		w.Expect("it is requeued", 30*time.Second, late.Load)
		if err := w.Purge(Key("a")); err != nil {
			t.Fatal(err)
		}
		w.RunFor(3 * time.Minute) // the placer does not query a slow answer again at once
		if job := w.Nomad.Job(Key("a")); job != nil {
			t.Errorf("it exists again:\n%s", w.Describe())
		}
	})
}

// Nomad writes a placer's start of a gang ten seconds after it has checked it, when another
// placer's start of the gang has already finished. So Nomad runs the gang again. The placer learns
// of it and stops the job as soon as Nomad allows (walk 3002590).
func TestLateStartOfAFinishedGang(t *testing.T) {
	for _, slow := range []bool{false, true} {
		t.Run(fmt.Sprint("slow stop ", slow), func(t *testing.T) {
			Run(t, Options{Seed: 3}, func(w *World) {
				w.AddNodes(1, 2)
				w.Submit(Gang{Name: "native", Ungated: true, Runs: 2 * time.Second})
				w.ExpectRunning("native", time.Second)
				w.StartPlacer()
				late := w.Nomad.Fail("placer-1", "PUT /v1/jobs", nomadtest.SlowWrite, 1)
				w.Submit(Gang{Name: "a", Runs: 3 * time.Second})
				w.ExpectFinished("native", 3*time.Second)
				w.StartPlacer() // chooses the other GPU
				w.ExpectFinished("a", 8*time.Second)
				if slow {
					w.Nomad.Fail("placer-1", "DELETE /v1/job", nomadtest.SlowWrite, 1)
				}
				w.RunFor(30 * time.Second)
				w.ExpectGone("a", 0)
				if late() != 1 || !*w.Nomad.Job(Key("a")).Stop {
					t.Errorf("it was not stopped:\n%s", w.Describe())
				}
			})
		})
	}
}

// Nomad writes a placer's registration after the placer has stopped waiting for it, and after the
// author has purged the job. The job is purged again, whatever was registered.
func TestPurgedBeforeALateWrite(t *testing.T) {
	for name, late := range map[string]func(w *World){
		"start": func(w *World) {
			w.Nomad.Fail("placer-1", "PUT /v1/jobs", nomadtest.LateWrite, 1)
			w.Submit(Gang{Name: "a", Members: 2, Runs: time.Hour})
		},
		"stop": func(w *World) {
			w.Submit(Gang{Name: "a", Members: 2, Runs: time.Hour, Priority: 20, Meta: map[string]string{"pal_preempt": "true"}})
			w.ExpectRunning("a", 10*time.Second)
			w.RunFor(10 * time.Minute)
			w.Nomad.Fail("placer-1", "PUT /v1/jobs", nomadtest.LateWrite, 1)
			w.Submit(Gang{Name: "urgent", Members: 2, Runs: 10 * time.Second, Priority: 90})
		},
	} {
		for _, soon := range []time.Duration{time.Second, 17 * time.Second} {
			t.Run(fmt.Sprint(name, " ", soon), func(t *testing.T) {
				Run(t, Options{Seed: 1, Placer: preempting}, func(w *World) {
					w.AddNodes(1, 2)
					w.StartPlacer()
					w.RunFor(time.Second)
					late(w)
					w.RunFor(soon)
					if err := w.Purge(Key("a")); err != nil {
						t.Fatal(err)
					}
					w.RunFor(40 * time.Second)
					if job := w.Nomad.Job(Key("a")); job != nil || len(w.Members(Key("a"))) > 0 {
						t.Errorf("it exists again:\n%s", w.Describe())
					}
				})
			})
		}
	}
}

// A gang was stopped for another gang and is still ending when a new placer starts. The new placer
// does not stop a second gang: the GPUs that become free suffice.
func TestRestartWhileAGangEnds(t *testing.T) {
	for _, after := range []time.Duration{100 * time.Millisecond, 3 * time.Second, 20 * time.Second} {
		t.Run(after.String(), func(t *testing.T) {
			Run(t, Options{Seed: 1, Placer: preempting, Nomad: nomadtest.Options{Kill: 30 * time.Second}}, func(w *World) {
				w.AddNodes(2, 2)
				first := w.StartPlacer()
				minute := func(j *api.Job) { j.TaskGroups[0].Tasks[0].KillTimeout = new(time.Minute) }
				low := []string{"low-1", "low-2"}
				for _, name := range low {
					w.Submit(Gang{Name: name, Members: 2, Runs: time.Hour, Priority: 20, Meta: map[string]string{"pal_preempt": "true"}, Change: minute})
					w.ExpectRunning(name, 10*time.Second)
				}
				w.RunFor(10 * time.Minute)
				w.Submit(Gang{Name: "urgent", Members: 2, Runs: time.Hour, Priority: 90})
				w.RunFor(after)
				first.Kill()
				w.StartPlacer()
				w.ExpectRunning("urgent", 70*time.Second)
				var stopped []string
				for _, name := range low {
					if slices.ContainsFunc(w.Nomad.Members(Key(name)), func(m nomadtest.Member) bool { return m.Desired == api.AllocDesiredStatusStop }) {
						stopped = append(stopped, name)
					}
				}
				if len(stopped) != 1 {
					t.Errorf("stopped gangs: %q, want one:\n%s", stopped, w.Describe())
				}
			})
		})
	}
}
