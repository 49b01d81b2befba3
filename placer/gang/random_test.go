// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/request"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// randomWorld sends a gang random observations, decisions of the queue and answers of Nomad, in any
// order, sensible or not.
type randomWorld struct {
	*fakeWorld
	rng  *rand.Rand
	g    *Lifecycle
	jobs map[string]*api.Job // made once, never changed
	// queued and placed are what the queue knows. stopping: the queue waits for the gang to stop,
	// and the gate is not registered yet.
	queued, placed, stopping bool
	log                      []string
	index                    uint64
	history                  map[string]int // transitions
}

// TestRandomEvents sends random events. In any order of events, the state machine does not panic,
// has at most one request to Nomad under way, ends each reconcile, and keeps the queue consistent.
// GANG_EVENTS sets the number of events; the default is 200,000.
func TestRandomEvents(t *testing.T) {
	t.Parallel()
	events := 200_000
	if n, err := strconv.Atoi(os.Getenv("GANG_EVENTS")); err == nil {
		events = n
	}
	const perGang = 200
	transitions := map[string]int{}
	for seed := range uint64(events / perGang) {
		w := &randomWorld{fakeWorld: newFakeWorld(), rng: rand.New(rand.NewPCG(seed, 1)), jobs: map[string]*api.Job{}, index: 100, history: transitions}
		if wrong := w.live(perGang); wrong != "" {
			t.Fatalf("seed %d: %s\n%s", seed, wrong, strings.Join(w.log[max(0, len(w.log)-60):], "\n"))
		}
	}
	t.Logf("%d events, %d transitions seen", events, len(transitions))
}

func (w *randomWorld) live(events int) (wrong string) {
	defer func() {
		if r := recover(); r != nil {
			wrong = fmt.Sprint("panic: ", r)
		}
	}()
	w.g = &Lifecycle{}
	for range events {
		w.change()
		e := w.event()
		_, seen := e.(Observation)
		_, sync := e.(Sync)
		switch e.(type) {
		case Preempt, Move:
			w.stopping = true
		}
		for answers := 0; e != nil; answers++ {
			if answers > 25 {
				return "the reconcile does not end"
			}
			was := w.g.State(w)
			todo := w.g.Step(e, w)
			w.log = append(w.log, fmt.Sprintf("%T %s -> %s", e, was, w.g.State(w)))
			if _, seen := e.(Observation); !seen && was != w.g.State(w) {
				w.history[fmt.Sprint(was, " to ", w.g.State(w))]++
			}
			e = nil
			for i, effect := range todo {
				w.log = append(w.log, "  "+told(effect))
				if AwaitsAnswer(effect) {
					if i != len(todo)-1 {
						return "an effect follows one that has an answer"
					}
					e = w.answer(effect)
				}
				if wrong := w.check(effect); wrong != "" {
					return wrong
				}
			}
		}
		if seen && !w.g.Ours() {
			if w.queued {
				return "the queue knows a job that is not ours"
			}
			w.g = &Lifecycle{}
		}
		if w.queued != w.g.Queued || w.placed != w.g.Placed {
			return fmt.Sprintf("the queue was told queued %v, placed %v; the gang believes %v, %v", w.queued, w.placed, w.g.Queued, w.g.Placed)
		}
		if runs := w.g.Nomad == palapi.Running || w.g.Nomad == palapi.Starting; sync && w.stopping && runs && (w.g.stop == nil || !w.g.stop.gated) {
			return "the queue waits for the gang to stop, but it keeps running"
		}
	}
	return ""
}

