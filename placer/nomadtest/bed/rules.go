// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// rules are the invariants of the placer:
//
//   - A placer registers, stops or purges only jobs with a gate or pins. Apart from gates and pins,
//     it registers only specs that an author wrote.
//   - A gang runs completely or not at all. It may be incomplete only for a limited time.
//   - A finished gang does not run again. In two cases no placer can prevent a second run: either
//     an elastic gang finishes while its new size is registered, or a gang finishes after Nomad has
//     checked a registration and before Nomad writes it. In these cases, the placer must stop the
//     gang before it finishes a second time. The placer need not do so if a request about the gang
//     fails after the gang has finished, or if the placer ends.
//   - In a job whose members do not need each other, a finished member runs again only together
//     with its whole gang.
//   - No member is pinned to a GPU on which another member's tasks still run. This includes members
//     of the same job and of purged jobs.
//   - The gangs of a tenant, or of a user, exceed their limit of GPUs at most for a limited time.
//     They may exceed the limit for longer if, just before a placer started gangs, Nomad replaced
//     members or chose GPUs for canaries, a request about the gang failed, or another placer
//     started gangs.
//   - At most pal_array_parallel runs of a parameterized or periodic job have GPUs. This limit may
//     be exceeded only for a limited time.
//   - The placer does not register a job that was dispatched with a payload, because a registration
//     would lose the payload.
//   - After a failed deployment, the version that Nomad restores (auto_revert) stays in force until the
//     service's author registers it again.
//   - A job on hold does not start, and is not in the queue.
//   - The queue and the placer's view of the cluster agree on the GPUs that each gang holds.
//   - Answers about waiting jobs are right. For each waiting job in a snapshot, the answers of
//     explain and the list of jobs must agree with the queue and the ledger. They must agree about
//     the reason, the expected start, the jobs that go first, and the holders of GPUs.
type rules struct {
	w *World

	mu     sync.Mutex
	jobs   map[nomadtest.Key]*story
	order  []nomadtest.Key // keys of jobs, sorted
	broken []string
	// forms caches, for each job in Nomad, the form that the author wrote. A job object is never
	// changed, only replaced.
	forms map[*api.Job]string
	// lookedAt is the progress of Nomad at the previous call of look. inPart is true if, at that
	// call, a gang was incomplete or a limit was exceeded.
	lookedAt nomadtest.Progress
	inPart   bool
	ledgers  int       // number of ledgers checked
	asked    int       // number of waiting jobs whose answers were checked
	limit    int       // maximum number of GPUs of all gangs together; 0 if there is no limit
	perUser  bool      // whether limit applies to each user's gangs
	beyond   time.Time // since when gangs have exceeded the limit; zero if they do not
	// replaced is the time when Nomad last replaced a member without the placer. bothStarted is the
	// last time when two active placers started gangs shortly after one another. unknowable is true
	// if the limit was exceeded shortly after replaced or bothStarted, when a placer could not know
	// about the other start. Either a placer was waiting for an answer (walk 8400697), or both
	// placers decided at the same time (walk 9000593).
	replaced, bothStarted time.Time
	rerun                 time.Time // when Nomad last placed a member that it had placed before
	unknowable            bool
	startedBy             map[string]time.Time     // when each placer last started a gang
	failedAt              map[string]time.Time     // when each placer's requests last failed; "… controls": those about people's commands
	arrays                map[nomadtest.Key]*array // by template, from the latest call of look
	placers               []*Placer
	dead                  map[string]time.Time // when each placer ended; active placers have no entry
	diedAt                time.Time            // when the last placer ended
	// atOnce maps the JobModifyIndex of a registration to the index that the registration would
	// have if Nomad had written it immediately after the check. The two indexes differ if Nomad
	// wrote the registration late.
	atOnce map[uint64]uint64
	// seen records, by the index of the purge, whether every placer had read all of Nomad's state
	// before the purge.
	seen map[uint64]bool
	// putBack counts how often Nomad has reverted services.
	putBack int
	// again contains the gangs that ran again because Nomad did not answer.
	again map[nomadtest.Key]bool
	// trouble is the time of the last fault that can explain an incomplete gang.
	trouble time.Time
}

