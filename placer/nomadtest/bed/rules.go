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
//   - what is not ours is not touched: a placer registers, stops or purges only
//     jobs with a gate or pins, and registers only what an author wrote, with
//     other gates and pins;
//   - a gang is there as a whole or not at all, but for a limited time;
//   - a gang that has finished is not run again. An elastic one that finishes in the moment
//     in which its new size is registered is started again by Nomad, which nobody can
//     prevent; so is one that finishes between the check of a registration and its write. It
//     is stopped before it has done its work a second time, unless a request
//     about it fails after it had finished, or its placer ends;
//   - a member that has finished, of a job whose members do not need each other, is not run again
//     but with all of its gang;
//   - nothing is pinned to a GPU that still runs another member's tasks, be it of the same
//     job or of one that was purged;
//   - the gangs of a tenant, or of a user, have no more GPUs than the limit, but for a limited
//     time. They may have more if, just before a placer started gangs, Nomad replaced members or
//     chose GPUs for canaries, a request about the gang had failed, or another placer that does not
//     know of it started others;
//   - of the children of a template no more have GPUs than pal_array_parallel says, but for a
//     limited time;
//   - a child that was dispatched with a payload, which a registration would lose, is left alone;
//   - what Nomad puts back when a service's deployment fails (auto_revert) stays what is wanted,
//     until its author registers it again;
//   - a job that is held does not start, and is not in the queue;
//   - a placer has one ledger: the queue has each gang on the GPUs that it holds in the
//     placer's view of the cluster;
//   - answers match the state. For a waiting job, explain and the list give the queue's reason, its
//     range of the start, who goes first, and who holds how many GPUs by the ledger, in each
//     picture.
type rules struct {
	w *World

	mu     sync.Mutex
	jobs   map[nomadtest.Key]*story
	order  []nomadtest.Key // of jobs, sorted
	broken []string
	// forms are the author's forms of jobs in Nomad, which are replaced and never
	// changed.
	forms map[*api.Job]string
	// lookedAt is how far Nomad was at the last look; inPart: some gang was there in
	// part then.
	lookedAt nomadtest.Progress
	inPart   bool
	ledgers  int       // looked into
	asked    int       // about how many jobs that wait
	limit    int       // GPUs that gangs may have together; 0: no limit
	perUser  bool      // limit is that of the gangs of each user
	beyond   time.Time // since when they have more
	// replaced is the time when Nomad last replaced a member by itself, and bothStarted when a placer last
	// started a gang just after another one that works still; unknowable: the gangs have more since
	// just then, of which a placer that waited for an answer (walk 8400697), or decided at the same
	// time (walk 9000593), did not know.
	replaced, bothStarted time.Time
	rerun                 time.Time // when Nomad last placed a member that was there before
	unknowable            bool
	startedBy             map[string]time.Time     // when each placer last started a gang
	failedAt              map[string]time.Time     // when a request of each placer failed last; "… controls": for what people told
	arrays                map[nomadtest.Key]*array // of the last look, by template
	placers               []*Placer
	dead                  map[string]time.Time // when placers ended, of those that have
	diedAt                time.Time            // the last of them
	// atOnce is, of registrations that Nomad wrote late, by JobModifyIndex, the index that
	// they would have had if it had written them as soon as it had checked them.
	atOnce map[uint64]uint64
	// seen is, by index, whether all placers had seen what was there when a job was purged.
	seen map[uint64]bool
	// putBack counts how often Nomad has reverted a service.
	putBack int
	// again are gangs that have run again since Nomad did not answer.
	again map[nomadtest.Key]bool
	// trouble is the time when something last went wrong that excuses a gang in part.
	trouble time.Time
}

