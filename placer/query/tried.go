// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// Retry is how the missing member of a job comes back whose members do not need each other, and
// that Nomad does not bring back.
type Retry string

// The ways.
const (
	RetryEvaluate Retry = "evaluate" // Nomad is told to try that of a service once more
	RetryForce    Retry = "force"    // the same of a batch job
	RetryAgain    Retry = "again"    // all of a batch job runs again
	RetryChange   Retry = "change"   // the job is changed, as its reschedule block allows no try
	RetryRun      Retry = "run"      // the job is run again
	RetryMove     Retry = "move"     // all of the service is placed again
)

// mostMembers bounds what is said of the members that are missing, and of those that were tried
// again.
const mostMembers = 3

// tried says of members that Nomad has tried again how often and why, of missing ones what
// became of them, and of those that do not need each other how they come back.
func tried(m *model.Model, t *model.Tracked) (said []string, retry Retry) {
	before := map[string]*nomad.Alloc{}
	for _, a := range m.State.AllocsOf(t.Key) {
		before[a.Next] = a
	}
	var away, again []string
	for _, a := range slices.SortedFunc(maps.Values(lastAllocs(m.State, t.Key, t.Job)), byNumber) {
		name := "member " + a.Group + a.Name[max(0, strings.LastIndexByte(a.Name, '[')):] + " "
		switch {
		case a.Member():
			if text := triedAgain(m, t.Job, a, before); text != "" {
				again = append(again, name+text)
			}
		case t.Nomad == gang.Starting && !a.FinishedIn(t.Job) && wanted(t.Job, a):
			text, by := missing(m, t, a)
			if text != "" {
				away = append(away, name+text)
			}
			retry = cmp.Or(retry, by)
		}
	}
	return slices.Concat(few(away, "of its members are missing, too"), few(again, "of its members were tried again, too")), retry
}

// few are the first of what there is to say, and how many more.
func few(said []string, more string) []string {
	if n := len(said) - mostMembers; n > 0 {
		return append(said[:mostMembers:mostMembers], fmt.Sprintf("%d more %s", n, more))
	}
	return said
}

// byNumber sorts members by group and number.
func byNumber(a, b *nomad.Alloc) int {
	n, _ := number(a)
	o, _ := number(b)
	return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(n, o), cmp.Compare(a.Name, b.Name))
}

// number is that of a member, with which its name ends.
func number(a *nomad.Alloc) (n int, err error) {
	_, err = fmt.Sscanf(a.Name[strings.LastIndexByte(a.Name, '[')+1:], "%d]", &n)
	return n, err
}

// wanted says whether the job is to have a member of this number.
func wanted(job *api.Job, a *nomad.Alloc) bool {
	g := job.LookupTaskGroup(a.Group)
	n, err := number(a)
	return g != nil && (err != nil || n < rewrite.Members(g))
}

// triedAgain says of a member that is there how often Nomad has tried it again since the job was
// registered last; "" for never.
func triedAgain(m *model.Model, job *api.Job, a *nomad.Alloc, before map[string]*nomad.Alloc) string {
	times, restarts := 0, uint64(0)
	var lastFailed *nomad.Alloc
	for was := before[a.ID]; was != nil && failedOrLost(was) && was.PlacedFor(job) && times < len(before); was = before[was.ID] {
		if times++; lastFailed == nil {
			lastFailed = was
		}
	}
	for _, task := range a.Tasks {
		restarts += task.Restarts
	}
	var said []string
	if times > 0 {
		said = append(said, fmt.Sprintf("was placed again %s by Nomad, the last time at %s: %s", counted(times), at(lastFailed), m.Diagnose(lastFailed).Reason))
	}
	if restarts > 0 {
		said = append(said, fmt.Sprintf("was restarted %s by Nomad on its node", counted(int(restarts))))
	}
	return strings.Join(said, ", and ")
}

// missing says what became of a member that is not there, and how it comes back.
func missing(m *model.Model, t *model.Tracked, a *nomad.Alloc) (string, Retry) {
	alone, service := !t.NeedsAll(), *t.Job.Type == api.JobTypeService && !t.NeedsAll()
	pinned := service && t.Pins.Mode == rewrite.ModeGPU
	move := map[bool]Retry{true: RetryMove}[pinned]
	switch {
	case failedOrLost(a):
		f := m.Diagnose(a)
		text := fmt.Sprintf("has been missing since %s: %s on node %s", at(a), f.Reason, f.Node)
		switch {
		case a.Client == api.AllocClientStatusLost:
			return text, move
		case a.Later:
			return text + "; Nomad is to try it again, as its reschedule block says", ""
		case !alone || a.Next != "" || a.Desired != api.AllocDesiredStatusRun:
			return text, ""
		case reschedules(t.Job, a.Group):
			return text + "; its reschedule block allows no further try for now", map[bool]Retry{true: RetryEvaluate, false: RetryForce}[service]
		}
		return text + "; its reschedule block allows no further try", map[bool]Retry{true: RetryChange, false: RetryAgain}[service]
	case a.Preempted(t.Job):
		return "has been missing since " + at(a) + ": Nomad preempted it", map[bool]Retry{true: RetryRun}[service]
	case !a.Live() && a.Desired != api.AllocDesiredStatusRun:
		return "has been missing since " + at(a) + ": it was stopped, by a drain of its node, say", move
	}
	return "", ""
}

// counted is how often something was done.
func counted(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

func failedOrLost(a *nomad.Alloc) bool {
	return a.Client == api.AllocClientStatusFailed || a.Client == api.AllocClientStatusLost
}

// reschedules says whether the group's members may be rescheduled at all.
func reschedules(job *api.Job, group string) bool {
	g := job.LookupTaskGroup(group)
	if g == nil || g.ReschedulePolicy == nil {
		return true // Nomad's default
	}
	p := g.ReschedulePolicy
	return p.Unlimited != nil && *p.Unlimited || p.Attempts != nil && *p.Attempts > 0
}

// at is when Nomad heard of an allocation last.
func at(a *nomad.Alloc) string {
	return endOf(a).UTC().Format("2006-01-02 15:04:05 MST")
}
