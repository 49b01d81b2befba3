// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// A job's place in the queue is the time when its author first requested it.
//
// If the author registers a waiting job again, the job keeps its place, unless it now requests more
// GPUs. If a job that requests more GPUs kept its place, authors could use a small job to hold a
// place for a large one. A job also keeps its place when the placer requeues it. If the author
// stops the job, the job loses its place, even if the author starts it again. If a stopped job kept
// its place, a job that nobody needs could hold a place in the queue. Nomad keeps the versions of a
// job, so a restarted agent computes the same place.

// position is the place in the queue of a waiting job without pins. For a job with pins, the record
// contains the place.
type position struct {
	index uint64 // JobModifyIndex of the job for which it was computed
	since time.Time
	gpus  int
	// record is the record that the gang had when its author edited the requeued job.
	record *Record
}

// findPosition finds the place of a job that its author may have registered
// before.
func (g *Lifecycle) findPosition(World) ([]Effect, bool) {
	index, had := *g.Job.JobModifyIndex, g.position
	switch {
	case g.positionKnown():
		return nothing()
	case len(g.Pins.Groups) > 0 && !g.read.hasVersions:
		return await(ReadVersions{})
	case len(g.Pins.Groups) > 0:
		g.position = position{index: index}
		at := askedAgain(g.Job, g.read.versions)
		mended := mendedAt(g.Job, g.read.versions)
		switch {
		case !g.Record.GivenUp.IsZero() && mended.After(at):
			at = mended
		case mended.After(g.Record.Outage.Last):
			r := *g.Record
			r.Outage, g.Record = Outage{}, &r
		}
		g.startOver(at)
		return nothing()
	}
	found := position{index: index, since: time.Unix(0, *g.Job.SubmitTime), gpus: rewrite.AllGPUs(g.Job)}
	if first(g.Job) {
		g.position = found
		return nothing()
	}
	if !g.read.hasVersions {
		return await(ReadVersions{})
	}
	first := firstAsked(g.Job, g.read.versions)
	found.since = first.since
	if first.requeued {
		if !g.read.hasRecord {
			return await(ReadRecord{})
		}
		r := g.read.record
		if r != nil && r.GivenUp.IsZero() { // an edit of a gang that was given up begins a new try
			found.since, found.record = r.Submitted, r
		}
	}
	// Nomad keeps only some versions of a job, so this placer may remember an earlier time than the
	// versions show.
	if first.cut && had.index != 0 && found.gpus <= had.gpus && had.since.Before(found.since) {
		found.since, found.record = had.since, had.record
	}
	g.position = found
	return nothing()
}

// positionKnown reports whether the placer knows the gang's place, or need not know it now. No
// search is needed if the place is known, or if a job without pins does not wait. For a job with
// pins, no search is needed if its record is up to date or has not been read yet.
func (g *known) positionKnown() bool {
	index := *g.Job.JobModifyIndex
	switch {
	case g.position.index == index:
		return true
	case len(g.Pins.Groups) > 0: // the job cannot have been stopped before its second version
		return g.Record == nil || g.Record.JobModifyIndex == index || *g.Job.Version < 2
	}
	return g.Nomad != palapi.Waiting
}

// ask holds the time when the author first requested what the job now requests, according to the
// job's versions.
type ask struct {
	job      *api.Job  // the author's last version; only askedBeforePins sets it
	since    time.Time // when the author registered the oldest version with this request
	requeued bool      // the search ended at a gang that had been requeued
	cut      bool      // the search ended at a version that Nomad no longer keeps
}