// story is what an author meant with a job, and the outcome.
type story struct {
	// wrote are the specs, without gate and pins, that its authors registered.
	wrote map[string]bool
	last  *api.Job
	form  string // of the last
	// since is the JobModifyIndex of what its author registered last: Nomad runs
	// again what finished in an earlier version.
	since uint64
	gone  bool // stopped or purged by its author
	purge bool
	// back is the placer that registered it when it was gone, and backAt when.
	back   string
	backAt time.Time
	done   map[string]bool // members that have done their work since
	placed map[string]bool // members, by version
	// kept are members that have done their work since the gang last had a gate, and when, of a job
	// whose members do not need each other: Nomad is not to be made to run them again. Of one that
	// finishes between the placer's look and its registration, at rewroteAt, nobody could know.
	kept      map[string]time.Time
	rewroteAt time.Time
	// away are members that were lost, or stopped without a gate, and that Nomad may place again.
	away  map[string]bool
	gated bool
	// preempted are, by version, members that Nomad stopped for another job. It runs such a one
	// again even if it did its work just then (walk 10002139).
	preempted map[string]bool
	// whole: all of them have, in version wholeIn, at wholeAt. disturbed is the time when a request of
	// a placer's about it failed last.
	whole bool
	// template is the job of which it is a child; the zero key: it is none.
	template nomadtest.Key
	// gpusDone: all with GPUs have; what happens to the others is Nomad's affair.
	gpusDone  bool
	wholeIn   uint64
	wholeAt   time.Time
	disturbed time.Time
	// late: a placer's registration that Nomad had checked earlier was written after that.
	late bool
	// over are, by JobModifyIndex, a placer's registrations that were written over one that came
	// after their check. While it waits for GPUs, the gang of that one runs to its end (walk 5005677).
	over map[uint64]bool
	// overBy wrote the last of them.
	overBy string
	// unknown: purged while a placer wrote it that has ended since. Nomad keeps nothing
	// by which to tell what came of that from a new job.
	unknown bool
	// reverted is what Nomad has put back when a deployment failed, "" once its author has registered it
	// again, and revertedAt the index.
	reverted   string
	revertedAt uint64
	// heldAt is since when it is held, as heldBy was told; zero: it is not, or who starts it need not know.
	heldAt  time.Time
	heldBy  string
	partial time.Time // since when it is there in part
	ended   time.Time // the last member
}

func newRules(w *World) *rules {
	r := &rules{w: w, jobs: map[nomadtest.Key]*story{}, forms: map[*api.Job]string{}, dead: map[string]time.Time{}, again: map[nomadtest.Key]bool{}, atOnce: map[uint64]uint64{}, seen: map[uint64]bool{}, startedBy: map[string]time.Time{}, failedAt: map[string]time.Time{}, trouble: time.Now()}
	w.Nomad.Observe(w.transcript())
	w.Nomad.Observe(nomadtest.Observer{Wrote: r.wrote, Placed: r.placed, Ended: r.ended, Shared: r.shared})
	return r
}

// starts takes note of a placer, before it does anything.
func (r *rules) starts(p *Placer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.placers = append(r.placers, p)
}

func (r *rules) said() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.broken)
}

// counted is what has happened so far.
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

// Excuse records that a fault is in progress, so that a gang may be incomplete for
// a while.
func (w *World) Excuse() {
	w.rules.mu.Lock()
	defer w.rules.mu.Unlock()
	w.rules.trouble = time.Now()
}

// authorForm returns the author's part of a canonical job, as text to compare.
func authorForm(j *api.Job) string {
	own := *rewrite.Author(j)
	own.Stop = nil
	if _, elastic := rewrite.ElasticOf(j); elastic { // the count is the placer's
		group := *own.TaskGroups[0]
		group.Count = nil
		own.TaskGroups = []*api.TaskGroup{&group}
	}
	return nomadtest.Spec(&own)
}

// formOf is the same of a job that is in Nomad. r.mu is held.
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

// submitted notes what an author wants of a job. r.mu is held.
func (r *rules) submitted(j *api.Job) *story {
	s := r.story(cluster.KeyOf(j))
	s.last, s.gone, s.unknown = copyOf(j), false, false
	j.Canonicalize()
	s.form = authorForm(j)
	s.wrote[s.form] = true
	s.done, s.whole, s.gpusDone = map[string]bool{}, false, false
	return s
}

