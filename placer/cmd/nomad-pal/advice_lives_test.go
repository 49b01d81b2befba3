// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/internal/advice"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
)

// life is a problem of a job, explain's advice about it, and the result of following that.
type life struct {
	tenant func() queue.Tenant // the namespace's tenant, when a placer starts; nil for no limit
	comes  func(w *bed.World)  // leads to the advice
	job    string              // "": the child of template t
	says   string
	follow func(w *bed.World)
	then   func(w *bed.World) bool // nil: the job runs
	slow   bool                    // clients need minutes to start a task
}

// told is what explain prints about a job.
func told(w *bed.World, name string) string {
	s := w.Picture()
	if s == nil {
		w.T.Fatal("no placer is active")
	}
	e, err := s.Explain(w.T.Context(), bed.Key(name))
	if err != nil {
		return err.Error()
	}
	var out bytes.Buffer
	printExplanation(&base{ctx: w.T.Context(), io: streams{out: &out}}, e)
	return oneLine(out.String())
}

// adviceOnLives follows explain's advice about jobs.
func adviceOnLives(t *testing.T, f *advice.Followed) {
	for _, lives := range []map[string]life{failedLives(), childrenLives(), limitedLives(), memberLives(), otherLives()} {
		for name, l := range lives {
			t.Run(name, func(t *testing.T) { l.lead(t, f) })
		}
	}
}

func (l life) lead(t *testing.T, f *advice.Followed) {
	var slow nomadtest.Options
	if l.slow {
		slow.Client = 5 * time.Minute
	}
	bed.Run(t, bed.Options{Seed: 1, Unchecked: true, Nomad: slow, Placer: func(c *model.Config) {
		if l.tenant != nil {
			c.Queue.Tenants = map[string]queue.Tenant{"default": l.tenant()}
		}
	}}, func(w *bed.World) {
		l.comes(w)
		job := l.job
		if job == "" {
			job = childOf(w)
		}
		text := ""
		for range 360 { // an hour
			if text = told(w, job); advice.Shows(text, l.says) {
				break
			}
			w.RunFor(10 * time.Second)
		}
		if !f.Add(text, l.says) {
			w.T.Fatalf("explain does not advise %q:\n%s\n%s", l.says, text, w.Describe())
		}
		l.follow(w)
		then := l.then
		if then == nil {
			then = func(w *bed.World) bool { return w.Running(bed.Key(job)) }
		}
		w.Expect(job+" fares as promised", 15*time.Minute, func() bool { return then(w) })
		w.RunFor(time.Minute)
		if text := told(w, job); advice.Shows(text, l.says) {
			w.T.Errorf("the advice was followed, but explain still gives it:\n%s", text)
		}
	})
}

// takesPayload runs template t with a payload beside a node with variability classes.
func takesPayload(w *bed.World, payload string) {
	n := nomadtest.GPUNode(0, 4)
	ids, count := "GPU-0-0,GPU-0-1", int64(2)
	n.NodeResources.Devices[0].Attributes = map[string]*api.Attribute{"unique.variability_a_le_2": {StringVal: &ids}, "variability_a_le_2_count": {IntVal: &count}}
	w.Nomad.AddNode(n)
	w.StartPlacerOfChildren()
	w.Submit(bed.Gang{Name: "t", Change: func(j *api.Job) {
		bed.Parameterized(j)
		j.ParameterizedJob.Payload = payload
	}})
}

// constrained runs template t again without a gate, with a native class constraint, and dispatches
// it.
func constrained(w *bed.World, payload string) {
	w.Submit(bed.Gang{Name: "t", Ungated: true, Change: func(j *api.Job) {
		bed.Parameterized(j)
		j.ParameterizedJob.Payload = payload
		d := j.TaskGroups[0].Tasks[0].Resources.Devices[0]
		d.Constraints = []*api.Constraint{
			{LTarget: "${device.ids}", Operand: "set_contains_any", RTarget: "${device.attr.unique.variability_a_le_2}"},
			{LTarget: "${device.attr.variability_a_le_2_count}", Operand: ">=", RTarget: "1"},
		}
	}})
	dispatchWithPayload(w)
}

func dispatchWithPayload(w *bed.World) {
	_, _, err := w.Author.Jobs().Dispatch("t", nil, []byte("x"), "", nil)
	must(w, err)
}

func childRuns(w *bed.World) bool {
	all := w.ChildrenOf(bed.Key("t"))
	return len(all) == 1 && w.Running(all[0])
}