// check checks an effect on the queue or on Nomad against the rules; it returns the broken rule, or
// "".
func (w *randomWorld) check(e Effect) string {
	switch e.(type) {
	case Dequeue, QueueRestored, QueueStarted, QueueStopped, QueueRequeued, QueueKept, StopMembers:
		w.stopping = false
	}
	switch e := e.(type) {
	case Enqueue:
		if w.queued {
			return "put into the queue twice"
		}
		w.queued, w.placed = true, false
	case QueueRestored:
		if w.queued {
			return "put into the queue twice"
		}
		w.queued, w.placed = true, true
	case Dequeue:
		if !w.queued {
			return "taken out of the queue, but it was not in it"
		}
		w.queued, w.placed = false, false
	case QueueStarted:
		if !w.queued {
			return "started, but not in the queue"
		}
		w.placed = true
	case QueueStopped:
		if !w.placed {
			return "stopped, but the queue does not know that it runs"
		}
		w.placed = false
	case StopMembers:
		if w.g.stop == nil && w.g.Have >= w.g.Want && (w.g.Record == nil || w.g.Record.GivenUp.IsZero()) {
			return "members are stopped without a reason"
		}
	case Deregister:
		if !w.g.overwrote && w.g.Refused == nil {
			return "the placer ends a job that its author did not end"
		}
	case Register:
		if w.g.MayHaveOverwritten() && e.Why != ToUndo {
			return fmt.Sprintf("registered to %s, which hides what the last registration may have overwritten", e.Why)
		}
	}
	if AwaitsAnswer(e) && !w.g.Ours() {
		return "a request to Nomad for a job that is not ours"
	}
	return ""
}

// change changes what the world answers, at random.
func (w *randomWorld) change() {
	w.now = w.now.Add(time.Duration(w.rng.IntN(4000)) * time.Millisecond)
	switch w.rng.IntN(12) {
	case 0:
		w.failure = nil
	case 1:
		w.failure = &palapi.Failure{Cause: []palapi.Cause{palapi.CauseUser, palapi.CauseInfrastructure, palapi.CauseUnknown}[w.rng.IntN(3)], Reason: "r", At: w.now}
	case 2:
		w.holds = [][]int{nil, {1}, {1, 2}}[w.rng.IntN(3)]
	case 3:
		w.reserved = !w.reserved
	case 4:
		w.room = Room{Fits: w.rng.IntN(2) == 0, Pins: somePins("g5", "g6"), Gang: pal.Gang{MemberSets: []pal.MemberSet{{Members: 2, GPUs: 1}}}}
	case 5:
		w.roomErr = nil
		if w.rng.IntN(3) == 0 {
			w.roomErr = errors.New("no")
		}
	}
}

func (w *randomWorld) event() Event {
	if w.g.Job == nil {
		return w.observation()
	}
	decided := w.placed
	switch n := w.rng.IntN(20); {
	case n < 5:
		return w.observation()
	case n < 11:
		return Reconcile{Last: w.rng.IntN(20) == 0}
	case n < 14 && w.g.Asks():
		return w.room
	case n < 16:
		return Sync{Unread: w.rng.IntN(10) == 0}
	case n == 16 && decided:
		return Preempt{"other"}
	case n == 17 && decided && w.rng.IntN(2) == 0:
		return Resize{To: pal.Placement{Members: make([]pal.Member, 1+w.rng.IntN(4)), Penalty: 1, PMScore: 1}}
	case n == 17 && decided:
		return Move{pal.Placement{Penalty: 1, PMScore: 1}}
	case n > 17 && w.queued && (!w.placed || w.g.Target != nil):
		pins := somePins("g1", "g2")
		job, err := rewrite.Pin(w.g.Job, pins, rewrite.Racks{})
		if err != nil {
			panic(err)
		}
		return Start{Job: job, Pins: pins, Record: w.g.NewRecord(w.now, pal.Decision{Gang: "j", Chosen: &pal.Choice{}}, "")}
	}
	return Sync{}
}