// authoredJobs are the jobs that authors have registered or dispatched, sorted.
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
	if x.Kind != "stop" { // of members
		s.gated = x.After == nil || rewrite.Gated(x.After)
	}
	if s.gated {
		s.kept = map[string]time.Time{}
	}
	s.rewroteAt = time.Now()
	r.reverts(s, x)
	r.startsHeld(s, x)
	if (x.Kind == "dispatch" || x.Kind == "launch") && x.After != x.Before { // of a child, as its template is
		r.submitted(copyOf(x.After)).template = nomadtest.Key{Namespace: x.Job.Namespace, ID: *x.After.ParentID}
		s.late, s.since, s.kept = false, *x.After.JobModifyIndex, map[string]time.Time{}
	}
	if !strings.HasPrefix(x.Client, "placer") {
		if x.Kind == "register" && x.After != nil { // what its author changed counts from here on
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
		s.over[*x.After.JobModifyIndex], s.overBy = true, x.Client
	}
	switch {
	case x.Before == nil && x.Kind == "register":
		// The author purged it during a race. A placer that knows must purge it again.
		s.unknown = s.gone && s.purge && !r.dead[x.Client].IsZero()
		s.back, s.backAt = x.Client, time.Now()
	case x.Before != nil && len(x.Before.Payload) > 0 && x.Kind == "register":
		r.violated("%s registered %s, which loses its payload", x.Client, x.Job)
	case x.Before != nil && !ours(x.Before) && x.Kind != "register":
		r.violated("%s: %s of %s, which has neither gate nor pins", x.Client, x.Kind, x.Job)
	}
	if x.Kind == "register" && x.After != nil && len(s.wrote) > 0 && !s.wrote[r.formOf(x.After)] {
		r.violated("%s registered %s as no author wrote it", x.Client, x.Job)
	}
}

// reverts notes what Nomad puts back, and who registers what else. r.mu is held.
func (r *rules) reverts(s *story, x nomadtest.Write) {
	switch {
	case x.Kind == "revert":
		s.reverted, s.revertedAt = r.formOf(x.After), x.Index
		s.gone = s.gone || *x.After.Stop // it was stopped before it was registered last (scenario "reverted to a stopped version")
		r.putBack++
	case s.reverted == "" || x.Kind == "stop" || x.After != nil && x.After == x.Before:
	case !strings.HasPrefix(x.Client, "placer") || x.After == nil || x.Checked < s.revertedAt:
		s.reverted = ""
	case x.Kind == "register" && r.formOf(x.After) != s.reverted:
		r.violated("%s registered %s as it was before Nomad reverted it", x.Client, x.Job)
		s.reverted = ""
	}
}

// startedOne notes that a placer has started a gang. r.mu is held.
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
	if !ours(m.PlacedBy) { // what Nomad runs again of its own, after it preempted it say, is no affair of the placer's
		return
	}
	s, as := r.story(m.Job), fmt.Sprintf("%d %s[%d]", *m.Version.Version, m.Group, m.Number)
	member := fmt.Sprintf("%s[%d]", m.Group, m.Number)
	at := *m.PlacedBy.JobModifyIndex
	late := cmp.Or(r.atOnce[at], at) < at // a member may have finished before it was written, and runs again (walk 760053)
	// While what is due for a gang that its author gated again fails, its members end, and others get
	// what they leave (walk 20393).
	delayed := !s.disturbed.IsZero() && time.Since(s.disturbed) < longCycle
	if s.placed[as] || s.away[member] || late || delayed || choosesCanaries(m.PlacedBy) {
		r.replaced = time.Now()
	}
	if s.placed[as] || s.away[member] {
		r.rerun = time.Now()
	}
	s.placed[as], s.away[member] = true, false
	if done, ok := s.kept[member]; ok && !s.gone && s.rewroteAt.Sub(done) > atOnce {
		r.violated("%s[%d] of %s had finished, needs no other member, and is run again", m.Group, m.Number, m.Job)
	}
	_, elastic := rewrite.ElasticOf(m.Version) // of those, see ended
	if s.whole && !s.gone && !elastic && !s.preempted[as] && !s.late && !s.over[*m.PlacedBy.JobModifyIndex] {
		r.violated("%s had finished, and %s[%d] is run again", m.Job, m.Group, m.Number)
	}
}

