// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"fmt"
	"slices"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/reason"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// askAgain gates a gang that has all members for which its pins name GPUs, and whose author
// wants more: by nomad job scale, which leaves the pins as they are. As if its author had run
// its file with that count, it runs on until all of them fit. Of one that was smaller for a while,
// others may have got GPUs that its pins still name.
func (g *Lifecycle) askAgain(w World) ([]Effect, bool) {
	if g.stop != nil || g.Pins.Mode != rewrite.ModeGPU || g.Have == 0 || g.Live != g.Have {
		return nothing()
	}
	if g.Have != roomFor(g.Job, g.Pins) && (!g.runsOn(w) || g.Have != roomFor(g.Job, g.notOthers(w))) {
		return nothing()
	}
	if *g.Job.Type == api.JobTypeService { // behind its gate Nomad would replace no member that fails
		if room, err := w.RoomForMissing(g); err != nil || !room.Fits {
			return nothing()
		}
	}
	return []Effect{g.log(Info, "its author wants more members than its pins name GPUs for"), Register{Why: ToAsk, Job: rewrite.Gate(rewrite.Author(g.Job))}}, false
}

// runsOn reports whether the gang is what ran before the job was registered last, and has lost no
// member since.
func (g *Lifecycle) runsOn(w World) bool {
	return !slices.ContainsFunc(w.Allocs(g.Key), func(a *cluster.Alloc) bool {
		lost := a.Client == api.AllocClientStatusFailed || a.Client == api.AllocClientStatusLost
		return a.PlacedFor(g.Job) || lost && a.ModifyIndex > *g.Job.JobModifyIndex
	})
}

// notOthers are the pins without the GPUs that others hold.
func (g *Lifecycle) notOthers(w World) rewrite.Pins {
	p := g.Pins
	p.Groups = slices.Clone(p.Groups)
	for i, gp := range p.Groups {
		p.Groups[i].GPUs = slices.DeleteFunc(slices.Clone(gp.GPUs), func(id string) bool { return w.OthersHold(g.Key, []string{id}) })
	}
	return p
}

// roomFor is for how many of the members that a job asks for its pins name GPUs.
func roomFor(job *api.Job, p rewrite.Pins) (n int) {
	for _, tg := range job.TaskGroups {
		if each := rewrite.GPUsPerMember(tg); each > 0 {
			gp, _ := p.Of(*tg.Name)
			n += min(rewrite.Members(tg), len(gp.GPUs)/each)
		}
	}
	return n
}

// broken reports whether a gang that runs on until its new size fits has lost members meanwhile:
// behind its gate Nomad replaces none. Those that its author does not ask for any more are
// not missed.
func (g *Lifecycle) broken(had *api.Job, pins rewrite.Pins, w World) bool {
	return *g.Job.Type == api.JobTypeBatch && pins.Mode != rewrite.ModePrefer && g.NeedsAll() && g.lostOf(had, pins, w)
}

// lostOf reports whether members that it had as that version, and that its author still asks for, are neither
// there nor have done their work.
func (g *Lifecycle) lostOf(had *api.Job, pins rewrite.Pins, w World) bool {
	there := map[string]int{}
	for _, a := range g.Members {
		there[a.Group]++
	}
	done := map[string]bool{}
	for _, a := range w.Allocs(g.Key) {
		if a.Client == api.AllocClientStatusComplete && a.Desired == api.AllocDesiredStatusRun && !done[a.Name] {
			done[a.Name] = true
			there[a.Group]++
		}
	}
	return slices.ContainsFunc(had.TaskGroups, func(tg *api.TaskGroup) bool {
		now, each := g.Job.LookupTaskGroup(*tg.Name), rewrite.GPUsPerMember(tg)
		if now == nil || each == 0 {
			return false
		}
		room := rewrite.Members(tg)
		if gp, _ := pins.Of(*tg.Name); pins.Mode == rewrite.ModeGPU {
			room = len(gp.GPUs) / each
		}
		if e, elastic := rewrite.ElasticOf(had); elastic {
			room = e.Least
		}
		return there[*tg.Name] < min(rewrite.Members(tg), rewrite.Members(now), room)
	})
}

// runs is the version of a resubmitted job that its members run.
type runs struct {
	index  uint64 // JobModifyIndex of the job as it is now
	job    *api.Job
	newest uint64 // CreateIndex of the newest member
}

// newest is the CreateIndex of the newest member.
func (g *Lifecycle) newest() (n uint64) {
	for _, a := range g.Members {
		n = max(n, a.CreateIndex)
	}
	return n
}