// observation returns what Nomad may show next: the same job with other members, or another version
// of it.
func (w *randomWorld) observation() Observation {
	r := w.rng
	if w.g.Job == nil || r.IntN(3) == 0 {
		w.index += uint64(r.IntN(3))
	}
	job := plainJob("j", w.index)
	version := uint64(r.IntN(4))
	job.Version = &version
	if r.IntN(3) == 0 {
		least, most := int64(1), int64(4)
		job.Meta = map[string]string{"pal_elastic": "true"}
		job.TaskGroups[0].Scaling = &api.ScalingPolicy{Min: &least, Max: &most}
	}
	if r.IntN(2) == 0 {
		pinned, err := rewrite.Pin(job, somePins("g1", "g2"), rewrite.Racks{})
		if err != nil {
			panic(err)
		}
		job = pinned
	}
	if r.IntN(2) == 0 {
		job = rewrite.Gate(job)
	}
	if r.IntN(20) == 0 {
		yes := true
		job.Stop = &yes
	}
	if r.IntN(8) == 0 {
		service := api.JobTypeService
		job.Type = &service
	}
	if r.IntN(10) == 0 {
		dead := "dead"
		job.Status = &dead
	}
	s := cluster.NewState()
	s.PutJob(job)
	for i := range r.IntN(4) {
		s.PutAlloc(&cluster.Alloc{
			ID: fmt.Sprint("a", i), Job: cluster.KeyOf(job), Group: "g", Node: "n", GPUs: []string{fmt.Sprint("g", 1+r.IntN(3))},
			Client:  []string{"pending", "running", "running", "complete", "failed", "lost"}[r.IntN(6)],
			Desired: []string{"run", "run", "run", "stop", "stop", "evict"}[r.IntN(6)], Tasks: events(api.TaskStarted, api.TaskTerminated),
			CreateIndex: w.index + uint64(r.IntN(2)), ModifyIndex: w.index + 1,
		})
	}
	w.state = s
	o := Observation{Observed: Observe(s, job).WithLost(w), Request: request.Request{Modelled: true, Job: job, Gang: pal.Gang{ID: "j", MemberSets: []pal.MemberSet{{Members: 2, GPUs: 1}}}}}
	if e, ok := rewrite.ElasticOf(job); ok {
		o.Request.Elastic = &e
	}
	if r.IntN(15) == 0 {
		o.Refused = errors.New("refused")
	}
	return o
}

// answer returns a possible answer of Nomad.
func (w *randomWorld) answer(of Effect) Event {
	r := w.rng
	switch r.IntN(12) {
	case 0:
		return Failure{Of: of, Err: errors.New("500")}
	case 1:
		return Failure{Of: of, Err: errors.New("conflict"), Conflict: true}
	case 2:
		w.noteUnanswered(w.g, of)
		return Failure{Of: of, Err: errors.New("unknown"), Unknown: true}
	case 3:
		return NotNow{of}
	}
	switch of := of.(type) {
	case ReadRecord:
		if r.IntN(4) == 0 {
			return RecordRead{}
		}
		rec := &Record{Namespace: "default", Job: "j", JobModifyIndex: w.index, UserFailures: r.IntN(4), Outage: Outage{Failures: r.IntN(7), Since: time.Unix(1, 0), Last: time.Unix(int64(1+r.IntN(7200)), 0)}, Attained: time.Duration(r.IntN(3)) * time.Hour}
		if r.IntN(6) == 0 {
			rec.GivenUp = reason.Unread("given up")
		}
		return RecordRead{rec}
	case ReadVersions:
		vs := map[uint64]*api.Job{}
		for v := range uint64(5) {
			if r.IntN(4) > 0 {
				job := plainJob("j", w.index)
				version := v
				job.Version = &version
				vs[v] = job
			}
		}
		return VersionsRead{vs}
	case ReadEvaluations:
		var evals []*api.Evaluation
		if r.IntN(2) == 0 {
			evals = append(evals, &api.Evaluation{Status: []string{api.EvalStatusBlocked, api.EvalStatusPending, "complete"}[r.IntN(3)], CreateIndex: w.index + 1})
		}
		return EvaluationsRead{evals}
	case ReadDeployment:
		return DeploymentRead{r.IntN(2) == 0}
	case ReadAllocs:
		as := w.Allocs(w.g.Key)
		for _, a := range as {
			version := uint64(r.IntN(4))
			a.Version = &version
		}
		return AllocsRead{as}
	case Register:
		return w.registered(of.Job)
	case Commit:
		return w.registered(of.Job)
	}
	return Done{of}
}

func (w *randomWorld) registered(job *api.Job) Event {
	w.index++
	job = RegisteredJob(job, w.g.Job, w.index, w.now)
	w.state.PutJob(job)
	return Registered{Observe(w.state, job)}
}