// choosesCanaries reports whether Nomad may start canaries of a job on GPUs that the placer did not choose, whatever the
// tenant's limit: pins to a class leave it those of the node that are free (walk 2085 with many services).
func choosesCanaries(job *api.Job) bool {
	p, ok := rewrite.Pinned(job)
	return ok && p.Mode != rewrite.ModeGPU && gang.HasCanaries(job)
}

func (r *rules) shared(gpu string, first, second nomadtest.Member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// Of a node that its pins allow Nomad chooses any GPU, and what came when it had checked
	// the pins already, which it may write much later, no placer could have known.
	p, _ := rewrite.Pinned(second.PlacedBy)
	if first.Job == second.Job && *second.PlacedBy.Type == api.JobTypeService {
		return // as Nomad's deployment has it, which replaces one member after the other
	}
	pinned := cmp.Or(r.atOnce[*second.PlacedBy.JobModifyIndex], *second.PlacedBy.JobModifyIndex)
	was, _ := rewrite.Pinned(first.PlacedBy)
	if first.LostIndex >= pinned || first.LostIndex > 0 && first.Job == second.Job && slices.Equal(was.GPUs(), p.GPUs()) {
		return // Nomad gives away the GPUs of what is lost, as soon as its node is back, by pins that were there before, or are again
	}
	unheard := lateEvent
	if at := *second.PlacedBy.JobModifyIndex; cmp.Or(r.atOnce[at], at) < at {
		unheard += longCycle // the pins were written as late (walk 22650)
	}
	if first.PreemptedBy == second.Job && second.CreatedAt.Sub(first.CreatedAt) < unheard {
		return // Nomad has only one of its members wait for the end of what it preempts for them (scenario "preempted by two"); it came just before the pins (walk 601334)
	}
	if p.Mode == rewrite.ModeGPU && first.Created < pinned && r.known(first, pinned) {
		r.violated("%s[%d] of %s begins on GPU %s, which still runs %s[%d] of %s", second.Group, second.Number, second.Job, gpu, first.Group, first.Number, first.Job)
	}
}

// known reports whether all placers had a chance to see the member: no list has one
// whose job was purged. Pins that were there before that Nomad itself follows at once.
func (r *rules) known(m nomadtest.Member, pinned uint64) bool {
	return m.Purged.IsZero() || pinned > m.PurgedIndex && r.seen[m.PurgedIndex] && !slices.ContainsFunc(r.placers, func(p *Placer) bool {
		return p.began.After(m.Purged) || p.Vitals().Last.After(m.Purged) // or has lost touch with Nomad
	})
}