// childOf is the last child of template t.
func childOf(w *bed.World) string {
	all := w.ChildrenOf(bed.Key("t"))
	if len(all) == 0 {
		w.T.Fatal("no child")
	}
	return all[len(all)-1].ID
}

func must(w *bed.World, err error) {
	w.T.Helper()
	if err != nil {
		w.T.Fatal(err)
	}
}

// script makes a job's members run a shell script.
func script(text string) func(*api.Job) {
	return func(j *api.Job) { j.TaskGroups[0].Tasks[0].Config["args"] = []string{"-c", text} }
}

func edit(name string, change func(*api.Job)) func(*bed.World) {
	return func(w *bed.World) { must(w, w.Edit(bed.Key(name), change)) }
}

func rerun(name string) func(*bed.World) { return edit(name, func(*api.Job) {}) }

// begin starts nodes with four GPUs each, and a placer.
func begin(w *bed.World, nodes int) *bed.Placer {
	w.AddNodes(nodes, 4)
	return w.StartPlacer()
}

func failedLives() map[string]life {
	fails := func(w *bed.World) {
		begin(w, 1)
		w.Submit(bed.Gang{Name: "a", Runs: time.Second, Exit: 1})
		w.Submit(bed.Gang{Name: "b", Meta: map[string]string{"pal_after": "a"}})
	}
	mend, mended := edit("a", script("sleep 30; exit 0")), edit("a", script("sleep infinity"))
	return map[string]life{
		"fails, and wrote why": {comes: fails, job: "a", says: "Output of the last failed member: nomad alloc logs -stderr", follow: func(w *bed.World) {
			text := told(w, "a")
			for _, of := range []string{"nomad alloc logs -stderr", "nomad alloc status"} {
				m := regexp.MustCompile(of + ` (\S+)`).FindStringSubmatch(text)
				if m == nil {
					w.T.Fatalf("no %s: %s", of, text)
				}
				as, _, err := w.Author.Allocations().PrefixList(m[1])
				as = slices.DeleteFunc(as, func(a *api.AllocationListStub) bool { return !strings.HasPrefix(a.ID, m[1]) })
				if must(w, err); len(as) != 1 || as[0].JobID != "a" || as[0].ClientStatus != api.AllocClientStatusFailed {
					w.T.Errorf("%s: %+v", m[0], as)
				}
			}
			mended(w)
		}},
		"fails, and something happened to it": {comes: fails, job: "a", says: "Events of this member: nomad alloc status", follow: mended},
		"is pending": {slow: true,
			comes: func(w *bed.World) {
				begin(w, 1)
				w.Submit(bed.Gang{Name: "a"})
				w.RunFor(10 * time.Second)
			},
			job: "a", says: "To see what a pending member waits for: nomad alloc status", follow: func(w *bed.World) {
				m := regexp.MustCompile(`nomad alloc status (\S+)`).FindStringSubmatch(told(w, "a"))
				if m == nil {
					w.T.Fatal("no allocation is named")
				}
				if as, _, err := w.Author.Allocations().PrefixList(m[1]); err != nil || len(as) != 1 || as[0].ClientStatus != api.AllocClientStatusPending {
					w.T.Errorf("%s: %+v, %v", m[0], as, err)
				}
			},
		},
		"fails": {comes: fails, job: "a", says: "fix the job and run it again", follow: edit("a", script("sleep infinity"))},
		"is lost again and again": {
			comes: func(w *bed.World) {
				begin(w, 3)
				w.Submit(bed.Gang{Name: "a", Runs: 5 * time.Second, Exit: 1})
				for range 6 { // on GPUs that fail
					if w.Until(5*time.Minute, func() bool { return w.Running(bed.Key("a")) }) {
						w.Nomad.SetHealth(false, w.GPUs(bed.Key("a"))...)
						w.RunFor(6 * time.Second)
					}
				}
			},
			job: "a", says: "fix the cause, then run the job again", follow: func(w *bed.World) {
				for n := range 3 {
					for k := range 4 {
						w.Nomad.SetHealth(true, fmt.Sprintf("GPU-%d-%d", n, k))
					}
				}
				edit("a", script("sleep infinity"))(w)
			},
		},
		"fails while no placer is there": {
			comes: func(w *bed.World) {
				p := begin(w, 1)
				w.Submit(bed.Gang{Name: "a", Members: 2, Runs: 2 * time.Minute, Exit: 1})
				w.ExpectRunning("a", time.Minute)
				p.Kill()
				w.RunFor(time.Hour)
				w.StartPlacer()
			},
			job: "a", says: "Run the job again", follow: edit("a", script("sleep infinity")),
		},
		"comes after one that failed": {comes: fails, job: "b", says: "that job has failed; run it again", follow: mend},
		"comes after one without GPUs that failed": {
			comes: func(w *bed.World) {
				begin(w, 1)
				w.Submit(bed.Gang{Name: "a", Ungated: true, Runs: time.Second, Exit: 1, Change: withoutDevices})
				w.Submit(bed.Gang{Name: "b", Meta: map[string]string{"pal_after": "a"}})
			},
			job: "b", says: "that job has failed; run it again", follow: edit("a", script("sleep 30; exit 0")),
		},
		"comes after a failure that did not happen": {
			comes: func(w *bed.World) {
				begin(w, 1)
				w.Submit(bed.Gang{Name: "a", Runs: time.Second})
				w.Submit(bed.Gang{Name: "b", Meta: map[string]string{"pal_after": "notok:a"}})
			},
			job: "b", says: "or remove that job from its pal_after", follow: edit("b", func(j *api.Job) { delete(j.Meta, "pal_after") }),
		},
		"comes after one that was stopped": {
			comes: func(w *bed.World) {
				begin(w, 1)
				w.Submit(bed.Gang{Name: "a", Runs: time.Minute})
				w.Submit(bed.Gang{Name: "b", Meta: map[string]string{"pal_after": "a"}})
				w.RunFor(20 * time.Second)
				must(w, w.Stop(bed.Key("a")))
			},
			job: "b", says: "that job was stopped before it finished; run it again", follow: rerun("a"),
		},
	}
}

