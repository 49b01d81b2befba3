// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package accounting

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/query"
	"github.com/nomad-pal/nomad-pal/placer/request"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// Recorder knows which data about Nomad's jobs and allocations are stored. A Recorder is not safe
// for concurrent use.
type Recorder struct {
	keep   time.Duration                  // how long runs are kept, see [DB.Prune]; 0 means forever
	runs   map[cluster.JobKey]palapi.Run  // the latest run of each job
	looked map[cluster.JobKey]bool        // jobs whose last run was looked up
	live   map[string]Alloc               // stored allocations that have not ended
	stored map[string]uint64              // the ModifyIndex that each allocation had when it was written
	stops  map[cluster.JobKey]queue.Stops // the queue's counts when they were last written
	// created holds the CreateIndex of each job in the previous snapshot. If a job's CreateIndex
	// changes, the job was purged and submitted again.
	created map[cluster.JobKey]uint64
}

// NewRecorder returns a recorder that knows only the stored runs and allocations that have not
// ended. The recorder ignores runs that ended longer ago than keep, unless keep is 0.
func NewRecorder(open []palapi.Run, live []Alloc, keep time.Duration) *Recorder {
	r := &Recorder{keep: keep, runs: map[cluster.JobKey]palapi.Run{}, looked: map[cluster.JobKey]bool{}, live: map[string]Alloc{}, stored: map[string]uint64{}}
	r.know(open)
	for _, a := range live {
		r.live[a.ID] = a
	}
	return r
}

// Continue takes over the data of an earlier recorder of the same queue that is not in the
// database.
func (r *Recorder) Continue(was *Recorder) {
	if was != nil {
		r.stops, r.created = was.stops, was.created
	}
}

// Missing returns the jobs in a snapshot whose last run must be read from the database, because the
// recorder does not know it.
func (r *Recorder) Missing(m *model.Model) (jobs []cluster.JobKey) {
	for _, k := range m.State.SortedJobs() {
		_, known := r.runs[k]
		if !known && !r.looked[k] {
			jobs = append(jobs, k)
		}
	}
	return jobs
}

// Know gives the recorder the last stored runs of these jobs, as [DB.LastRuns] returns them.
func (r *Recorder) Know(jobs []cluster.JobKey, last []palapi.Run) {
	for _, k := range jobs {
		r.looked[k] = true
	}
	r.know(last)
}

func (r *Recorder) know(runs []palapi.Run) {
	for _, run := range runs {
		if last, ok := r.runs[keyOf(run)]; !ok || run.Submitted.After(last.Submitted) {
			r.runs[keyOf(run)] = run
		}
	}
}

// IdleGPU is a period in which a job (namespace/id) held a GPU that computed nothing.
type IdleGPU struct {
	GPU, Job string
	From, To time.Time
}

// picture is the snapshot that a recorder compares with the stored data.
type picture struct {
	*model.Model
	scores map[string][]float64 // by model and class, the scores of usable GPUs, fastest first
}