// story records what a job's author wants, and what has happened to the job.
type story struct {
	// wrote contains the specifications that the job's authors registered, without gate and pins.
	wrote map[string]bool
	last  *api.Job
	form  string // the author's form of last
	// since is the JobModifyIndex of the author's last registration. Members that finished in an
	// earlier version may run again.
	since uint64
	gone  bool // the author has stopped or purged the job
	purge bool
	// back is the placer that registered the job after it had been stopped or purged. backAt is the
	// time of this registration.
	back   string
	backAt time.Time
	done   map[string]bool // members that have finished since the author's last registration
	placed map[string]bool // members that were placed, by version
	// kept is for jobs whose members do not need each other: it contains the end time of each
	// member that has finished since the gang last had a gate. Such a member must not run again,
	// unless it finished after the placer had last looked and before the registration at rewroteAt.
	kept      map[string]time.Time
	rewroteAt time.Time
	// away contains members that Nomad may place again, because they were lost, or were stopped
	// without a gate.
	away  map[string]bool
	gated bool
	// preempted contains the members of each version that Nomad preempted in favour of another job.
	// Nomad runs a preempted member again even if the member finished at the moment of the
	// preemption (walk 10002139).
	preempted map[string]bool
	// whole is true if all members finished, in version wholeIn and at time wholeAt. disturbed is
	// the time when a placer's request about the job last failed.
	whole bool
	// template is the parameterized or periodic job from which Nomad made the job, or the zero key
	// if there is none.
	template nomadtest.Key
	// gpusDone is true if all members with GPUs have finished. The placer does not watch members
	// without GPUs.
	gpusDone  bool
	wholeIn   uint64
	wholeAt   time.Time
	disturbed time.Time
	// late is true if Nomad checked a placer's registration before the gang finished, and wrote the
	// registration after that.
	late bool
	// over contains the JobModifyIndex of each registration by a placer that overwrote another
	// registration. This happens if Nomad wrote the other registration between the check and the
	// write of the placer's registration. While the overwritten version waits for GPUs, the version
	// that replaced it can run to its end (walk 5005677).
	over map[uint64]bool
	// overBy is the placer that made the last registration in over. overAt is its time, or zero after
	// the author's next change.
	overBy string
	overAt time.Time
	// unknown is true if the job was purged while a placer registered it, and this placer has ended
	// since then. Nobody can then tell the resulting job from a new one.
	unknown bool
	// reverted is the form to which Nomad reverted the service after a failed deployment.
	// revertedAt is the index of this revert. reverted is "" after the author's next registration.
	reverted   string
	revertedAt uint64
	// heldAt is the time when somebody put the job on hold, with a command to the placer heldBy.
	// heldAt is zero if the job is not on hold, or if the placer that starts the job cannot know
	// about the hold.
	heldAt  time.Time
	heldBy  string
	partial time.Time // since when the gang has been incomplete; zero if it is not
	ended   time.Time // when the last member ended
}

func newRules(w *World) *rules {
	r := &rules{w: w, jobs: map[nomadtest.Key]*story{}, forms: map[*api.Job]string{}, dead: map[string]time.Time{}, again: map[nomadtest.Key]bool{}, atOnce: map[uint64]uint64{}, seen: map[uint64]bool{}, startedBy: map[string]time.Time{}, failedAt: map[string]time.Time{}, trouble: time.Now()}
	w.Nomad.Observe(w.transcript())
	w.Nomad.Observe(nomadtest.Observer{Wrote: r.wrote, Placed: r.placed, Ended: r.ended, Shared: r.shared})
	return r
}

