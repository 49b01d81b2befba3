// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// askAgain adds the gate to the job of a complete gang whose author requests more members with
// nomad job scale, which keeps the pins. The gang keeps running until all members fit, just as if
// the author had registered the jobspec with the new count. If the gang was smaller for a while,
// other jobs may now hold GPUs in its pins.
func (g *Lifecycle) askAgain(w World) ([]Effect, bool) {
	if g.stop != nil || g.Pins.Mode != rewrite.ModeGPU || g.Have == 0 || g.Live != g.Have {
		return nothing()
	}
	if g.Have != roomFor(g.Job, g.Pins) && (!g.runsOn(w) || g.Have != roomFor(g.Job, g.notOthers(w))) {
		return nothing()
	}
	return []Effect{g.log(Info, "the author requests more members than the pins have GPUs for"), Register{Why: ToAsk, Job: rewrite.Gate(rewrite.Author(g.Job))}}, false
}

// runsOn reports whether the same members run as before the last registration. It is false if Nomad
// has placed a member since, a member has failed, or a member of an unknown version has ended
// (random walk 21853).
func (g *Observed) runsOn(w World) bool {
	return !slices.ContainsFunc(w.Allocs(g.Key), func(a *cluster.Alloc) bool {
		return a.PlacedFor(g.Job) || a.Failed() && a.ModifyIndex > *g.Job.JobModifyIndex || a.FinishedUnheard(g.Job)
	})
}

// notOthers returns the pins, but without the GPUs that other jobs hold.
func (g *Observed) notOthers(w World) rewrite.Pins {
	p := g.Pins
	p.Groups = slices.Clone(p.Groups)
	for i, gp := range p.Groups {
		p.Groups[i].GPUs = slices.DeleteFunc(slices.Clone(gp.GPUs), func(id string) bool { return w.OthersHold(g.Key, []string{id}) })
	}
	return p
}

// roomFor returns the number of the job's members for which the pins name GPUs.
func roomFor(job *api.Job, p rewrite.Pins) (n int) {
	for _, tg := range job.TaskGroups {
		each := rewrite.GPUsPerMember(tg)
		if each > 0 {
			gp, _ := p.Of(*tg.Name)
			n += min(rewrite.Members(tg), len(gp.GPUs)/each)
		}
	}
	return n
}

// broken reports whether a gang that runs while its new size waits for room has lost members. While
// the job is gated, Nomad does not replace lost members. Members that the author no longer requests
// do not count as lost.
func (g *Observed) broken(had *api.Job, pins rewrite.Pins, w World) bool {
	return *g.Job.Type == api.JobTypeBatch && pins.Mode != rewrite.ModePrefer && g.NeedsAll() && g.lostOf(had, pins, w)
}

// lostOf reports whether members of an earlier version are gone without success, although the
// author still requests them.
func (g *Observed) lostOf(had *api.Job, pins rewrite.Pins, w World) bool {
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
		gp, _ := pins.Of(*tg.Name)
		if pins.Mode == rewrite.ModeGPU {
			room = len(gp.GPUs) / each
		}
		e, elastic := rewrite.ElasticOf(had)
		if elastic {
			room = e.Least
		}
		return there[*tg.Name] < min(rewrite.Members(tg), rewrite.Members(now), room)
	})
}

// runs is the job version that the members of a resubmitted job run.
type runs struct {
	index  uint64 // JobModifyIndex of the job now
	job    *api.Job
	newest uint64 // CreateIndex of the newest member
}

// newest returns the CreateIndex of the newest member.
func (g *Observed) newest() (n uint64) {
	for _, a := range g.Members {
		n = max(n, a.CreateIndex)
	}
	return n
}

