// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"errors"
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/failure"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// stopFinished looks whether a gang that was to be stopped, to wait again, had done
// its work before it was. The gate made a new version of its job, and Nomad runs
// batch jobs anew whose members finished in an older one, so that the job is
// stopped: it would do its work a second time.
func (g *Gang) stopFinished(w World) ([]Effect, bool) {
	if !g.finishUnknown(w) {
		return nothing()
	}
	if g.stumbled != "" && w.Now().Before(g.RetryAt) { // it waits, out of the queue, until Nomad is asked again
		return nothing()
	}
	if !g.read.hasAllocs {
		return ask(ReadAllocs{})
	}
	if !finishedBefore(g.Job, g.read.allocs, g.gated == *g.Job.JobModifyIndex) {
		g.notFinished = *g.Job.JobModifyIndex
		return nothing()
	}
	g.Refused = errors.New("its members did their work while it was being stopped")
	return []Effect{g.log(Info, "finished while it was being stopped: its job is stopped, not queued"), Deregister{ToFinish, false}}, false
}

// finishUnknown says whether it is not known yet whether the gang had done its work
// before it was stopped. Until then it is not to start again.
func (g *Gang) finishUnknown(w World) bool {
	return len(g.Pins.Groups) > 0 && g.notFinished != *g.Job.JobModifyIndex && g.mayHaveFinished(w)
}

// mayHaveFinished spares asking Nomad: whether as many members as the job wants
// have ended by themselves, of whichever version.
func (g *Gang) mayHaveFinished(w World) bool {
	if *g.Job.Type != api.JobTypeBatch {
		return false
	}
	n := 0
	for _, a := range w.Allocs(g.Key) {
		if a.Client == api.AllocClientStatusComplete && endedByThemselves(a.Tasks) {
			n++
		}
	}
	return n >= g.Want
}

// finishedBefore says whether all members of the version before the job's
// present one, which put the gate over its pins, had done their work. Unless that
// was ours, they did it no earlier than just before: a person who reverts to such a
// version later means it to run.
func finishedBefore(job *api.Job, as []*nomad.Alloc, ours bool) bool {
	gated := time.Unix(0, *job.SubmitTime)
	done, last := map[string]int{}, time.Time{}
	for _, a := range as {
		if *a.Version+1 != *job.Version || a.Client != api.AllocClientStatusComplete || !endedByThemselves(a.Tasks) {
			continue
		}
		done[a.Group]++
		if at := time.Unix(0, a.ModifyTime); at.After(last) {
			last = at
		}
	}
	for _, g := range job.TaskGroups {
		if done[*g.Name] < rewrite.Members(g) {
			return false
		}
	}
	return ours || !last.Before(gated.Add(-raceTime))
}

// endedByThemselves says whether tasks ended well before anybody asked them to.
// Nomad itself kills the others where a leader, or all main tasks, have ended.
func endedByThemselves(tasks map[string]*api.TaskState) bool {
	for _, s := range tasks {
		events := failure.UntilKilled(s.Events)
		if n := len(events); n > 0 && n < len(s.Events) && (events[n-1].Type == api.TaskLeaderDead || events[n-1].Type == failure.TaskMainDead) {
			continue
		}
		i := slices.IndexFunc(events, func(e *api.TaskEvent) bool { return e.Type == api.TaskTerminated && failure.ExitCode(e) == 0 })
		if s.Failed || i < 0 {
			return false
		}
	}
	return len(tasks) > 0
}
