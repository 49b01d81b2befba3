// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/request"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// story is a gang and its world. A file in testdata/stories tells the story: each command is an
// event; its output is the effects, and the gang's state after the event.
//
//	observe <job> / <allocations>   what Nomad shows: see TestObserved for the words; submitted=n is
//	                                when the job was submitted
//	refuse                          from now on the job cannot be served
//	release                         somebody asks to hand the job over to Nomad
//	reconcile | sync [unread] [after] | start gpus=g1+g2 | preempt for=j | move gpus=g1+g2 | resize gpus=1+2+3 [for=j] | room
//	record [none] [given-up] [ready[=1h]] [decided=2h] [ran=5m] [cost=x] [infra-failures=n] [failures=n]
//	       [gpus=g1+g2]             default: the GPUs in the job's pins
//	versions / <job>, one line per version, or - for one that Nomad does not keep
//	evaluations [blocked] [pending] [disconnected]
//	allocs / <version> <allocation>
//	deployment [active]
//	source
//	registered [index=n] [as <job>] | done | not-now | conflict | unknown | error
//	world [+5s] [failure=user|infrastructure|unknown] [holds=1+2] [reserved] [room=g1+g2] [no-room]
//	      [broken] [ceiling] [on-failure=gang|member|none] [healthy]
type story struct {
	t *testing.T
	g *Lifecycle
	w *fakeWorld
	// refused is why the job cannot be served.
	refused error
	// onFailure is pal_on_failure.
	onFailure rewrite.FailureAction
	// index is the JobModifyIndex of the last registration.
	index   uint64
	pending Effect
	began   palapi.State // the state before the last event that was not an answer
}

func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata/stories", func(t *testing.T, path string) {
		s := &story{t: t, g: &Lifecycle{}, w: newFakeWorld(), index: 100}
		datadriven.RunTest(t, path, s.happens)
	})
}

func (s *story) happens(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "world":
		return s.world(d)
	case "release":
		s.g.Controlled(Control{Release: &Said{By: "somebody"}})
		return ""
	case "refuse":
		s.refused = errors.New("it asks for a unicorn")
		return ""
	}
	var out strings.Builder
	was, e := s.g.State(s.w), s.event(t, d)
	if e.event() != OnAnswer {
		s.began = was
	}
	defer func() {
		is := s.g.State(s.w)
		if e.event() != OnObserve && is != was && !slices.Contains(reaches(was), is) && !slices.Contains(reaches(s.began), is) {
			t.Errorf("%s: by the table, a gang does not go from %s, or %s, to %s", d.Pos, was, s.began, is)
		}
	}()
	for _, e := range s.g.Step(e, s.w) {
		if AwaitsAnswer(e) {
			s.pending = e
		}
		fmt.Fprintln(&out, told(e))
	}
	fmt.Fprintf(&out, "= %s", s.g.State(s.w))
	if why, job := s.g.Stopping(); why != "" {
		fmt.Fprintf(&out, ", %s", why)
		if job != "" {
			fmt.Fprintf(&out, " for %s", job)
		}
	}
	if s.g.Queued {
		fmt.Fprintf(&out, ", in the queue%s", map[bool]string{true: " as placed"}[s.g.Placed])
	}
	if s.g.Job != nil && !s.g.Ours() {
		fmt.Fprint(&out, ", not ours")
	}
	if s.g.RetryAt.After(s.w.now) {
		fmt.Fprintf(&out, ", tries again in %v", s.g.RetryAt.Sub(s.w.now))
	}
	if !s.g.Trouble().IsZero() {
		fmt.Fprintf(&out, ": %s", s.g.Trouble())
	}
	return out.String() + "\n"
}