// sawAll reports whether all placers have had a cycle with all that is in Nomad, since they began or
// lost touch.
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
		return // a write that crossed the author's had brought back an older form, which is not what he wants done
	}
	if _, elastic := rewrite.ElasticOf(m.Version); (elastic || s.late) && s.whole && !s.gone && *m.Version.Version > s.wholeIn {
		// While it waits for a slow write, its jobs' namespace uses up the placer's time (walk 401333).
		noTime := s.late && time.Since(s.rewroteAt) < longCycle
		if s.disturbed.After(s.wholeAt) || r.diedAt.After(s.wholeAt) || noTime {
			r.again[m.Job] = true
		} else {
			r.violated("%s had finished, and %s[%d] has run again", m.Job, m.Group, m.Number)
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

// lack is how many members of a version have not done their work, and how many of those with GPUs.
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

// editForgotten reports whether an edit stays lost: the placer that overwrote it was killed
// before it saw that. The overwriting version had ended by the time that another placer could look,
// or a little later (walk 548). Placers do not look at jobs that ended before they began.
func (r *rules) editForgotten(s *story, job *api.Job) bool {
	return s.over[*job.JobModifyIndex] && *job.Status == "dead" && s.ended.Before(r.dead[s.overBy].Add(time.Minute))
}

// endedSince are the jobs of which a member has ended since then.
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

// died notes that a placer has ended.
func (r *rules) died(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.diedAt = time.Now()
	r.dead[name] = r.diedAt
	for _, s := range r.jobs { // it ended before it could hear what it had brought back
		s.unknown = s.unknown || s.back == name && s.gone && s.purge && time.Since(s.backAt) < time.Second
	}
}

// disturbs notes that a request of a placer's fails.
func (r *rules) disturbs(q nomadtest.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failedAt[q.Client] = time.Now()
	if strings.Contains(q.Path, "nomad-pal/controls") {
		r.failedAt[q.Client+" controls"] = time.Now()
	}
	for k, s := range r.jobs {
		if q.Job == k.ID || strings.Contains(q.Path, "/job/"+k.ID+"/") {
			s.disturbed = time.Now()
		}
	}
}

// ledger notes what a placer finds wrong in its books.
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

// look looks at what takes time. Where nothing has happened in Nomad and nothing was
// there in part, there is nothing to see. Nomad is asked without r.mu, which it takes
// itself when it tells of something.
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

// gpusOf is how many GPUs a gang of the placer's has. A part of a GPU counts for its share of it.
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

// leftBehind reports whether a member of a gang that is stopped is on a node that is away: Nomad stops it when the
// node is back, and not before (scenario "away behind the gate").
func leftBehind(job *api.Job, m nomadtest.Member) bool {
	return m.Client == api.AllocClientStatusUnknown && rewrite.Gated(job)
}

// beyondLimit is for how long gangs may have more GPUs than their tenant's limit: a service
// that is updated has old and new members for a while.
const beyondLimit = 15 * time.Second

// atOnce is within what a placer has read allocations and registered what follows from them.
const atOnce = 4 * time.Millisecond

// lateEvent is how late a placer may hear of what has come upon a GPU.
const lateEvent = time.Second

// longCycle is how long a cycle lasts that waits for one answer.
const longCycle = 20 * time.Second

// lookAtLimit looks whether all gangs, or those of one user, have more GPUs together than they may, and reports whether
// they do. r.mu is held.
func (r *rules) lookAtLimit(gpus float64) bool {
	now := time.Now()
	switch {
	case r.limit == 0 || gpus < float64(r.limit)+0.001: // of thirds
		r.beyond = time.Time{}
		return false
	case r.beyond.IsZero():
		r.beyond, r.unknowable = now, now.Sub(r.replaced) < longCycle || now.Sub(r.bothStarted) < longCycle
	case now.Sub(r.beyond) > beyondLimit && !r.unknowable:
		r.violated("gangs have %.3g GPUs, and may have %d, since %s", gpus, r.limit, r.beyond.Format("15:04:05"))
		r.beyond = now
	}
	return true
}

// lookAt looks at a gang, and reports whether it is there in part.
func (r *rules) lookAt(k nomadtest.Key) bool {
	live, want := 0, 0
	job := r.w.Nomad.Job(k)
	if job != nil && wholeOrNot(job) {
		for _, g := range job.TaskGroups {
			want += *g.Count * min(1, rewrite.GPUsPerMember(g)) // the others are Nomad's
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
		r.violated("%s is there in part, %d of %d, since %s", k, live, want, s.partial.Format("15:04:05"))
		s.partial = now
	}
	return true
}

// wholeOrNot reports whether the job is pinned to single GPUs, all of it together.
func wholeOrNot(job *api.Job) bool {
	p, ok := rewrite.Pinned(job)
	_, elastic := rewrite.ElasticOf(job)
	return ok && (p.Mode == rewrite.ModeGPU || elastic) && *job.Type == api.JobTypeBatch && (job.Stop == nil || !*job.Stop)
}

// Carries says in a word what a job carries: a gate, pins, both, or neither.
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
