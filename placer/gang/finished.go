// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"errors"
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/failure"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// lineage is a series of consecutive versions of a job. The placer wrote each version after the
// first, and changed only the gate and the pins of the version before. The placer made the first
// version from the author's version. The zero value is an unknown lineage.
type lineage struct {
	// version is the first version of the lineage. index is the JobModifyIndex of that version.
	version, index uint64
}

func (l lineage) known() bool { return l != lineage{} }

// rewrote returns the lineage after the placer has replaced a version (was) by another (now). If
// the placer also wrote the replaced version, the lineage continues. If the author wrote the
// replaced version, a new lineage begins.
func (l lineage) rewrote(was, now *api.Job) lineage {
	if ours(was) {
		return l
	}
	return lineage{*now.Version, *now.JobModifyIndex}
}

// finishCheck describes the last check that found a gang unfinished. finishCheck contains the job's
// JobModifyIndex, and how many members had finished in earlier versions.
type finishCheck struct {
	index uint64
	ended int
}

// stopFinished checks whether a gang has succeeded in an earlier version that differs from the
// present version only by the gate and the pins. If the gang has succeeded, stopFinished stops the
// job. If stopFinished did not stop the job, Nomad would run the members again, because they
// finished in an older version of a batch job.
func (g *Lifecycle) stopFinished(w World) ([]Effect, bool) {
	if !g.finishUnknown(w) && !(g.read.hasAllocs && g.finishUnknownBy(g.read.allocs)) { // earlier answers can be outdated
		return nothing()
	}
	if g.stumbled != "" && w.Now().Before(g.RetryAt) { // the gang waits outside the queue until the placer asks Nomad again
		return nothing()
	}
	if !g.read.hasAllocs {
		return await(ReadAllocs{})
	}
	if g.Request.Elastic != nil && !g.read.hasVersions { // the gang's versions may differ in their number of members
		return await(ReadVersions{})
	}
	done := finishedVersions(g.Job, g.read.allocs, g.read.versions, finished)
	if len(done) > 0 && (!g.lineage.known() || g.MayHaveOverwritten()) && !g.read.hasVersions {
		return await(ReadVersions{})
	}
	if len(done) > 0 && g.MayHaveOverwritten() {
		return nothing()
	}
	for v, last := range done {
		ours := v >= g.lineage.version
		if !g.lineage.known() {
			ours = leadsTo(g.read.versions, v, last, g.Job)
		}
		if ours {
			g.Refused = errors.New("the job's members had already finished")
			return []Effect{g.log(Info, "the members finished in an earlier version of the job: stopping the job instead of running it again"), Deregister{ToFinish, false}}, false
		}
	}
	g.notFinished = finishCheck{*g.Job.JobModifyIndex, g.endedInEarlier(w.Allocs(g.Key))}
	return nothing()
}

// finishUnknown reports whether [Lifecycle.stopFinished] must still check whether the gang has
// succeeded. Until this check is done, the gang must not start again.
func (g *memory) finishUnknown(w World) bool { return g.finishUnknownBy(w.Allocs(g.Key)) }

func (g *memory) finishUnknownBy(as []*cluster.Alloc) bool {
	if len(g.Pins.Groups) == 0 || *g.Job.Type != api.JobTypeBatch {
		return false
	}
	n := g.endedInEarlier(as) // if too few members have ended, the placer need not ask Nomad
	return n >= g.fewest() && g.notFinished != finishCheck{*g.Job.JobModifyIndex, n}
}

// fewest returns how many members must succeed at least, so that the gang counts as successful.
func (g *known) fewest() int {
	if g.Request.Elastic != nil {
		return g.Request.Elastic.Least
	}
	return g.Want
}

// endedInEarlier counts the members that have finished and may belong to an earlier version.
func (g *memory) endedInEarlier(as []*cluster.Alloc) int {
	n := 0
	for _, a := range as {
		if finished(a) && a.ModifyIndex > g.lineage.index && !a.FinishedIn(g.Job) {
			n++
		}
	}
	return n
}

// finish is the time at which the last member of a version ended, and Nomad's index at that time.
// The index orders events even if somebody changes the clock.
type finish struct {
	at    time.Time
	index uint64
}

// finishedVersions returns the earlier versions whose members are all done, and when the last member
// of each version ended. versions shows how many members an elastic gang had in each version.
func finishedVersions(job *api.Job, as []*cluster.Alloc, versions map[uint64]*api.Job, isDone func(*cluster.Alloc) bool) map[uint64]finish {
	done, last := map[uint64]map[string]int{}, map[uint64]finish{}
	for _, a := range as {
		v := *a.Version
		if v >= *job.Version || !isDone(a) {
			continue
		}
		if done[v] == nil {
			done[v] = map[string]int{}
		}
		done[v][a.Group]++
		if a.ModifyIndex >= last[v].index {
			last[v] = finish{time.Unix(0, a.ModifyTime), a.ModifyIndex}
		}
	}
	_, elastic := rewrite.ElasticOf(job)
	for v, by := range done {
		was := job
		if elastic {
			was = versions[v]
		}
		if was == nil || slices.ContainsFunc(was.TaskGroups, func(g *api.TaskGroup) bool { return by[*g.Name] < rewrite.Members(g) }) {
			delete(last, v)
		}
	}
	return last
}

// raceTime is the maximum time between a change by the author and a registration by the placer that
// the placer began before it saw the change.
const raceTime = 5 * time.Second