func withoutDevices(j *api.Job) { j.TaskGroups[0].Tasks[0].Resources.Devices = nil }

func childrenLives() map[string]life {
	var stop func() // stops the previous placer
	dispatch := func(w *bed.World) { _, err := w.Dispatch("t", nil); must(w, err) }
	after := func(w *bed.World) {
		w.AddNodes(1, 4)
		w.StartPlacerOfChildren()
		w.Submit(bed.Gang{Name: "t", Runs: time.Minute, Change: bed.Parameterized})
		w.Submit(bed.Gang{Name: "b", Meta: map[string]string{"pal_after": "t"}})
	}
	return map[string]life{
		"comes after a template": {
			comes: after, job: "b", says: "give the id of one of its runs",
			follow: func(w *bed.World) {
				dispatch(w)
				edit("b", func(j *api.Job) { j.Meta["pal_after"] = childOf(w) })(w)
			},
		},
		"is a template": {
			comes: func(w *bed.World) { after(w); dispatch(w) }, job: "t", says: "nomad-pal status -all lists its runs",
			follow: func(w *bed.World) {},
			then: func(w *bed.World) bool {
				if !strings.Contains(told(w, childOf(w)), "runs on 1 GPU") {
					return false
				}
				must(w, w.Purge(bed.Key("t")))
				return true
			},
		},
		"is a child, and the agent has no RPC": {
			comes: func(w *bed.World) {
				stop = begin(w, 1).Stop
				w.Submit(bed.Gang{Name: "t", Change: bed.Parameterized})
				dispatch(w)
				w.RunFor(10 * time.Second)
			},
			says: "set nomad { rpc_address } in the configuration of the agent", follow: func(w *bed.World) { stop(); w.StartPlacerOfChildren() },
		},
		"is a child with a payload": {
			comes: func(w *bed.World) { takesPayload(w, "optional"); dispatchWithPayload(w) },
			says:  "Stop the job, remove the gate from the parameterized job, and constrain the GPUs there to a variability class instead",
			follow: func(w *bed.World) {
				must(w, w.Purge(bed.Key(childOf(w))))
				w.RunFor(10 * time.Second)
				constrained(w, "optional")
			},
			then: childRuns,
		},
		"requires a payload": {
			comes: func(w *bed.World) { takesPayload(w, "required") }, job: "t",
			says:   "Remove the gate, and constrain the GPUs of the job to a variability class instead",
			follow: func(w *bed.World) { constrained(w, "required") },
			then:   childRuns,
		},
	}
}