// restorePins handles a job whose author registered the jobspec again, with the gate, while the
// gang runs. restorePins gives the job its earlier pins, so its members keep running. If the author
// changed the gang's size, the queue places the whole gang again when there is room
// ([Lifecycle.change]). A service of replicas does not wait: Nomad owns it.
func (g *Lifecycle) restorePins(w World) ([]Effect, bool) {
	switch {
	case g.stop != nil:
		return g.proceed(w), false
	case *g.Job.Type == api.JobTypeService && !g.NeedsAll() && g.Live > 0:
		es, on := g.repin(ToRestore, PreferHere(g.Job, g.Members), w)
		return append([]Effect{g.log(Info, "the service was resubmitted: Nomad updates it")}, es...), on
	}
	if g.runs.index != *g.Job.JobModifyIndex { // read once, because the gang can keep running like this for hours
		switch {
		case !g.read.hasAllocs:
			return await(ReadAllocs{})
		case !g.read.hasVersions:
			return await(ReadVersions{})
		}
		had := g.newestRun()
		if had == nil && g.newest() <= g.runs.newest { // after many edits Nomad no longer keeps that version
			had = g.runs.job
		}
		if had == nil {
			return g.wrong(fmt.Errorf("reading the version that the members run: %w", ErrNoVersion), w), false
		}
		g.runs = runs{*g.Job.JobModifyIndex, had, g.newest()}
	}
	had := g.runs.job
	pins, pinned := rewrite.Pinned(had)
	pins = narrowed(g.Job, pins)
	if !pinned && g.Live == 0 { // no member has a GPU, so the gang starts as a whole, in its turn
		return append([]Effect{g.log(Info, "the job got a gate while only its groups without GPUs run: stopping these groups")}, g.stopFor(stopping{why: Requeued}, g.Record, w)...), false
	}
	if !pinned {
		return []Effect{g.log(Info, "the job got a gate, but already runs without pins: leaving the job to Nomad"), Register{Why: ToGoOn, Job: rewrite.Open(g.Job)}}, false
	}
	// If a member has ended, its successor and a restarted member may each get the GPU that the
	// other had (seen in random walk 584).
	oneByOne := g.lacksOneByOne(had, pins, w)
	mixed := *g.Job.Type == api.JobTypeBatch && g.Live < g.Want && SpecText(rewrite.Author(had)) != SpecText(rewrite.Author(g.Job)) && !oneByOne
	// The member stays if the old version of the job also forbids the member's node. For example,
	// an attribute of the node may have changed after the member was placed.
	forbidden := w.Forbids(g.Job, g.Members) && !w.Forbids(had, g.Members)
	// If the author runs succeeded members again, other jobs may hold the members' earlier GPUs
	// (seen in random walk 10005539).
	gone := pins.Mode == rewrite.ModeGPU && w.OthersHold(g.Key, pins.GPUs())
	same := SameRequests(had, g.Job) && (pins.Mode != rewrite.ModeGPU || roomFor(had, pins) >= g.Want) || oneByOne
	if same && fitsRange(g.Job, pins) && !mixed && !forbidden && !gone {
		if g.Record != nil && SpecText(rewrite.Author(had)) != SpecText(rewrite.Author(g.Job)) {
			r := *g.Record
			r.forgetFailures() // the author may have fixed the failure
			g.Record = &r
		}
		es, on := g.repin(ToRestore, pins, w)
		return append([]Effect{g.log(Info, "the job was resubmitted, and its gang keeps its GPUs")}, es...), on
	}
	g.asks = true
	if !g.broken(had, pins, w) {
		return nil, false
	}
	return append([]Effect{g.log(Info, "the author changed the job, but the gang is incomplete: requeueing the gang")}, g.stopFor(stopping{why: Requeued}, g.Record, w)...), false
}

// PreferHere returns pins for a service of replicas that is updated. They prefer the nodes on which
// members run now. The nodes of members that Nomad will stop do not count: it stops the members
// with the highest numbers. A group without members prefers the nodes of all members.
func PreferHere(job *api.Job, members []*cluster.Alloc) rewrite.Pins {
	p := rewrite.Pins{Mode: rewrite.ModePrefer}
	for _, tg := range job.TaskGroups {
		if rewrite.GPUsPerMember(tg) == 0 {
			continue
		}
		nodes := nodesOf(members, func(a *cluster.Alloc) bool {
			return a.Group == *tg.Name && cluster.MemberNumber(a.Name) < rewrite.Members(tg)
		})
		if len(nodes) == 0 {
			nodes = nodesOf(members, func(*cluster.Alloc) bool { return true })
		}
		p.Groups = append(p.Groups, rewrite.GroupPins{Group: *tg.Name, Nodes: nodes, Spread: true})
	}
	slices.SortFunc(p.Groups, func(a, b rewrite.GroupPins) int { return strings.Compare(a.Group, b.Group) })
	return p
}