// starts records a new placer before the placer starts to work.
func (r *rules) starts(p *Placer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.placers = append(r.placers, p)
}

func (r *rules) violations() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.broken)
}

// counted returns how many gangs ran again, how many services were reverted, and how many ledgers
// were checked.
func (r *rules) counted() (c struct{ ranAgain, reverted, ledgers int }) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.ranAgain, c.reverted, c.ledgers = len(r.again), r.putBack, r.ledgers
	return c
}

func (r *rules) violated(format string, args ...any) {
	const most = 20
	if len(r.broken) < most {
		r.broken = append(r.broken, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
	}
}

// Excuse records that there is a fault now, so that a gang may be incomplete for some time.
func (w *World) Excuse() {
	w.rules.mu.Lock()
	defer w.rules.mu.Unlock()
	w.rules.trouble = time.Now()
}

// authorForm returns what the author wrote of a canonical job, as a text for comparisons.
func authorForm(j *api.Job) string {
	own := *rewrite.Author(j)
	own.Stop = nil
	if _, elastic := rewrite.ElasticOf(j); elastic { // the placer sets the count
		group := *own.TaskGroups[0]
		group.Count = nil
		own.TaskGroups = []*api.TaskGroup{&group}
	}
	return nomadtest.Spec(&own)
}

// formOf returns the authorForm of a job in Nomad, from the cache if possible. The caller holds
// r.mu.
func (r *rules) formOf(j *api.Job) string {
	form, ok := r.forms[j]
	if !ok {
		form = authorForm(j)
		r.forms[j] = form
	}
	return form
}

func (r *rules) story(k nomadtest.Key) *story {
	if r.jobs[k] == nil {
		r.jobs[k] = &story{wrote: map[string]bool{}, done: map[string]bool{}, placed: map[string]bool{}, kept: map[string]time.Time{}, away: map[string]bool{}, preempted: map[string]bool{}, over: map[uint64]bool{}}
		i, _ := slices.BinarySearchFunc(r.order, k, cluster.JobKey.Compare)
		r.order = slices.Insert(r.order, i, k)
	}
	return r.jobs[k]
}

func (r *rules) submits(j *api.Job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.submitted(j)
}

// submitted records the job that an author registered. The caller holds r.mu.
func (r *rules) submitted(j *api.Job) *story {
	s := r.story(cluster.KeyOf(j))
	s.last, s.gone, s.unknown = copyOf(j), false, false
	j.Canonicalize()
	s.form = authorForm(j)
	s.wrote[s.form] = true
	s.done, s.whole, s.gpusDone = map[string]bool{}, false, false
	return s
}

// authoredJobs returns the jobs that authors have registered or dispatched, in order.
func (r *rules) authoredJobs() []nomadtest.Key {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.order), func(k nomadtest.Key) bool { return r.jobs[k].last == nil })
}

func (r *rules) stops(k nomadtest.Key, purge bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.story(k)
	s.gone, s.purge = true, purge
}

func (r *rules) authored(k nomadtest.Key) *api.Job {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.jobs[k]; s != nil && s.last != nil {
		return copyOf(s.last)
	}
	return nil
}

func (r *rules) finished(k nomadtest.Key) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.jobs[k]
	return s != nil && s.whole
}

// ours reports whether the placer may touch the job.
func ours(j *api.Job) bool {
	_, pinned := rewrite.Pinned(j)
	return pinned || rewrite.Gated(j)
}