func limitedLives() map[string]life {
	var stop func() // stops the previous placer
	quota, limit := 2, func(n *int) func() queue.Tenant {
		return func() queue.Tenant { return queue.Tenant{Quota: *n, BorrowingLimit: new(int)} }
	}
	userLimit := 2
	ofUser := func(n *int) func() queue.Tenant {
		return func() queue.Tenant { return queue.Tenant{MaxGPUsPerUser: *n} }
	}
	raised := 2
	count := func(n int) func(*api.Job) { return func(j *api.Job) { j.TaskGroups[0].Count = &n } }
	service := func(w *bed.World) {
		begin(w, 2)
		w.Submit(bed.Gang{Name: "a", Members: 2, Service: true, Meta: map[string]string{"pal_locality": "node"}})
		w.ExpectRunning("a", 10*time.Second)
		job := w.Nomad.Job(bed.Key("a"))
		job.TaskGroups[0].Count = new(8) // as nomad job scale
		must(w, w.Register(job))
	}
	var (
		first *bed.Placer
		ran   *api.Job // the job before its update
	)
	canariesOn := func(w *bed.World, nodes int) {
		w.AddNodes(nodes, 1)
		first = w.StartPlacer()
		w.Submit(bed.Gang{Name: "a", Service: true, Change: func(j *api.Job) {
			j.TaskGroups[0].Update = &api.UpdateStrategy{Canary: new(1), AutoPromote: new(true), MinHealthyTime: new(time.Second), MaxParallel: new(1)}
		}})
		w.ExpectRunning("a", 10*time.Second)
		old := *w.Nomad.Job(bed.Key("a"))
		ran = &old
		edit("a", func(j *api.Job) { j.TaskGroups[0].Tasks[0].Env = map[string]string{"VERSION": "2"} })(w)
	}
	canaries := func(w *bed.World) { canariesOn(w, 3) }
	updated := func(w *bed.World) bool {
		m := w.Members(bed.Key("a"))
		return len(m) == 1 && m[0].Version.TaskGroups[0].Tasks[0].Env["VERSION"] == "2" && m[0].Client == api.AllocClientStatusRunning
	}
	holds := func(w *bed.World) {
		begin(w, 1)
		w.Submit(bed.Gang{Name: "serves", Members: 4, Service: true})
		w.ExpectRunning("serves", 10*time.Second)
		w.Submit(bed.Gang{Name: "a", Members: 2})
	}
	one, two, six := 1, 1, 6
	const raise = "have the tenant's quota or borrowing_limit raised"
	return map[string]life{
		"asks for more than its tenant may have": {
			tenant: limit(&quota), comes: func(w *bed.World) { begin(w, 1); w.Submit(bed.Gang{Name: "a", Members: 4}) }, job: "a",
			says: "ask for at most 2 GPUs", follow: edit("a", count(2)),
		},
		"asks for more than its user may have": {
			tenant: ofUser(&userLimit), comes: func(w *bed.World) { begin(w, 1); w.Submit(bed.Gang{Name: "a", Members: 4}) }, job: "a",
			says: "ask for at most 2 GPUs, or have the tenant's max_gpus_per_user raised", follow: edit("a", count(2)),
		},
		"is scaled beyond its user's limit": {
			tenant: ofUser(&six), comes: service, job: "a", says: "have the tenant's max_gpus_per_user raised, or ask for fewer members", follow: edit("a", count(6)),
		},
		"its tenant's quota is raised": {
			tenant: limit(&raised), comes: func(w *bed.World) {
				stop = begin(w, 1).Stop
				w.Submit(bed.Gang{Name: "a", Members: 4})
				w.RunFor(10 * time.Second)
			}, job: "a", says: raise, follow: func(w *bed.World) { stop(); raised = 4; w.StartPlacer() },
		},
		"is scaled beyond its tenant's limit": {
			tenant: limit(&six), comes: service, job: "a", says: "have the tenant's quota or borrowing_limit raised, or ask for fewer members", follow: edit("a", count(6)),
		},
		"is scaled, and told the count": {
			tenant: limit(&six), comes: service, job: "a", says: "change the count in the jobspec and run the job again", follow: edit("a", count(6)),
		},
		"a service that waits is told the count": {
			comes: func(w *bed.World) {
				begin(w, 1)
				w.Submit(bed.Gang{Name: "runs", Members: 3, Runs: 100 * time.Hour, Meta: map[string]string{"pal_duration": "100h"}})
				w.ExpectRunning("runs", 10*time.Second)
				w.Submit(bed.Gang{Name: "a", Members: 3, Service: true})
			},
			job: "a", says: "change the count in the jobspec and run the job again", follow: edit("a", count(1)),
		},
		"its canaries are above the limit, which is raised": {
			tenant: limit(&two), comes: canaries, job: "a", says: "have the tenant's quota or borrowing_limit raised",
			follow: func(w *bed.World) { first.Stop(); two = 2; w.StartPlacer() }, then: updated,
		},
		"a service holds its GPUs, and is stopped": {
			comes: holds, job: "a", says: "its GPUs come free if somebody stops the service (nomad job stop serves)", follow: func(w *bed.World) { must(w, w.Stop(bed.Key("serves"))) },
		},
		"a service holds its GPUs, and gets fewer members": {
			comes: holds, job: "a", says: "or scales it down (nomad job scale serves <count>)", follow: func(w *bed.World) {
				job := w.Nomad.Job(bed.Key("serves"))
				job.TaskGroups[0].Count = new(2) // as nomad job scale
				must(w, w.Register(job))
			},
		},
		"its canaries have no room, and it goes back": {
			comes: func(w *bed.World) { canariesOn(w, 1) }, job: "a", says: "to go back to the old version: nomad job revert",
			follow: func(w *bed.World) { must(w, w.Register(ran)) },
			then: func(w *bed.World) bool {
				m := w.Members(bed.Key("a"))
				return len(m) == 1 && m[0].Client == api.AllocClientStatusRunning && w.Nomad.Job(bed.Key("a")).TaskGroups[0].Tasks[0].Env["VERSION"] == ""
			},
		},
		"its canaries are above the limit": {
			tenant: limit(&one), comes: canaries, job: "a", says: "run the job with canary = 0 in its update block",
			follow: edit("a", func(j *api.Job) {
				j.TaskGroups[0].Update.Canary, j.TaskGroups[0].Update.AutoPromote = new(0), new(false)
			}),
			then: updated,
		},
	}
}