// nodesOf returns the nodes of some of the members, sorted.
func nodesOf(members []*cluster.Alloc, some func(*cluster.Alloc) bool) (nodes []string) {
	for _, a := range members {
		if some(a) {
			nodes = append(nodes, a.Node)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// Asks reports whether the author of a running gang requests different GPUs from those that the
// gang has. If Asks returns true, the queue offers the gang new GPUs ([Room]). The gang keeps
// running until it can move to the offered GPUs.
func (g *Lifecycle) Asks() bool {
	return g.asks && g.Nomad == palapi.Resubmitted && g.Refused == nil && g.stop == nil && g.pending == nil
}

// change moves a running gang to GPUs that fit the author's new request. Nomad moves the gang in
// one update. In the update, each new member waits only until the member that it replaces has
// ended. So if the gang already has some of the new GPUs, the placer stops the gang first. If the
// placer did not stop the gang, a new member could get a GPU that another member still uses. The
// placer does not stop a service, because Nomad updates services a few members at a time.
func (g *Lifecycle) change(e Event, w World) []Effect {
	room := e.(Room)
	switch {
	case !g.Asks():
		return nil
	case !room.Fits:
		g.SetTrouble(reason.Reason{Kind: reason.RunsOnAsBefore}.Over(room.Reason))
		return nil
	}
	g.asks, g.read.room = false, &room
	// After the change, the queue counts the new request, so other jobs can use the quota that the
	// change frees.
	g.edited = true
	es := g.runInQueue(nil, w)
	held := w.Holds(g.Key)
	if *g.Job.Type == api.JobTypeBatch && slices.ContainsFunc(room.Placement.GPUs(), func(u int) bool { return slices.Contains(held, u) }) {
		es = append(es, g.log(Info, "the author changed the job: stopping the gang to start it again"))
		return append(es, g.stopFor(stopping{why: Resized, target: &room.Placement}, g.Record, w)...)
	}
	more, _ := g.repin(ToResize, room.Pins, w)
	return append(es, more...)
}

// preemptChanged stops a running gang in favour of another gang. The running gang's author has
// requested a new size for which there is no room yet. The stopped gang then waits in the queue
// with its new request.
func (g *Lifecycle) preemptChanged(e Event, w World) []Effect {
	if !g.Asks() {
		return g.refuseStop(e, w)
	}
	return g.preempt(e, w)
}

// resized records that the whole gang was placed again.
func (g *Lifecycle) resized(w World) []Effect {
	room := g.read.room
	g.trouble = nil
	r := Record{
		Namespace: g.Key.Namespace, Job: g.Key.ID, Submitted: g.Submitted(), Decided: w.Now(),
		JobModifyIndex: *g.Job.JobModifyIndex, Mode: room.Mode, Decision: room.Decision, Note: NoteResized,
	}
	if g.Record != nil { // the gang's earlier run time counts
		had := *g.Record
		g.addRunTime(&had, reason.Reason{}, g.Live, w)
		r.Attained = had.Attained
		r.Done = had.Done
		r.Waited = had.Waited
	}
	g.Record = &r
	return []Effect{Own{room.Pins.GPUs()}, Keep{room.Placement}, SaveRecord{*g.Record}}
}

// newestRun returns the job version that the gang's newest member runs, or nil if Nomad no longer
// keeps this version.
func (g *Lifecycle) newestRun() (newest *api.Job) {
	for _, a := range g.read.allocs {
		live := slices.ContainsFunc(g.Members, func(m *cluster.Alloc) bool { return m.ID == a.ID })
		v := g.read.versions[*a.Version]
		if live && v != nil && (newest == nil || *v.Version > *newest.Version) {
			newest = v
		}
	}
	return newest
}

// SameRequests reports whether two versions request the same members with the same GPUs.
func SameRequests(a, b *api.Job) bool {
	return slices.Equal(requests(a), requests(b))
}

// members returns the number of members that the author requests in a group, or "elastic" for an
// elastic gang, whose number of members the placer sets.
func members(job *api.Job, g *api.TaskGroup) string {
	if e, ok := rewrite.ElasticOf(job); ok && e.Group == *g.Name {
		return "elastic"
	}
	return fmt.Sprint(rewrite.Members(g))
}

// lacksOneByOne reports whether a batch job whose members do not need each other has lost a member
// while the author's new count waits for room. While the job is gated, Nomad does not replace the
// lost member. Once the job has its pins again, Nomad replaces the lost member, and places the
// members that the author has added. lacksOneByOne returns true only if nothing else has changed and
// no member has succeeded, because Nomad would rerun a succeeded member.
func (g *Observed) lacksOneByOne(had *api.Job, pins rewrite.Pins, w World) bool {
	if g.NeedsAll() || *g.Job.Type == api.JobTypeService {
		return false
	}
	done := slices.ContainsFunc(w.Allocs(g.Key), func(a *cluster.Alloc) bool { return a.Client == api.AllocClientStatusComplete })
	return !done && g.lostOf(had, pins, w) && sameButCounts(had, g.Job)
}

// sameButCounts reports whether two versions are equal except for their counts.
func sameButCounts(a, b *api.Job) bool {
	like := *b
	like.TaskGroups = slices.Clone(b.TaskGroups)
	for i, tg := range like.TaskGroups {
		was := a.LookupTaskGroup(*tg.Name)
		if was != nil {
			counts := *tg
			counts.Count, like.TaskGroups[i] = was.Count, &counts
		}
	}
	return SpecText(rewrite.Author(a)) == SpecText(rewrite.Author(&like))
}

// narrowed returns the pins with at most as many members as the elastic job allows. Nomad then ends
// the surplus members.
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

// fitsRange reports whether the elastic job allows the number of pinned members.
func fitsRange(job *api.Job, p rewrite.Pins) bool {
	e, ok := rewrite.ElasticOf(job)
	if !ok {
		return true
	}
	gp, _ := p.Of(e.Group)
	return gp.Count >= e.Least && gp.Count <= e.Most
}

func requests(job *api.Job) []string {
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