func (r *rules) wrote(x nomadtest.Write) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.story(x.Job)
	if x.Kind != "deregister" && x.After != nil && x.After != x.Before {
		r.atOnce[*x.After.JobModifyIndex] = x.Checked + 1
	}
	if x.After == nil {
		r.seen[x.Index] = r.sawAll()
	}
	if x.Kind != "stop" { // "stop" stops members, not the job
		s.gated = x.After == nil || rewrite.Gated(x.After)
	}
	if s.gated {
		s.kept = map[string]time.Time{}
	}
	s.rewroteAt = time.Now()
	r.reverts(s, x)
	r.startsHeld(s, x)
	if (x.Kind == "dispatch" || x.Kind == "launch") && x.After != x.Before { // the child is a copy of its template
		r.submitted(copyOf(x.After)).template = nomadtest.Key{Namespace: x.Job.Namespace, ID: *x.After.ParentID}
		s.late, s.since, s.kept = false, *x.After.JobModifyIndex, map[string]time.Time{}
	}
	if !strings.HasPrefix(x.Client, "placer") {
		if x.Kind == "revert" { // Nomad's revert hides what the placer overwrote (walk 8000063)
			s.unknown = s.unknown || !s.overAt.IsZero() && time.Since(s.overAt) < longCycle
		} else if x.Kind != "stop" {
			s.overAt = time.Time{}
		}
		if x.Kind == "register" && x.After != nil { // the author's change starts new counts
			s.gone = *x.After.Stop
			s.done, s.whole, s.gpusDone, s.late, s.since, s.kept = map[string]bool{}, false, false, false, *x.After.JobModifyIndex, map[string]time.Time{}
		}
		return
	}
	if x.Kind == "register" && x.After != nil && Carries(x.After) == "pinned" {
		r.startedOne(x.Client)
	}
	s.late = s.late || s.whole && x.Kind == "register" && x.Index > x.Checked+1
	if x.Kind == "register" && x.Before != nil && x.After != nil && *x.Before.JobModifyIndex > x.Checked {
		s.over[*x.After.JobModifyIndex], s.overBy, s.overAt = true, x.Client, time.Now()
	}
	switch {
	case x.Before == nil && x.Kind == "register":
		// If the author has purged the job, the placer's registration brings it back. If a placer
		// learns of the purge, it must purge the job again. But the placer that made this
		// registration may have ended.
		s.unknown = s.gone && s.purge && !r.dead[x.Client].IsZero()
		s.back, s.backAt = x.Client, time.Now()
	case x.Before != nil && len(x.Before.Payload) > 0 && x.Kind == "register":
		r.violated("the registration by %s discarded the payload of job %s", x.Client, x.Job)
	case x.Before != nil && !ours(x.Before) && x.Kind != "register":
		r.violated("%s sent a %s of %s, but this job has neither gate nor pins", x.Client, x.Kind, x.Job)
	}
	if x.Kind == "register" && x.After != nil && len(s.wrote) > 0 && !s.wrote[r.formOf(x.After)] {
		r.violated("%s registered %s in a form that no author wrote", x.Client, x.Job)
	}
}

// reverts records the form to which Nomad reverted a job. reverts reports a violation if a placer
// registers another form. The caller holds r.mu.
func (r *rules) reverts(s *story, x nomadtest.Write) {
	switch {
	case x.Kind == "revert":
		s.reverted, s.revertedAt = r.formOf(x.After), x.Index
		// Nomad can revert to a version in which the job was stopped (scenario "reverted to a
		// stopped version").
		s.gone = s.gone || *x.After.Stop
		r.putBack++
	case s.reverted == "" || x.Kind == "stop" || x.After != nil && x.After == x.Before:
	case !strings.HasPrefix(x.Client, "placer") || x.After == nil || x.Checked < s.revertedAt:
		s.reverted = ""
	case x.Kind == "register" && r.formOf(x.After) != s.reverted:
		r.violated("%s undid Nomad's revert of %s: it registered another form of the job", x.Client, x.Job)
		s.reverted = ""
	}
}

// startedOne records that a placer has started a gang. The caller holds r.mu.
func (r *rules) startedOne(placer string) {
	now := time.Now()
	for other, at := range r.startedBy {
		if other != placer && r.dead[other].IsZero() && now.Sub(at) < longCycle {
			r.bothStarted = now
		}
	}
	r.startedBy[placer] = now
}