// firstAsked returns the time when the author first made the present request of the waiting job.
// firstAsked goes back through the job's versions while each version also waited and requested at
// least as many GPUs as the next version.
func firstAsked(job *api.Job, versions map[uint64]*api.Job) ask {
	since, gpus := time.Unix(0, *job.SubmitTime), rewrite.AllGPUs(job)
	for v := *job.Version; v > 0; v-- {
		if putBack(versions, v) {
			v -= 2
			since = time.Unix(0, *versions[v].SubmitTime)
		}
		o := versions[v-1]
		if o == nil {
			return ask{since: since, cut: true}
		}
		if rewrite.Stopped(o) || !rewrite.Gated(o) || rewrite.AllGPUs(o) < gpus {
			break
		}
		_, pinned := rewrite.Pinned(o)
		if pinned {
			return ask{since: since, requeued: true}
		}
		since, gpus = time.Unix(0, *o.SubmitTime), rewrite.AllGPUs(o)
	}
	return ask{since: since}
}

// putBack reports whether the placer made version v to restore an edit by the author. The edit is
// version v-2. Version v-1 is the placer's registration, which started the job and replaced the
// edit.
func putBack(versions map[uint64]*api.Job, v uint64) bool {
	if v < 3 || versions[v] == nil || versions[v-1] == nil || versions[v-2] == nil || versions[v-3] == nil {
		return false
	}
	start, edit := versions[v-1], versions[v-2]
	if !ours(start) || rewrite.Gated(start) || rewrite.Stopped(start) || !rewrite.Gated(edit) || rewrite.Stopped(edit) {
		return false
	}
	spec := func(v uint64) string { return SpecText(rewrite.Author(versions[v])) }
	return spec(v) == spec(v-2) && spec(v-1) == spec(v-3) && spec(v-1) != spec(v-2)
}

// askedAgain returns the time of the author's new request for a job that already has pins. The
// author may have started the job after a stop, or scaled it up (nomad job scale) while it waited
// again. askedAgain looks at the versions since the author's last one without pins; zero means
// neither happened.
func askedAgain(job *api.Job, versions map[uint64]*api.Job) time.Time {
	now := job
	for v := *job.Version; v > 0 && ours(now); v-- {
		was := versions[v-1]
		if was == nil {
			break
		}
		_, elastic := rewrite.ElasticOf(now) // the placer sets its count
		grown := !elastic && rewrite.AllGPUs(now) > rewrite.AllGPUs(was)
		if rewrite.Stopped(was) || grown && rewrite.Gated(was) && ours(was) {
			return time.Unix(0, *now.SubmitTime)
		}
		now = was
	}
	return time.Time{}
}

// askedBeforePins returns the time when the author first requested the version to which the placer
// later added pins.
func askedBeforePins(job *api.Job, versions map[uint64]*api.Job) ask {
	for v := *job.Version; v > 0 && ours(job); v-- {
		if versions[v-1] == nil {
			return ask{job: job, since: time.Unix(0, *job.SubmitTime), cut: true}
		}
		job = versions[v-1]
	}
	asked := firstAsked(job, versions)
	asked.job = job
	return asked
}

// mendedAt returns when the author edited the waiting job and kept gate and pins, as Nomad's UI
// does; zero if there was no such edit.
func mendedAt(job *api.Job, versions map[uint64]*api.Job) time.Time {
	now := job
	for v := *job.Version; v > 0; v-- {
		was := versions[v-1]
		if was == nil || !rewrite.Gated(was) || !ours(was) {
			break
		}
		if SpecText(rewrite.Author(now)) != SpecText(rewrite.Author(was)) {
			return time.Unix(0, *now.SubmitTime)
		}
		now = was
	}
	return time.Time{}
}

// startOver begins a new record at the time of the author's new request, because earlier runs and
// failures of the gang do not belong to this request.
func (g *memory) startOver(at time.Time) {
	if !at.After(g.Record.Submitted) {
		return
	}
	r := *g.Record
	r.Submitted = at
	r.Attained = 0
	r.Done = 0
	r.Waited = 0
	r.Stopped = time.Time{}
	r.StoppedWhy = reason.Reason{}
	r.StoppedFor = ""
	r.GivenUp = reason.Reason{}
	r.forgetFailures()
	g.Record, g.edited = &r, g.edited || g.Queued
}