func (s *story) world(d *datadriven.TestData) string {
	for _, a := range d.CmdArgs {
		value := strings.Join(a.Vals, "+")
		switch {
		case strings.HasPrefix(a.Key, "+"):
			by, err := time.ParseDuration(a.Key[1:])
			if err != nil {
				d.Fatalf(s.t, "%v", err)
			}
			s.w.now = s.w.now.Add(by)
		case a.Key == "failure":
			s.w.failure = &palapi.Failure{Cause: map[string]palapi.Cause{"user": palapi.CauseUser, "infrastructure": palapi.CauseInfrastructure, "unknown": palapi.CauseUnknown}[value], Reason: "exit code 1", Node: "n2", At: s.w.now, Placed: s.w.now}
		case a.Key == "after":
			ran, err := time.ParseDuration(value)
			if err != nil {
				d.Fatalf(s.t, "%v", err)
			}
			s.w.failure.Placed = s.w.failure.At.Add(-ran)
		case a.Key == "lost":
			s.w.lost = value
		case a.Key == "healthy":
			s.w.failure = nil
		case a.Key == "holds":
			s.w.holds = numbersIn(value)
		case a.Key == "others":
			s.w.others = a.Vals
		case a.Key == "reserved":
			s.w.reserved = value != "no"
		case a.Key == "room":
			s.w.room = Room{Fits: true, Pins: somePins(strings.Split(value, "+")...), Gang: pal.Gang{MemberSets: []pal.MemberSet{{Members: 1, GPUs: 1}}}}
			for _, gpu := range numbersIn(value) {
				s.w.room.Placement.Members = append(s.w.room.Placement.Members, pal.Member{GPUs: []int{gpu}})
			}
		case a.Key == "on-failure":
			s.onFailure = rewrite.FailureAction(value)
		case a.Key == "ceiling":
			s.w.room.Pins.Ceiling = 3
		case a.Key == "broken":
			s.w.roomErr = errors.New("its constraint cannot be read")
		case a.Key == "no-gpus":
			s.w.room, s.w.roomErr = Room{}, nil
		case a.Key == "no-room":
			s.w.room = Room{Reason: reason.Reason{Kind: reason.GPUs, Needs: 1}, Gang: pal.Gang{MemberSets: []pal.MemberSet{{Members: 1, GPUs: 1}}}}
		default:
			d.Fatalf(s.t, "no word %q", a.Key)
		}
	}
	return ""
}

// numbersIn returns the GPUs in a list such as 1+2 or g1+g2.
func numbersIn(list string) (gpus []int) {
	for _, n := range strings.Split(list, "+") {
		if gpu, err := strconv.Atoi(strings.TrimPrefix(n, "g")); err == nil {
			gpus = append(gpus, gpu)
		}
	}
	return gpus
}

func (s *story) event(t *testing.T, d *datadriven.TestData) Event {
	switch d.Cmd {
	case "observe":
		o := s.look(d)
		return Observation{Observed: o, Request: s.request(), Refused: s.refused}
	case "reconcile":
		return Reconcile{}
	case "sync":
		return Sync{Unread: d.HasArg("unread"), After: d.HasArg("after")}
	case "start", "move":
		var gpus string
		d.ScanArgs(t, "gpus", &gpus)
		if d.Cmd == "move" {
			return Move{pal.Placement{Penalty: 1, PMScore: 1}}
		}
		pins := somePins(strings.Split(gpus, "+")...)
		job, err := rewrite.Pin(s.g.Job, pins, rewrite.Racks{})
		if err != nil {
			t.Fatal(err)
		}
		r := s.g.NewRecord(s.w.now, pal.Decision{Gang: "j", Chosen: &pal.Choice{Nodes: 1, PMScore: 1, Cost: 1}}, "")
		return Start{Job: job, Pins: pins, Record: r}
	case "resize":
		r := Resize{To: pal.Placement{Penalty: 1, PMScore: 1}}
		gpus, _ := d.Arg("gpus")
		for _, u := range strings.Split(gpus.Vals[0], "+") {
			n, err := strconv.Atoi(u)
			if err != nil {
				t.Fatal(err)
			}
			r.To.Members = append(r.To.Members, pal.Member{GPUs: []int{n}})
		}
		d.MaybeScanArgs(t, "for", &r.For)
		return r
	case "room":
		return s.w.room
	case "preempt":
		var job string
		d.ScanArgs(t, "for", &job)
		return Preempt{job}
	}
	return s.answer(t, d)
}