func (r *rules) placed(m nomadtest.Member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// The placer is not responsible for members that Nomad places again by itself, for example
	// after a preemption.
	if !ours(m.PlacedBy) {
		return
	}
	s, as := r.story(m.Job), fmt.Sprintf("%d %s[%d]", *m.Version.Version, m.Group, m.Number)
	member := fmt.Sprintf("%s[%d]", m.Group, m.Number)
	at := *m.PlacedBy.JobModifyIndex
	// If a member finishes before Nomad writes the registration, the member runs again (walk
	// 760053).
	late := cmp.Or(r.atOnce[at], at) < at
	// If an author gates a gang again and a request about the gang fails, the gang's members end
	// late. So other members can get the gang's GPUs while its members still run (walk 20393).
	delayed := !s.disturbed.IsZero() && time.Since(s.disturbed) < longCycle
	if s.placed[as] || s.away[member] || late || delayed || nomadChooses(m.PlacedBy) {
		r.replaced = time.Now()
	}
	if s.placed[as] || s.away[member] {
		r.rerun = time.Now()
	}
	s.placed[as], s.away[member] = true, false
	if done, ok := s.kept[member]; ok && !s.gone && s.rewroteAt.Sub(done) > atOnce {
		r.violated("%s[%d] of %s had finished and needs no other member, but is run again", m.Group, m.Number, m.Job)
	}
	_, elastic := rewrite.ElasticOf(m.Version) // the method ended checks elastic gangs
	if s.whole && !s.gone && !elastic && !s.preempted[as] && !s.late && !s.over[*m.PlacedBy.JobModifyIndex] {
		r.violated("%s had finished, but %s[%d] is run again", m.Job, m.Group, m.Number)
	}
}

// nomadChooses reports whether Nomad may start members of a job on GPUs that the placer did not
// choose: any member of a job that only prefers nodes, and canaries of a job with pins to a class
// (walk 2085 with many services). Then nothing enforces the tenant's limit.
func nomadChooses(job *api.Job) bool {
	p, ok := rewrite.Pinned(job)
	return ok && (p.Mode == rewrite.ModePrefer || p.Mode == rewrite.ModeClass && gang.HasCanaries(job))
}

func (r *rules) shared(gpu string, first, second nomadtest.Member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// If the pins name only nodes, Nomad may choose any GPUs of a node. The placer cannot know
	// about members that Nomad placed after it had checked the pins, and Nomad can write the pins
	// much later.
	p, _ := rewrite.Pinned(second.PlacedBy)
	if first.Job == second.Job && *second.PlacedBy.Type == api.JobTypeService {
		return // Nomad's deployment replaces one member after the other
	}
	pinned := cmp.Or(r.atOnce[*second.PlacedBy.JobModifyIndex], *second.PlacedBy.JobModifyIndex)
	was, _ := rewrite.Pinned(first.PlacedBy)
	if first.LostIndex >= pinned || first.LostIndex > 0 && first.Job == second.Job && slices.Equal(was.GPUs(), p.GPUs()) {
		// After a node has come back, Nomad gives the GPUs of a lost member to another job if the
		// pins are older than the loss, or are the same as before.
		return
	}
	unheard := lateEvent
	if at := *second.PlacedBy.JobModifyIndex; cmp.Or(r.atOnce[at], at) < at {
		unheard += longCycle // the pins were also written late (walk 22650)
	}
	if first.PreemptedBy == second.Job && second.CreatedAt.Sub(first.CreatedAt) < unheard {
		// If Nomad preempts one allocation in favour of several members, only one of these members
		// waits for the allocation's end (scenario "preempted by two"). first was placed just
		// before the pins (walk 601334).
		return
	}
	if p.Mode == rewrite.ModeGPU && first.Created < pinned && r.known(first, pinned) {
		r.violated("%s[%d] of %s starts on GPU %s, which still runs %s[%d] of %s", second.Group, second.Number, second.Job, gpu, first.Group, first.Number, first.Job)
	}
}