// Look compares a snapshot with what is stored, and returns the differences and the idle times.
// Look does not change the recorder; call [Recorder.Written] after the differences are stored.
func (r *Recorder) Look(of *model.Model, idle []IdleGPU) Batch {
	m := &picture{of, map[string][]float64{}}
	b := Batch{seen: map[string]uint64{}, stops: map[cluster.JobKey]queue.Stops{}}
	runs := map[cluster.JobKey]palapi.Run{}
	for _, k := range m.State.SortedJobs() {
		job := m.State.Jobs[k]
		st := m.Observed(job)
		if st.Nomad == palapi.Template {
			continue
		}
		was, known := r.runs[k]
		now, ok := r.run(m, st, was, known)
		if !ok {
			continue
		}
		s := queue.StopsOf(m.Queue, k.String())
		if s != (queue.Stops{}) && (now.Ended.IsZero() || now != was) {
			addStops(&now, s, r.stops[k])
			b.stops[k] = s
		}
		runs[k] = now
		if !known || now != was {
			b.Runs = append(b.Runs, now)
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(r.runs), cluster.JobKey.Compare) {
		run := r.runs[k]
		if run.Ended.IsZero() && m.State.Jobs[k] == nil && m.State.Unread[k] == nil && !anyLive(m.State, k) {
			run.State, run.Reason = palapi.RunUnknown, "the job was purged"
			run.Ended = cmp.Or(lastEnd(m.State, k, run.Submitted), ms(m.Time))
			run.Ended = later(run.Ended, run.Submitted) // in case a clock was set back
			runs[k] = run
			b.Runs = append(b.Runs, run)
		}
	}
	r.allocs(m.Model, runs, &b)
	for _, i := range idle {
		namespace, id, _ := strings.Cut(i.Job, "/")
		for _, a := range m.State.AllocsOf(cluster.JobKey{Namespace: namespace, ID: id}) {
			if slices.Contains(a.GPUs, i.GPU) && !time.Unix(0, a.CreateTime).After(i.From) {
				b.Idle = append(b.Idle, Idle{a.ID, ms(i.From), ms(i.To), held(m.Model, i.GPU)})
			}
		}
	}
	return b
}

// run returns a job's run in its current form. ok is false if there is nothing to record.
func (r *Recorder) run(m *picture, st gang.Observed, was palapi.Run, known bool) (now palapi.Run, ok bool) {
	if known && !was.Ended.IsZero() && st.Nomad == palapi.Ended && !ranSince(m.State, st.Key, was.Ended) {
		return was, true // the usual case: the job has ended, and its end is stored
	}
	if known && was.Ended.IsZero() {
		last, created := r.created[st.Key]
		now, again := endBefore(m, st, was, created && last != createIndex(st.Job))
		if again {
			return now, true
		}
	}
	o := outcome(m.Model, st)
	over := o != nil
	switch {
	case known && !was.Ended.IsZero() && over && !ranSince(m.State, st.Key, was.Ended):
		return was, true
	case known && was.Ended.IsZero():
		now = was
	case over && r.keep > 0 && m.Time.Sub(o.At) > r.keep:
		return now, false
	default:
		now = palapi.Run{Namespace: st.Key.Namespace, Job: st.Key.ID, Submitted: submitted(m, st, was.Ended)}
		last := was.Ended
		if was.State == palapi.RunStopped || was.State == palapi.RunUnknown { // its members may have ended after the new submission
			last = was.Submitted
		}
		if known && !now.Submitted.After(last) { // the new run needs another key than was
			now.Submitted = was.Ended.Add(time.Millisecond)
		}
	}
	now.User, now.State = rewrite.UserOf(st.Job), palapi.RunPending
	now.Family = cluster.NameOf(st.Job).ID
	n := st.Holds()
	if n > 0 && finishedGPUs(m.State, st.Job) == 0 {
		now.GPUs = n
	}
	describe(&now, m, st)
	switch {
	case over:
		setEnd(&now, m, st, o)
	case anyLive(m.State, st.Key) && rewrite.Stopped(st.Job):
		now.State = palapi.RunStopped
	case anyLive(m.State, st.Key):
		now.State = palapi.RunRunning
	}
	return now, true
}

// endBefore returns the end of a run whose job was stopped or purged and submitted again, perhaps
// before its last member ended. The run does not change until all its members have ended, but
// members on a disconnected node count only until the new submission. again is false if the job was
// not submitted again. Nomad forgets the members of a purged job at once (seen on 1.11.3), so only
// the argument purged then shows the purge.
func endBefore(m *picture, st gang.Observed, was palapi.Run, purged bool) (now palapi.Run, again bool) {
	ending := false
	stopped := false
	kept := false
	forgotten := true
	at := later(was.Submitted, was.Started) // in case a clock was set back
	for _, a := range m.State.AllocsOf(st.Key) {
		if len(a.GPUs) == 0 || ms(time.Unix(0, a.CreateTime)).Before(was.Submitted) {
			continue
		}
		old := a.OfPurged(st.Job)
		purged, forgotten = purged || old, false
		stopped = stopped || a.CreateIndex < m.State.StoppedAt(st.Key)
		switch {
		case a.LeftBehind(st.Job):
			at = later(at, ms(time.Unix(0, *st.Job.SubmitTime)))
		case !a.Live():
			at = later(at, ms(a.End()))
		case old || a.Desired == api.AllocDesiredStatusStop:
			ending = true
		default:
			kept = true
		}
	}
	if stopped && !kept && !purged && !rewrite.Stopped(st.Job) { // no snapshot showed the stopped job
		was.State = palapi.RunStopped
	}
	switch {
	case !purged && (rewrite.Stopped(st.Job) || was.State != palapi.RunStopped):
		return was, false
	case ending:
		return was, true
	case was.State != palapi.RunStopped:
		was.State, was.Reason = palapi.RunUnknown, "the job was purged"
	default:
		was.Reason = "the job was stopped, and submitted again"
	}
	was.Ended = at
	if forgotten {
		was.Ended = later(at, ms(m.Time))
	}
	return was, true
}

func createIndex(job *api.Job) uint64 {
	if job.CreateIndex == nil {
		return 0
	}
	return *job.CreateIndex
}

// setEnd records how the run ended.
func setEnd(now *palapi.Run, m *picture, st gang.Observed, o *palapi.Outcome) {
	now.State = palapi.RunState(o.Status)
	now.Reason = o.Reason.String()
	now.Ended = ms(o.At)
	if o.Status == palapi.AtRest {
		now.State = palapi.RunStopped
	}
	at := lastEnd(m.State, st.Key, now.Submitted)
	switch {
	case now.State == palapi.RunStopped:
		now.Ended = later(now.Ended, at) // if it had members, they ended last
	case !at.IsZero():
		now.Ended = at
	}
	now.Ended = later(now.Ended, later(now.Submitted, lastBegin(m.State, st.Key))) // in case a clock was set back
	if now.Started.IsZero() {
		now.Waited = palapi.Seconds(now.Ended.Sub(now.Submitted))
	}
	if now.State == palapi.RunComplete && !now.Whole.IsZero() && inOnePiece(m.State, *now) {
		now.Took = palapi.Seconds(now.Ended.Sub(now.Whole))
	}
}

// addStops adds the queue's newly counted stops to the run: the difference between the present counts
// (is) and the counts at the previous write (was). The queue restarts its counts at 0 when the
// queue restarts, and when the job leaves the queue.
func addStops(now *palapi.Run, is, was queue.Stops) {
	if is.Stops < was.Stops || is.LostGPUSeconds < was.LostGPUSeconds || is.SavedSeconds < was.SavedSeconds {
		was = queue.Stops{}
	}
	now.Stops.Stops += is.Stops - was.Stops
	now.LostGPUSeconds += is.LostGPUSeconds - was.LostGPUSeconds
	now.SavedSeconds += is.SavedSeconds - was.SavedSeconds
}

// inOnePiece reports whether all members of the run completed without being replaced, stopped or
// restarted.
func inOnePiece(s *cluster.State, r palapi.Run) bool {
	return !slices.ContainsFunc(s.AllocsOf(keyOf(r)), func(a *cluster.Alloc) bool {
		began := ms(time.Unix(0, a.CreateTime))
		if len(a.GPUs) == 0 || began.Before(r.Submitted) {
			return false
		}
		return a.Restarts() > 0 || began.After(r.Whole) || a.Client != api.AllocClientStatusComplete || a.Desired != api.AllocDesiredStatusRun
	})
}

// outcome returns how a run ended. outcome returns nil if the run has not ended or the placer may
// retry it.
func outcome(m *model.Model, st gang.Observed) *palapi.Outcome {
	t := m.Jobs[st.Key]
	givenUp := t != nil && !t.GaveUp().IsZero()
	if st.Nomad != palapi.Ended && !givenUp || anyLive(m.State, st.Key) {
		return nil
	}
	o := query.OutcomeOf(m, st)
	if o.At.IsZero() {
		o.At = time.Unix(0, *st.Job.SubmitTime)
	}
	if givenUp {
		o.Status, o.Reason = string(palapi.RunFailed), t.GaveUp()
	}
	return o
}

// describe sets the fields of the run from the job's members and the placer's record.
func describe(now *palapi.Run, m *picture, st gang.Observed) {
	for _, a := range m.State.AllocsOf(st.Key) {
		at := ms(time.Unix(0, a.CreateTime))
		if len(a.GPUs) == 0 || at.Before(now.Submitted) {
			continue
		}
		if now.Started.IsZero() || at.Before(now.Started) {
			now.Started = at
			now.Waited = max(now.Waited, palapi.Seconds(at.Sub(now.Submitted)))
		}
		name := modelOf(m.Model, a.GPUs[0])
		if name != "" {
			now.Model = name
		}
	}
	t := m.Jobs[st.Key]
	if t == nil {
		if r, err := m.View.Request(rewrite.Author(st.Job)); err == nil { // it ran between two snapshots
			setRequest(now, m.State, r)
		}
		return
	}
	if t.Refused == nil {
		setRequest(now, m.State, t.Request)
	}
	rec := t.Record
	if rec == nil || rec.Decided.Before(now.Submitted) {
		return
	}
	now.Waited = max(now.Waited, palapi.Seconds(rec.Waited.Truncate(time.Millisecond)))
	if now.Whole.IsZero() && !rec.Ready.IsZero() {
		now.Whole = ms(rec.Ready)
	}
	d := rec.Decision
	if d.Chosen == nil {
		return
	}
	if now.Predicted != d.Chosen.Cost || now.Any == 0 {
		now.Any = m.anyCost(d)
	}
	now.Predicted, now.Slowest = d.Chosen.Cost, d.Chosen.SlowestClass()
	now.Packed = 0
	if d.Packed != nil {
		now.Packed = d.Packed.Cost
	}
}

// setRequest sets the fields of the run that describe what the job requests. A request does not
// include completed members, so requests adds the GPUs of these members.
func setRequest(now *palapi.Run, s *cluster.State, r request.Request) {
	now.Class, now.Preemptible = string(r.Gang.Class), r.Hints.Preempt
	done := finishedGPUs(s, r.Job)
	if done == 0 || now.GPUs == 0 {
		now.GPUs = r.Gang.GPUs() + done
	}
	now.MemberGPUs = 0
	for i, s := range r.Gang.MemberSets {
		if i > 0 && s.GPUs != now.MemberGPUs {
			now.MemberGPUs = 0
			break
		}
		now.MemberGPUs = s.GPUs
	}
}

// finishedGPUs counts the GPUs of a batch job's completed members.
func finishedGPUs(s *cluster.State, job *api.Job) (n int) {
	for _, a := range s.AllocsOf(cluster.KeyOf(job)) {
		if a.FinishedIn(job) {
			n += len(a.GPUs)
		}
	}
	return n
}

// anyCost returns the mean cost over all sets of the same number of usable GPUs of the same model,
// with the locality penalty of the chosen GPUs. anyCost returns 0 if the mean is unknown.
func (m *picture) anyCost(d pal.Decision) float64 {
	gpus := d.Chosen.GPUIDs()
	if d.Chosen.PMScore <= 0 || len(gpus) == 0 {
		return 0
	}
	all := m.scoresOf(modelOf(m.Model, gpus[0]), d.Class)
	if len(all) < len(gpus) {
		return 0
	}
	n := len(gpus)
	if d.Replicas { // replicas work independently
		n = 1
	}
	return meanSlowest(all, n) * d.Chosen.Cost / float64(d.Chosen.PMScore)
}

// meanSlowest returns the mean of the largest score in a choice of n scores, taken over all such
// choices. The scores are sorted. The i-th score (counted from 1) is the largest chosen score with
// the probability below × n/i, where below is the probability that no later score is chosen.
func meanSlowest(scores []float64, n int) (mean float64) {
	below := 1.0
	for i := len(scores); i >= n; i-- {
		part := float64(n) / float64(i)
		mean += below * part * scores[i-1]
		below *= 1 - part
	}
	return mean
}

func (m *picture) scoresOf(model string, class pal.AppClass) []float64 {
	k := model + "/" + string(class)
	if all, ok := m.scores[k]; ok {
		return all
	}
	c, all := m.View.Cluster, []float64(nil)
	for i := range c.NumGPUs() {
		g := c.GPU(i)
		if g.Health != (pal.Health{}) || modelAt(m.Model, i) != model {
			continue
		}
		score := float64(g.Scores[class.Index()])
		if score == 0 {
			score = 1 // the score that predictions assume
		}
		all = append(all, score)
	}
	slices.Sort(all)
	m.scores[k] = all
	return all
}

// allocs adds the allocations that have changed to the batch.
func (r *Recorder) allocs(m *model.Model, runs map[cluster.JobKey]palapi.Run, b *Batch) {
	var changed []string
	for id, a := range m.State.Allocs {
		at := r.stored[id]
		if len(a.GPUs) > 0 && at != a.ModifyIndex && at != ended {
			changed = append(changed, id)
		}
	}
	slices.Sort(changed)
	for _, id := range changed {
		a := m.State.Allocs[id]
		if !a.Live() && r.keep > 0 && m.Time.Sub(time.Unix(0, a.ModifyTime)) > r.keep {
			continue
		}
		now := r.alloc(m, a, runs)
		b.Allocs, b.seen[id] = append(b.Allocs, now), a.ModifyIndex
	}
	for _, id := range slices.Sorted(maps.Keys(r.live)) {
		if m.State.Allocs[id] == nil {
			a := r.live[id]
			a.To, a.Status = later(a.From, ms(m.Time)), string(palapi.RunUnknown)
			b.Allocs = append(b.Allocs, a)
		}
	}
}

func (r *Recorder) alloc(m *model.Model, a *cluster.Alloc, runs map[cluster.JobKey]palapi.Run) Alloc {
	now, known := r.live[a.ID]
	if !known {
		now = Alloc{ID: a.ID, Namespace: a.Job.Namespace, Job: a.Job.ID, GPUs: a.GPUs, From: ms(time.Unix(0, a.CreateTime))}
		now.Model, now.Held = modelOf(m, a.GPUs[0]), held(m, a.GPUs...)
		n := m.State.Nodes[a.Node]
		if n != nil {
			now.Node = n.Name
		}
	}
	if run, ok := runs[a.Job]; ok && !run.Submitted.After(now.From) {
		now.Submitted = run.Submitted
		now.User = run.User
		now.Class = run.Class
		now.Predicted = run.Predicted
		now.Packed = run.Packed
		now.Vain = later(run.Whole, now.From)
	}
	now.Status = a.Client
	if !a.Live() {
		now.To = later(now.From, ms(a.End())) // in case a clock was set back
		run := runs[a.Job]
		if run.Whole.IsZero() && m.Jobs[a.Job] != nil && run.GPUs > len(a.GPUs) {
			now.Vain = now.To // not all members of its gang ever ran together
		}
	}
	return now
}

// ended is stored instead of the ModifyIndex of an allocation whose end is already in the database.
const ended = math.MaxUint64

// Written tells the recorder that a batch was stored.
func (r *Recorder) Written(b Batch, m *model.Model) {
	for _, run := range b.Runs {
		r.runs[keyOf(run)] = run
	}
	maps.Copy(r.stored, b.seen)
	r.stops, r.created = b.stops, map[cluster.JobKey]uint64{}
	for k, job := range m.State.Jobs {
		r.created[k] = createIndex(job)
	}
	for _, a := range b.Allocs {
		r.live[a.ID] = a
		if !a.To.IsZero() {
			delete(r.live, a.ID)
			r.stored[a.ID] = ended
		}
	}
	maps.DeleteFunc(r.stored, func(id string, _ uint64) bool { return m.State.Allocs[id] == nil })
	maps.DeleteFunc(r.runs, func(k cluster.JobKey, run palapi.Run) bool { return !run.Ended.IsZero() && m.State.Jobs[k] == nil })
	maps.DeleteFunc(r.looked, func(k cluster.JobKey, _ bool) bool { return m.State.Jobs[k] == nil })
}

func anyLive(s *cluster.State, k cluster.JobKey) bool {
	return slices.ContainsFunc(s.AllocsOf(k), func(a *cluster.Alloc) bool { return a.Live() && len(a.GPUs) > 0 })
}

// ranSince reports whether Nomad placed an allocation with GPUs for the job after the given time.
func ranSince(s *cluster.State, k cluster.JobKey, since time.Time) bool {
	return slices.ContainsFunc(s.AllocsOf(k), func(a *cluster.Alloc) bool {
		return len(a.GPUs) > 0 && time.Unix(0, a.CreateTime).After(since)
	})
}

func lastBegin(s *cluster.State, k cluster.JobKey) (at time.Time) {
	for _, a := range s.AllocsOf(k) {
		if len(a.GPUs) > 0 {
			at = later(at, ms(time.Unix(0, a.CreateTime)))
		}
	}
	return at
}

// lastEnd returns the latest end of the allocations that belong to the run with this submission
// time, or zero if there are no allocations.
func lastEnd(s *cluster.State, k cluster.JobKey, submitted time.Time) (at time.Time) {
	for _, a := range s.AllocsOf(k) {
		if len(a.GPUs) > 0 && !ms(time.Unix(0, a.CreateTime)).Before(submitted) {
			at = later(at, ms(a.End()))
		}
	}
	return at
}

// submitted returns the submission time of a job that was submitted before the recorder started.
// Nomad's SubmitTime can be later, because it can be the time of the last edit or of a stop. If an
// allocation was placed between since and SubmitTime, the job was submitted before SubmitTime.
func submitted(m *picture, st gang.Observed, since time.Time) time.Time {
	at := time.Unix(0, *st.Job.SubmitTime)
	t := m.Jobs[st.Key]
	if t != nil && t.Submitted().Before(at) {
		at = t.Submitted()
	}
	for _, a := range m.State.AllocsOf(st.Key) {
		began := time.Unix(0, a.CreateTime)
		if len(a.GPUs) > 0 && !a.OfPurged(st.Job) && began.After(since) && began.Before(at) {
			at = began
		}
	}
	return ms(at)
}

// modelOf returns a GPU's model as Nomad names it, or "" if no node has the GPU now.
func modelOf(m *model.Model, gpu string) string {
	c := m.View.Cluster
	i := c.Find(gpu)
	if i < 0 {
		return ""
	}
	return modelAt(m, i)
}

func modelAt(m *model.Model, i int) string {
	_, group := m.View.Cluster.Group(m.View.Cluster.GroupOf(i))
	return group[strings.LastIndex(group, "/")+1:]
}

// held returns the number of GPUs for a list of instances. A part of a shared GPU counts as a
// fraction.
func held(m *model.Model, gpus ...string) (n float64) {
	for _, id := range gpus {
		i := m.View.Cluster.Find(id)
		if i >= 0 {
			n += m.View.Cluster.Amount(i)
		} else {
			n++
		}
	}
	return n
}

// ms truncates a time to milliseconds, as in the database.
func ms(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return time.UnixMilli(t.UnixMilli())
}