func (s *story) answer(t *testing.T, d *datadriven.TestData) Event {
	pending := s.pending
	s.pending = nil
	if pending == nil {
		d.Fatalf(t, "no effect waits for the answer %q", d.Cmd)
	}
	switch d.Cmd {
	case "record":
		return RecordRead{s.record(d)}
	case "versions":
		vs := map[uint64]*api.Job{}
		for i, line := range strings.Split(strings.TrimSpace(d.Input), "\n") {
			if line == "-" {
				continue
			}
			version := uint64(i)
			job := s.job(d, strings.Fields(line)[1:])
			job.Version = &version
			vs[version] = job
		}
		return VersionsRead{vs}
	case "evaluations":
		var evals []*api.Evaluation
		for status, index := range map[string]uint64{api.EvalStatusBlocked: s.index + 1, api.EvalStatusPending: s.index + 1, api.EvalStatusComplete: s.index} {
			if d.HasArg(status) {
				evals = append(evals, &api.Evaluation{Status: status, CreateIndex: index, FailedTGAllocs: map[string]*api.AllocationMetric{"g": {NodesEvaluated: 3, NodesExhausted: 3}}})
			}
		}
		if d.HasArg("disconnected") {
			evals = append(evals, &api.Evaluation{Status: api.EvalStatusPending, CreateIndex: s.index + 1, TriggeredBy: disconnectTimeout})
		}
		return EvaluationsRead{evals}
	case "deployment":
		return DeploymentRead{d.HasArg("active")}
	case "allocs":
		var as []*cluster.Alloc
		for i, line := range strings.Split(strings.TrimSpace(d.Input), "\n") {
			as = append(as, storyAlloc(t, s.g.Key, i, line))
		}
		return AllocsRead{as}
	case "registered":
		s.index += 100
		var job *api.Job
		switch e := pending.(type) {
		case Register:
			job = e.Job
		case Commit:
			job = e.Job
		default:
			d.Fatalf(s.t, "%T is no registration", pending)
		}
		job = RegisteredJob(job, s.g.Job, s.index, s.w.now)
		s.w.state.PutJob(job)
		return Registered{Observe(s.w.state, job)}
	case "done":
		return Done{pending}
	case "not-now":
		return NotNow{pending}
	case "conflict":
		return Failure{Of: pending, Err: errors.New("the job changed meanwhile"), Conflict: true}
	case "unknown":
		s.w.noteUnanswered(s.g, pending)
		return Failure{Of: pending, Err: errors.New("registering: the outcome is unknown, because Nomad did not confirm the request"), Unknown: true}
	case "error":
		return Failure{Of: pending, Err: errors.New("500 (no leader)")}
	}
	d.Fatalf(t, "no command %q", d.Cmd)
	return nil
}

func (s *story) record(d *datadriven.TestData) *Record {
	if d.HasArg("none") {
		return nil
	}
	r := &Record{Namespace: "default", Job: "j", Submitted: time.Unix(0, 1), JobModifyIndex: s.index, Decision: pal.Decision{Gang: "j", Chosen: &pal.Choice{}}}
	gpus := s.g.Pins.GPUs()
	if others, ok := d.Arg("gpus"); ok {
		gpus = strings.Split(others.Vals[0], "+")
	}
	for _, id := range gpus {
		r.Decision.Chosen.Members = append(r.Decision.Chosen.Members, pal.ChosenMember{GPUs: []pal.ChosenGPU{{ID: id}}})
	}
	r.Decision.Demand = len(gpus)
	if d.HasArg("given-up") {
		r.GivenUp = reason.Reason{Kind: reason.GaveUp, Tries: 3, Cause: "exit code 1"}
	}
	if ready, ok := d.Arg("ready"); ok {
		r.Ready = s.w.now
		if len(ready.Vals) > 0 {
			ago, _ := time.ParseDuration(ready.Vals[0])
			r.Ready = s.w.now.Add(-ago)
		}
	}
	r.Decided = r.Ready
	if decided, ok := d.Arg("decided"); ok {
		ago, _ := time.ParseDuration(decided.Vals[0])
		r.Decided = s.w.now.Add(-ago)
	}
	if ran, ok := d.Arg("ran"); ok {
		r.Attained, _ = time.ParseDuration(ran.Vals[0])
		r.Done, r.Stopped = r.Attained, s.w.now
	}
	if cost, ok := d.Arg("cost"); ok {
		r.Decision.Chosen.Cost, _ = strconv.ParseFloat(cost.Vals[0], 64)
	}
	if d.MaybeScanArgs(s.t, "infra-failures", &r.Outage.Failures); r.Outage.Failures > 0 {
		r.Outage.Since, r.Outage.Last = s.w.now, s.w.now
	}
	d.MaybeScanArgs(s.t, "failures", &r.UserFailures)
	d.MaybeScanArgs(s.t, "index", &r.JobModifyIndex)
	return r
}

// look returns what Nomad shows: the job in the arguments and the allocations in the input.
func (s *story) look(d *datadriven.TestData) Observed {
	state := cluster.NewState()
	var words []string
	for _, a := range d.CmdArgs {
		words = append(words, strings.TrimSuffix(a.Key+"="+strings.Join(a.Vals, "+"), "="))
	}
	job := s.job(d, words)
	s.index = *job.JobModifyIndex
	state.PutJob(job)
	for i, line := range strings.Split(strings.TrimSpace(d.Input), "\n") {
		if line != "" {
			state.PutAlloc(storyAlloc(s.t, cluster.KeyOf(job), i, line))
		}
	}
	s.w.state = state
	return Observe(state, job).WithLost(s.w)
}

func (s *story) job(d *datadriven.TestData, words []string) *api.Job {
	args := &datadriven.TestData{Pos: d.Pos}
	for _, w := range words {
		key, value, ok := strings.Cut(w, "=")
		a := datadriven.CmdArg{Key: key}
		if ok {
			a.Vals = []string{value}
		}
		args.CmdArgs = append(args.CmdArgs, a)
	}
	job := storyJob(s.t, args)
	name, submitted, priority := *job.ID, int64(1), 50
	args.MaybeScanArgs(s.t, "submitted", &submitted)
	job.Name, job.SubmitTime, job.Priority = &name, &submitted, &priority
	if job.CreateIndex == nil {
		job.CreateIndex = new(uint64(1))
	}
	if s.onFailure != "" {
		if job.Meta == nil {
			job.Meta = map[string]string{}
		}
		job.Meta["pal_on_failure"] = string(s.onFailure)
	}
	return job
}