// known reports whether all placers could have seen the member before the pins were written. After
// a purge, no list contains the member. If the pins are older than the purge, Nomad places the
// pinned members at once.
func (r *rules) known(m nomadtest.Member, pinned uint64) bool {
	return m.Purged.IsZero() || pinned > m.PurgedIndex && r.seen[m.PurgedIndex] && !slices.ContainsFunc(r.placers, func(p *Placer) bool {
		// The placer started after the purge, or lost its connection to Nomad after the purge.
		return p.began.After(m.Purged) || p.Vitals().Last.After(m.Purged)
	})
}

// sawAll reports whether each active placer has completed a cycle since its start and since it last
// lost its connection to Nomad. A placer knows all of Nomad's state after such a cycle.
func (r *rules) sawAll() bool {
	return !slices.ContainsFunc(r.placers, func(p *Placer) bool {
		v := p.Vitals()
		return r.dead[p.Name].IsZero() && (v.LastCycle.Before(p.began) || v.LastCycle.Before(v.Last))
	})
}

func (r *rules) ended(m nomadtest.Member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.jobs[m.Job]
	if s != nil {
		s.ended = time.Now()
	}
	if s != nil && (m.Client == api.AllocClientStatusLost || m.Desired == api.AllocDesiredStatusStop && !s.gated) {
		s.away[fmt.Sprintf("%s[%d]", m.Group, m.Number)] = true
	}
	if s != nil && m.Desired == api.AllocDesiredStatusEvict {
		s.preempted[fmt.Sprintf("%d %s[%d]", *m.Version.Version, m.Group, m.Number)] = true
	}
	if s == nil || s.last == nil || !m.Done || *m.Version.JobModifyIndex < s.since || *s.last.Type != api.JobTypeBatch {
		return
	}
	if r.formOf(m.Version) != s.form {
		return // this member ran an older form of the job, which the author no longer wants
	}
	if _, elastic := rewrite.ElasticOf(m.Version); (elastic || s.late) && s.whole && !s.gone && *m.Version.Version > s.wholeIn {
		// While the placer waits for a slow write, it uses up its time budget for this namespace
		// (walk 401333).
		noTime := s.late && time.Since(s.rewroteAt) < longCycle
		if s.disturbed.After(s.wholeAt) || r.diedAt.After(s.wholeAt) || noTime {
			r.again[m.Job] = true
		} else {
			r.violated("%s had finished, but %s[%d] has run again", m.Job, m.Group, m.Number)
		}
	}
	s.done[fmt.Sprintf("%d %s[%d]", *m.Version.Version, m.Group, m.Number)] = true
	if h, err := rewrite.ParseHints(m.Version); err == nil && h.OnFailure == rewrite.ReplaceMember && m.Desired == api.AllocDesiredStatusRun && !s.gated {
		s.kept[fmt.Sprintf("%s[%d]", m.Group, m.Number)] = time.Now()
	}
	lack, lackGPUs := s.lack(m.Version)
	s.gpusDone = s.gpusDone || lackGPUs <= 0
	if !s.whole && lack <= 0 {
		s.whole, s.wholeIn, s.wholeAt = true, *m.Version.Version, time.Now()
	}
}

// lack returns how many members of a version have not finished. lack also returns how many of these
// members have GPUs.
func (s *story) lack(job *api.Job) (all, withGPUs int) {
	for _, g := range job.TaskGroups {
		n := *g.Count
		for member := range s.done {
			if strings.HasPrefix(member, fmt.Sprintf("%d %s[", *job.Version, *g.Name)) {
				n--
			}
		}
		all += n
		withGPUs += n * min(1, rewrite.GPUsPerMember(g))
	}
	return all, withGPUs
}