// restorePins serves a job whose author ran the same file again, gate and all,
// while its gang runs: it gets the pins it had, so that what runs stays. A gang of another
// size is placed again as a whole, when the queue has room for it (change).
func (g *Lifecycle) restorePins(w World) ([]Effect, bool) {
	if g.stop != nil {
		return g.proceed(w), false
	}
	if g.runs.index != *g.Job.JobModifyIndex { // read once: it may run on so for hours
		switch {
		case !g.read.hasAllocs:
			return await(ReadAllocs{})
		case !g.read.hasVersions:
			return await(ReadVersions{})
		}
		had := g.newestRun()
		if had == nil && g.newest() <= g.runs.newest { // edits have pushed it out of the few versions that Nomad keeps
			had = g.runs.job
		}
		if had == nil {
			return g.wrong(fmt.Errorf("what its allocations run: %w", ErrNoVersion), w), false
		}
		g.runs = runs{*g.Job.JobModifyIndex, had, g.newest()}
	}
	had := g.runs.job
	pins, pinned := rewrite.Pinned(had)
	pins = narrowed(g.Job, pins)
	if !pinned && g.Live == 0 { // nothing of it has a GPU: it starts as a whole, in its turn
		return append([]Effect{g.log(Info, "gated while only groups without GPUs run: stopping them")}, g.stopFor(stopping{why: Requeued}, g.Record, w)...), false
	}
	if !pinned {
		return []Effect{g.log(Info, "gated while it runs unpinned: left to Nomad"), Register{Why: ToGoOn, Job: rewrite.Open(g.Job)}}, false
	}
	// Where a member has ended, its successor and those that are restarted may get one
	// another's GPUs (walk 584).
	oneByOne := g.lacksOneByOne(had, pins, w)
	mixed := *g.Job.Type == api.JobTypeBatch && g.Live < g.Want && AuthorSpec(rewrite.Author(had)) != AuthorSpec(rewrite.Author(g.Job)) && !oneByOne
	// What already ran where it may not, a node's attribute has changed say, is left there.
	forbidden := w.Forbids(g.Job, g.Members) && !w.Forbids(had, g.Members)
	// Others may have got those of members that had done their work, which its author has run
	// again (walk 10005539).
	gone := pins.Mode == rewrite.ModeGPU && w.OthersHold(g.Key, pins.GPUs())
	same := SameRequests(had, g.Job) && (pins.Mode != rewrite.ModeGPU || roomFor(had, pins) >= g.Want) || oneByOne
	if same && fitsRange(g.Job, pins) && !mixed && !forbidden && !gone {
		if g.Record != nil && AuthorSpec(rewrite.Author(had)) != AuthorSpec(rewrite.Author(g.Job)) {
			r := *g.Record
			r.UserFailures, r.InfraFailures = 0, 0 // what failed may be mended
			g.Record = &r
		}
		es, on := g.repin(ToRestore, pins, w)
		return append([]Effect{g.log(Info, "resubmitted: its gang keeps its GPUs")}, es...), on
	}
	if g.asks = true; !g.broken(had, pins, w) {
		return nil, false
	}
	return append([]Effect{g.log(Info, "changed by its author, and not whole any more: requeueing it")}, g.stopFor(stopping{why: Requeued}, g.Record, w)...), false
}

// Asks reports whether a running gang's author asks for other GPUs than it has: the queue is to
// say where it could go ([Room]). Until it can go there it runs on as it is.
func (g *Lifecycle) Asks() bool {
	return g.asks && g.Nomad == Resubmitted && g.Refused == nil && g.stop == nil && g.pending == nil
}

// change has a running gang go where there is room for what its author asks for now. Nomad
// turns that into one update, in which each new member waits for the one that it replaces,
// and for no other. So a gang that is to go where some of it runs is stopped first: another
// member could still use the GPU that a new one gets. Services are not stopped: they are
// updated a few members at a time.
func (g *Lifecycle) change(e Event, w World) []Effect {
	room := e.(Room)
	switch {
	case !g.Asks():
		return nil
	case !room.Fits:
		g.Trouble = reason.Reason{Kind: reason.RunsOnAsBefore}.Over(room.Reason)
		return nil
	}
	g.asks, g.read.room = false, room
	// From here on the queue has it with what it asks for now: others get what that leaves of a
	// quota.
	g.edited = true
	es := g.runInQueue(nil, w)
	held := w.Holds(g.Key)
	if *g.Job.Type == api.JobTypeBatch && slices.ContainsFunc(room.Placement.GPUs(), func(u int) bool { return slices.Contains(held, u) }) {
		es = append(es, g.log(Info, "changed by its author: stopping the gang to start it again"))
		return append(es, g.stopFor(stopping{why: Resized, target: &room.Placement}, g.Record, w)...)
	}
	more, _ := g.repin(ToResize, room.Pins, w)
	return append(es, more...)
}

// preemptChanged stops a gang that runs on until what its author asks for now fits, for another
// one: it then waits with that.
func (g *Lifecycle) preemptChanged(e Event, w World) []Effect {
	if !g.Asks() {
		return g.keep(e, w)
	}
	return g.preempt(e, w)
}