// leadsTo reports whether the placer made all versions after version v, and changed only gates and
// pins. If a person reverts the job to a version with pins, the restored version must run. leadsTo
// recognizes a restored version because it equals an earlier version and was submitted after the
// members had finished.
func leadsTo(versions map[uint64]*api.Job, v uint64, last finish, job *api.Job) bool {
	base, next := versions[v], versions[v+1]
	if base == nil || next == nil {
		return false
	}
	whole := SpecText(next)
	for u, was := range versions {
		reverted := u <= v && SpecText(was) == whole && memberCount(was) == memberCount(next)
		if reverted && last.index < *next.JobModifyIndex && last.at.Before(time.Unix(0, *next.SubmitTime).Add(-raceTime)) {
			return false
		}
	}
	asks := SpecText(rewrite.Author(base))
	for ; v <= *job.Version; v++ {
		now := versions[v]
		if now == nil || !ours(now) || SpecText(rewrite.Author(now)) != asks {
			return false
		}
	}
	return true
}

// memberCount returns how many members a version requests. For an elastic gang, the text of
// [SpecText] does not contain the number of members.
func memberCount(job *api.Job) int {
	n := 0
	for _, g := range job.TaskGroups {
		n += rewrite.Members(g)
	}
	return n
}

// succeeded reports whether a member's tasks succeeded.
func succeeded(a *cluster.Alloc) bool {
	return a.Client == api.AllocClientStatusComplete && endedByThemselves(a.Tasks)
}

// finished reports whether a member need not run again. Nomad also counts a member as finished that
// its client killed, for example at max_run_duration, if Nomad has not stopped the member.
func finished(a *cluster.Alloc) bool {
	return succeeded(a) || a.Client == api.AllocClientStatusComplete && a.Desired == api.AllocDesiredStatusRun
}

// endedByThemselves reports whether the tasks succeeded before anybody asked them to stop. Nomad
// kills the remaining tasks when the leader or all main tasks have ended. Tasks that were killed
// for this reason count as succeeded.
func endedByThemselves(tasks map[string]*api.TaskState) bool {
	for _, s := range tasks {
		events := failure.UntilKilled(s.Events)
		n := len(events)
		if n > 0 && n < len(s.Events) && (events[n-1].Type == api.TaskLeaderDead || events[n-1].Type == failure.TaskMainDead) {
			continue
		}
		if s.Failed || !endedLastWell(events) {
			return false
		}
	}
	return len(tasks) > 0
}

// wasKilled reports whether tasks were killed before they succeeded.
func wasKilled(tasks map[string]*api.TaskState) bool {
	for _, s := range tasks {
		if len(failure.UntilKilled(s.Events)) < len(s.Events) {
			return !endedByThemselves(tasks)
		}
	}
	return false
}

// endedLastWell reports whether a task succeeded and was not going to run again. A task that is
// restarted in place (nomad alloc restart, a template) can exit with 0 because of the restart. A
// task that exits with 0 because of a restart has not succeeded, although no event shows that it
// was killed. The scenario "restarted" tests this.
func endedLastWell(events []*api.TaskEvent) bool {
	for _, e := range slices.Backward(events) {
		switch e.Type {
		case api.TaskTerminated:
			return failure.ExitCode(e) == 0
		case api.TaskRestarting, api.TaskRestartSignal, api.TaskStarted:
			return false
		}
	}
	return false
}

// FinishedWell reports whether all members of a dead batch job succeeded, and returns the time at
// which the last member succeeded. Stopping a job creates a new version, so the members of a
// stopped job succeeded in the version before the stop.
func FinishedWell(job *api.Job, as []*cluster.Alloc) (at time.Time, ok bool) {
	version := *job.Version
	if rewrite.Stopped(job) && version > 0 {
		version--
	}
	return finishedIn(job, version, as)
}

// finishedIn is like [FinishedWell] for the given version of the job. The given version is the
// present version, or an earlier version if only stops of the job came after it. finishedIn counts
// members of the given version and of the present version.
func finishedIn(job *api.Job, version uint64, as []*cluster.Alloc) (at time.Time, ok bool) {
	done, everywhere := map[string]map[string]bool{}, *job.Type == api.JobTypeSysbatch // by group, the names of members
	for _, a := range as {
		if *a.Version != version && *a.Version != *job.Version {
			continue
		}
		if !succeeded(a) {
			if everywhere {
				return time.Time{}, false
			}
			continue
		}
		if done[a.Group] == nil {
			done[a.Group] = map[string]bool{}
		}
		done[a.Group][a.Name] = true
		end := time.Unix(0, a.ModifyTime)
		if end.After(at) {
			at = end
		}
	}
	if everywhere { // only Nomad knows on how many nodes the job had to run
		return at, len(done) > 0
	}
	lacks := func(g *api.TaskGroup) bool { return len(done[*g.Name]) < rewrite.Members(g) }
	if len(done) == 0 { // a version without members is complete at once
		at = time.Unix(0, *job.SubmitTime)
	}
	return at, !slices.ContainsFunc(job.TaskGroups, lacks)
}

// FinishedEarlier is like [FinishedWell], and also handles jobs that were stopped because their
// members had succeeded in an earlier version, and jobs that were stopped several times. Each stop
// creates a version. The scenario "stopped and started" tests this.
func FinishedEarlier(job *api.Job, as []*cluster.Alloc, versions map[uint64]*api.Job) (at time.Time, ok bool) {
	ran := *job.Version
	for v := versions[ran]; v != nil && rewrite.Stopped(v) && ran > 0; v = versions[ran] {
		ran--
	}
	if at, ok := finishedIn(job, ran, as); ok {
		return at, true
	}
	for v, last := range finishedVersions(job, as, versions, succeeded) {
		if leadsTo(versions, v, last, job) && last.at.After(at) {
			at, ok = last.at, true
		}
	}
	return at, ok
}