// forgotten reports whether a placer's registration overwrote the author's last change, and no
// placer makes this change again. The placer must have ended before it read the job back.
func (r *rules) forgotten(s *story) bool {
	died := r.dead[s.overBy]
	return !s.overAt.IsZero() && !died.Before(s.overAt) && died.Sub(s.overAt) < longCycle
}

// endedSince returns the jobs with a member that ended after the given time.
func (r *rules) endedSince(then time.Time) map[nomadtest.Key]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[nomadtest.Key]bool{}
	for k, s := range r.jobs {
		out[k] = s.ended.After(then)
	}
	maps.DeleteFunc(out, func(_ nomadtest.Key, since bool) bool { return !since })
	return out
}

// died records that a placer has ended.
func (r *rules) died(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.diedAt = time.Now()
	r.dead[name] = r.diedAt
	// The placer ended before it could learn that it had recreated the job.
	for _, s := range r.jobs {
		s.unknown = s.unknown || s.back == name && s.gone && s.purge && time.Since(s.backAt) < time.Second
	}
}

// disturbs records that a request of a placer failed.
func (r *rules) disturbs(q nomadtest.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failedAt[q.Client] = time.Now()
	if strings.Contains(q.Path+q.Query, "controls") {
		r.failedAt[q.Client+" controls"] = time.Now()
	}
	for k, s := range r.jobs {
		if q.Job == k.ID || strings.Contains(q.Path, "/job/"+k.ID+"/") {
			s.disturbed = time.Now()
		}
	}
}

// ledger returns a function that checks the ledger of a placer and reports violations.
func (r *rules) ledger(name string) func(*model.Model) {
	return func(m *model.Model) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.ledgers++
		if err := CheckLedger(m); err != nil {
			r.violated("%s: %s", name, strings.ReplaceAll(err.Error(), "\n", "; "))
		}
	}
}

// look checks the rules that have a time limit. look returns at once if nothing has happened in
// Nomad since the previous call, unless the previous call found an incomplete gang or an exceeded
// limit. look reads Nomad's state without holding r.mu, because Nomad's observers lock r.mu.
func (r *rules) look() {
	at := r.w.Nomad.Progress()
	r.mu.Lock()
	same := at == r.lookedAt && !r.inPart
	keys := slices.Clone(r.order)
	r.mu.Unlock()
	if same {
		return
	}
	inPart, gpus := false, map[string]float64{}
	for _, k := range keys {
		inPart = r.lookAt(k) || inPart
		if n := r.gpusOf(k); n > 0 && r.perUser {
			gpus[r.w.Nomad.Job(k).Meta["pal_user"]] += n
		} else {
			gpus[""] += n
		}
	}
	arrays := r.countArrays(keys)
	r.mu.Lock()
	defer r.mu.Unlock()
	inPart = r.lookAtArrays(arrays) || inPart
	r.lookedAt, r.inPart = at, r.lookAtLimit(slices.Max(append(slices.Collect(maps.Values(gpus)), 0))) || inPart
}

// gpusOf returns the number of GPUs that a gang of the placer holds. A part of a GPU counts as a
// fraction.
func (r *rules) gpusOf(k nomadtest.Key) (n float64) {
	job := r.w.Nomad.Job(k)
	if r.limit == 0 || job == nil || !ours(job) {
		return 0
	}
	for _, m := range r.w.Nomad.Members(k) {
		if m.Live() && !leftBehind(job, m) {
			for _, id := range m.GPUs {
				if attr.GPUOf(id) != id {
					n += 1 / float64(r.w.Parts)
				} else {
					n++
				}
			}
		}
	}
	return n
}

// leftBehind reports whether a member of a stopped gang is on a disconnected node. Nomad stops a
// member on a disconnected node only when the node is back (scenario "away behind the gate").
func leftBehind(job *api.Job, m nomadtest.Member) bool {
	return m.Client == api.AllocClientStatusUnknown && rewrite.Gated(job)
}