func memberLives() map[string]life {
	one := "[ $NOMAD_ALLOC_INDEX = 0 ] && exit 1; sleep infinity"
	lacks := func(service bool, reschedules int, meta map[string]string) func(*bed.World) {
		return func(w *bed.World) {
			begin(w, 1)
			w.Submit(bed.Gang{Name: "a", Members: 2, Service: service, Reschedules: reschedules, Meta: meta, Change: script(one)})
		}
	}
	alone := map[string]string{"pal_on_failure": "member"}
	pinned := func(w *bed.World) {
		begin(w, 2)
		w.Submit(bed.Gang{Name: "a", Members: 2, GPUs: 4, Service: true, Meta: map[string]string{"pal_pin": "gpu"}})
		w.ExpectRunning("a", 10*time.Second)
		w.AddNodes(1, 4)
	}
	crashed := func(w *bed.World) { pinned(w); w.Nomad.CrashNode(bed.NodeID(0)) }
	again := func(w *bed.World) {
		must(w, w.Stop(bed.Key("a")))
		w.RunFor(time.Minute)
		rerun("a")(w)
	}
	const moved = `run it with pal_on_failure = "gang", or stop it and run it again`
	return map[string]life{
		"a service's member is out of tries for now": {comes: lacks(true, 1, nil), job: "a", says: "fix the job and run it", follow: edit("a", script("sleep infinity"))},
		"a service's member has no try":              {comes: lacks(true, 0, nil), job: "a", says: "change the job and run it", follow: edit("a", script("sleep infinity"))},
		"a service's member was preempted": {
			comes: func(w *bed.World) {
				begin(w, 1)
				w.Nomad.SetPreemption(true)
				w.Submit(bed.Gang{Name: "a", Members: 2, GPUs: 2, Service: true})
				w.ExpectRunning("a", 10*time.Second)
				w.Submit(bed.Gang{Name: "urgent", Ungated: true, GPUs: 2, Priority: 90, Service: true})
				w.RunFor(time.Minute)
			},
			job: "a", says: "If Nomad does not place the missing member although its GPU is free: nomad-pal run <jobspec>", follow: func(w *bed.World) {
				must(w, w.Stop(bed.Key("urgent")))
				w.RunFor(10 * time.Second)
				rerun("a")(w)
			},
		},
		"a batch member has no try":                        {comes: lacks(false, 0, alone), job: "a", says: "run the job again", follow: edit("a", script("sleep infinity"))},
		"a pinned service loses a node":                    {comes: crashed, job: "a", says: moved, follow: edit("a", func(j *api.Job) { j.Meta["pal_on_failure"] = "gang" })},
		"a pinned service loses a node that never returns": {comes: crashed, job: "a", says: moved, follow: again},
		"a pinned service on a node that is drained": {
			comes: func(w *bed.World) { pinned(w); w.Nomad.DrainWithin(bed.NodeID(0), 0) }, job: "a",
			says: "to get other GPUs for the job, stop it and run it again", follow: again,
		},
	}
}