func (s *story) request() request.Request {
	r := request.Request{Modelled: true, Hints: rewrite.Hints{OnFailure: s.onFailure}, Gang: pal.Gang{ID: "j", Class: pal.ClassA, MemberSets: []pal.MemberSet{{Members: 2, GPUs: 1}}}}
	for _, job := range s.w.state.Jobs {
		if e, ok := rewrite.ElasticOf(job); ok {
			r.Elastic, r.Gang.MemberSets[0].Members = &e, rewrite.Members(job.TaskGroups[0])
		}
	}
	return r
}

func pinnedTo(p rewrite.Pins) string {
	if p.Mode == rewrite.ModePrefer {
		return ", prefers " + strings.Join(p.Nodes(), " ")
	}
	return ", pinned to " + strings.Join(p.GPUs(), " ")
}

// told describes an effect in one line.
func told(e Effect) string {
	name := reflect.TypeOf(e).Name()
	switch e := e.(type) {
	case Register:
		_, pinned := rewrite.Pinned(e.Job)
		p, _ := rewrite.Pinned(e.Job)
		count := ""
		if n := p.Groups; len(n) > 0 && n[0].Count > 0 {
			count = fmt.Sprintf(", %d members", n[0].Count)
		}
		return fmt.Sprintf("%s to %s%s%s%s", name, e.Why, count, map[bool]string{true: ", gated"}[rewrite.Gated(e.Job)], map[bool]string{true: pinnedTo(p)}[pinned])
	case Commit:
		return fmt.Sprintf("%s, pinned to %s%s", name, strings.Join(e.Pins.GPUs(), " "), map[bool]string{true: ", after a dry run"}[e.DryRun])
	case StopMembers:
		return name + " " + strings.Join(e.Allocs, " ")
	case Deregister:
		return fmt.Sprintf("%s to %s%s", name, e.Why, map[bool]string{true: ", purging it"}[e.Purge])
	case WriteRecord:
		return name + recorded(e.Record)
	case SaveRecord:
		return name + recorded(e.Record)
	case Own:
		return name + " " + strings.Join(e.GPUs, " ")
	case Enqueue:
		since := ""
		if QueueTime(e.Since) != e.Job.Submitted {
			since = fmt.Sprintf(", waits since %v", e.Since.Sub(time.Unix(0, int64(e.Job.Submitted))))
		}
		return name + asks(e.Job) + since
	case QueueRestored:
		return name + asks(e.Job)
	case Keep:
		return fmt.Sprintf("%s %d members", name, len(e.Placement.Members))
	case Dequeue:
		return name + map[bool]string{true: " as finished"}[e.Finished]
	case Log:
		return fmt.Sprintf("Log %q", e.Text)
	}
	return name
}

// asks describes unusual parts of a job's form in the queue.
func asks(j queue.Job) string {
	out := ""
	if j.Submitted != 1 {
		out += fmt.Sprintf(", submitted at %v", j.Submitted)
	}
	if j.Attained > 0 {
		out += fmt.Sprintf(", ran %v, did %v, waited %v", j.Attained, j.Done, j.Waited)
	}
	return out
}

func recorded(r Record) string {
	var said []string
	if r.Namespace != "default" || r.Job != "j" {
		said = append(said, fmt.Sprintf("of %s/%s", r.Namespace, r.Job))
	}
	if r.Attained > 0 {
		said = append(said, fmt.Sprintf("ran %v", r.Attained))
	}
	if r.Done != r.Attained {
		said = append(said, fmt.Sprintf("did %v", r.Done))
	}
	if !r.Stopped.IsZero() {
		said = append(said, "stopped")
	}
	if !r.Ready.IsZero() {
		said = append(said, "ready")
	}
	if r.UserFailures > 0 {
		said = append(said, fmt.Sprintf("%d failures", r.UserFailures))
	}
	if r.Doubt != (Doubt{}) {
		said = append(said, "the last one in doubt")
	}
	if n := r.Outage.Failures; n > 0 {
		said = append(said, fmt.Sprintf("lost %d times", n))
	}
	if !r.GivenUp.IsZero() {
		said = append(said, r.GivenUp.String())
	}
	if r.Note != "" {
		said = append(said, string(r.Note))
	}
	if len(said) == 0 {
		return ""
	}
	return ": " + strings.Join(said, ", ")
}