// beyondLimit is how long gangs may exceed their tenant's limit. Gangs may exceed the limit because
// a service has old and new members during an update.
const beyondLimit = 15 * time.Second

// atOnce is the longest time between a placer's read of the allocations and the registration that
// is based on this read.
const atOnce = 4 * time.Millisecond

// lateEvent is the longest delay until a placer learns that a GPU is in use.
const lateEvent = time.Second

// longCycle is the longest duration of a cycle in which one answer is slow.
const longCycle = 20 * time.Second

// watch looks at the placers' snapshots, as an agent that writes the history does.
func (r *rules) watch() {
	r.mu.Lock()
	placers := slices.Clone(r.placers)
	r.mu.Unlock()
	for _, p := range placers {
		p.LastPicture()
	}
}

// lookAtLimit reports whether the gangs that share a limit exceed this limit. gpus is the number of
// GPUs that these gangs hold together. lookAtLimit reports a violation if the limit has been
// exceeded for too long. The caller holds r.mu.
func (r *rules) lookAtLimit(gpus float64) bool {
	now := time.Now()
	switch {
	case r.limit == 0 || gpus < float64(r.limit)+0.001: // the rounding error of thirds
		r.beyond = time.Time{}
		return false
	case r.beyond.IsZero():
		r.beyond, r.unknowable = now, now.Sub(r.replaced) < longCycle || now.Sub(r.bothStarted) < longCycle
	case now.Sub(r.beyond) > beyondLimit && !r.unknowable:
		r.violated("gangs have held %.3g GPUs, above their limit of %d, since %s", gpus, r.limit, r.beyond.Format("15:04:05"))
		r.beyond = now
	}
	return true
}

// lookAt checks a gang, and reports whether the gang is incomplete.
func (r *rules) lookAt(k nomadtest.Key) bool {
	live, want := 0, 0
	job := r.w.Nomad.Job(k)
	if job != nil && wholeOrNot(job) {
		for _, g := range job.TaskGroups {
			want += *g.Count * min(1, rewrite.GPUsPerMember(g)) // only members with GPUs
		}
		if e, elastic := rewrite.ElasticOf(job); elastic {
			want = e.Least
		}
		for _, m := range r.w.Nomad.Members(k) {
			switch {
			case len(m.GPUs) == 0 || leftBehind(job, m):
			case m.Live():
				live++
			case m.Client == api.AllocClientStatusComplete && m.Desired == api.AllocDesiredStatusRun:
				want--
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now, s := time.Now(), r.story(k)
	switch {
	case live == 0 || live >= want:
		s.partial = time.Time{}
		return false
	case s.partial.IsZero() || s.partial.Before(r.trouble):
		s.partial = now
	case now.Sub(s.partial) > r.w.opts.Partial:
		r.violated("%s has been incomplete, with %d of %d members, since %s", k, live, want, s.partial.Format("15:04:05"))
		s.partial = now
	}
	return true
}

// wholeOrNot reports whether the job must run completely or not at all. wholeOrNot returns true for
// a pinned batch job that is not stopped, and either is elastic or has pins to single GPUs.
func wholeOrNot(job *api.Job) bool {
	p, ok := rewrite.Pinned(job)
	_, elastic := rewrite.ElasticOf(job)
	return ok && (p.Mode == rewrite.ModeGPU || elastic) && *job.Type == api.JobTypeBatch && (job.Stop == nil || !*job.Stop)
}

// Carries returns what the placer has written into a job: "gated", "pinned", "pinned and gated" or
// "free".
func Carries(j *api.Job) string {
	switch _, pinned := rewrite.Pinned(j); {
	case pinned && rewrite.Gated(j):
		return "pinned and gated"
	case pinned:
		return "pinned"
	case rewrite.Gated(j):
		return "gated"
	}
	return "free"
}