// withSecondGroup adds a group like the first.
func withSecondGroup(j *api.Job) {
	second := *j.TaskGroups[0]
	second.Name = new("second")
	j.TaskGroups = append(j.TaskGroups, &second)
}

func otherLives() map[string]life {
	return map[string]life{
		"is broken while it runs": {
			comes: func(w *bed.World) {
				begin(w, 1)
				w.Submit(bed.Gang{Name: "a"})
				w.ExpectRunning("a", 10*time.Second)
				edit("a", func(j *api.Job) { j.Meta = map[string]string{"pal_duration": "long"} })(w)
			},
			job: "a", says: "fix the job and run it again; until then the old version keeps running", follow: edit("a", func(j *api.Job) { j.Meta = map[string]string{"pal_duration": "1h"} }),
		},
		"has a gate and no GPUs": {
			comes: func(w *bed.World) { begin(w, 1); w.Submit(bed.Gang{Name: "a", Change: withoutDevices}) }, job: "a",
			says: "remove the job's constraint on ${meta.pal_gate} and run the job again", follow: func(w *bed.World) { w.Submit(bed.Gang{Name: "a", Ungated: true, Change: withoutDevices}) },
		},
		"has a gate on one of its groups": {
			comes: func(w *bed.World) {
				begin(w, 1)
				w.Submit(bed.Gang{Name: "a", Ungated: true, Change: func(j *api.Job) {
					withSecondGroup(j)
					j.TaskGroups[0].Constraints = []*api.Constraint{{LTarget: "${meta.pal_gate}", Operand: "=", RTarget: "open"}}
				}})
			},
			job: "a", says: "put the gate on the job, because all groups start together", follow: func(w *bed.World) {
				w.Submit(bed.Gang{Name: "a", Change: withSecondGroup})
			},
		},
		"needs what no node has": {
			comes: func(w *bed.World) {
				begin(w, 1)
				w.Submit(bed.Gang{Name: "a", Change: func(j *api.Job) { j.TaskGroups[0].Tasks[0].Driver = "docker" }})
			},
			job: "a", says: "Change the job, or give a node what the job needs", follow: func(w *bed.World) {
				n := nomadtest.GPUNode(9, 4)
				n.Drivers = map[string]*api.DriverInfo{"docker": {Detected: true, Healthy: true}, "raw_exec": {Detected: true, Healthy: true}}
				w.Nomad.AddNode(n)
			},
		},
		"runs without a gate": {
			comes: func(w *bed.World) {
				begin(w, 1)
				w.Submit(bed.Gang{Name: "a", Ungated: true})
				w.RunFor(10 * time.Second)
			},
			job: "a", says: "To let the placer choose the job's GPUs, first stop the job: nomad job stop a", follow: func(w *bed.World) {
				must(w, w.Stop(bed.Key("a")))
				w.RunFor(10 * time.Second)
				w.Submit(bed.Gang{Name: "a"}) // as nomad-pal run
			},
		},
		"runs without a gate, and may be given one": {
			comes: func(w *bed.World) {
				begin(w, 1)
				w.Submit(bed.Gang{Name: "a", Ungated: true})
				w.RunFor(10 * time.Second)
			},
			job: "a", says: "to add a gate, stop the job first", follow: func(w *bed.World) {
				must(w, w.Stop(bed.Key("a")))
				w.RunFor(10 * time.Second)
				w.Submit(bed.Gang{Name: "a"})
			},
		},
		"and then runs with one": {
			comes: func(w *bed.World) {
				begin(w, 1)
				w.Submit(bed.Gang{Name: "a", Ungated: true})
				w.RunFor(10 * time.Second)
			},
			job: "a", says: "Then run the job again: nomad-pal run <jobspec>", follow: func(w *bed.World) {
				must(w, w.Stop(bed.Key("a")))
				w.RunFor(10 * time.Second)
				w.Submit(bed.Gang{Name: "a"})
			},
		},
	}
}