// resized takes in that a gang was placed again as a whole.
func (g *Lifecycle) resized(w World) []Effect {
	room := g.read.room
	g.Trouble = reason.Reason{}
	r := Record{
		Namespace: g.Key.Namespace, Job: g.Key.ID, Submitted: g.Submitted(), Decided: w.Now(),
		JobModifyIndex: *g.Job.JobModifyIndex, Mode: room.Mode, Decision: room.Decision, Note: NoteResized,
	}
	if g.Record != nil { // what it has run counts
		had := *g.Record
		g.addRunTime(&had, reason.Reason{}, g.Live, w)
		r.Attained, r.Done, r.Waited = had.Attained, had.Done, had.Waited
	}
	g.Record = &r
	return []Effect{Own{room.Pins.GPUs()}, Keep{room.Placement}, SaveRecord{*g.Record}}
}

// newestRun is the version of the job that its newest member runs; nil if Nomad
// does not know any more.
func (g *Lifecycle) newestRun() (newest *api.Job) {
	for _, a := range g.read.allocs {
		live := slices.ContainsFunc(g.Members, func(m *cluster.Alloc) bool { return m.ID == a.ID })
		if v := g.read.versions[*a.Version]; live && v != nil && (newest == nil || *v.Version > *newest.Version) {
			newest = v
		}
	}
	return newest
}

// SameRequests reports whether two versions want the same members with the same GPUs.
func SameRequests(a, b *api.Job) bool {
	return slices.Equal(requests(a, members), requests(b, members))
}

// sameMembers reports whether they want the same of each member.
func sameMembers(a, b *api.Job) bool {
	anyNumber := func(*api.Job, *api.TaskGroup) string { return "" }
	return slices.Equal(requests(a, anyNumber), requests(b, anyNumber))
}

// members is how many members a group is to have, as its author says it: of an elastic
// gang the number is ours.
func members(job *api.Job, g *api.TaskGroup) string {
	if e, ok := rewrite.ElasticOf(job); ok && e.Group == *g.Name {
		return "elastic"
	}
	return fmt.Sprint(rewrite.Members(g))
}

// lacksOneByOne reports whether the members do not need each other, their author asks for another number of
// them, and the job has lost one while it waits for room: behind its gate Nomad would not replace it. With
// its pins it does, and makeWhole gives the others nodes as these have room. Of a batch job nothing else
// may have changed, and none may have done its work: it would be run anew.
func (g *Lifecycle) lacksOneByOne(had *api.Job, pins rewrite.Pins, w World) bool {
	switch {
	case g.NeedsAll() || pins.Mode != rewrite.ModeClass:
		return false
	case *g.Job.Type == api.JobTypeService:
		return sameMembers(had, g.Job) && g.Live < min(withGPUs(had), g.Want)
	}
	done := slices.ContainsFunc(w.Allocs(g.Key), func(a *cluster.Alloc) bool { return a.Client == api.AllocClientStatusComplete })
	return !done && g.lostOf(had, pins, w) && sameButCounts(had, g.Job)
}

// sameButCounts reports whether two versions ask for the same but for how many members.
func sameButCounts(a, b *api.Job) bool {
	like := *b
	like.TaskGroups = slices.Clone(b.TaskGroups)
	for i, tg := range like.TaskGroups {
		if was := a.LookupTaskGroup(*tg.Name); was != nil {
			counts := *tg
			counts.Count, like.TaskGroups[i] = was.Count, &counts
		}
	}
	return AuthorSpec(rewrite.Author(a)) == AuthorSpec(rewrite.Author(&like))
}

// withGPUs is how many members with GPUs a version wants.
func withGPUs(job *api.Job) (n int) {
	for _, tg := range job.TaskGroups {
		if rewrite.GPUsPerMember(tg) > 0 {
			n += rewrite.Members(tg)
		}
	}
	return n
}

// narrowed are the pins with as many members as a job that is elastic may have, if they have more:
// Nomad ends the last of them.
func narrowed(job *api.Job, p rewrite.Pins) rewrite.Pins {
	e, ok := rewrite.ElasticOf(job)
	if !ok {
		return p
	}
	p.Groups = slices.Clone(p.Groups)
	for i := range p.Groups {
		if p.Groups[i].Group == e.Group {
			p.Groups[i].Count = min(p.Groups[i].Count, e.Most)
		}
	}
	return p
}

// fitsRange reports whether a job that is elastic may have as many members as its pins say.
func fitsRange(job *api.Job, p rewrite.Pins) bool {
	e, ok := rewrite.ElasticOf(job)
	if !ok {
		return true
	}
	gp, _ := p.Of(e.Group)
	return gp.Count >= e.Least && gp.Count <= e.Most
}

func requests(job *api.Job, members func(*api.Job, *api.TaskGroup) string) []string {
	var out []string
	for _, g := range rewrite.Author(job).TaskGroups {
		for _, t := range g.Tasks {
			for _, d := range rewrite.GPURequests(t) {
				out = append(out, fmt.Sprintf("%s %s %s %s %d", *g.Name, members(job, g), t.Name, d.Name, rewrite.GPUs(d)))
			}
		}
	}
	return out
}
