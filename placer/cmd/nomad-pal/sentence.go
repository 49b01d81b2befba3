// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/query"
)

// sentence is an explanation in a sentence or two: what, since when, and why.
func sentence(e *query.Explanation, now time.Time) string {
	text := mainSentence(e, now)
	for _, r := range slices.Concat(e.Leaving, e.Members) {
		text += " " + r.Sentence()
	}
	return text
}

func mainSentence(e *query.Explanation, now time.Time) string {
	reason := e.Reason.String()
	if e.Reason.Kind.Predicate() && (e.Decision == nil || e.Decision.Chosen == nil) {
		return fmt.Sprintf("%s %s.", e.Job, reason)
	}
	switch e.State {
	case gang.Running, gang.Starting:
		if e.Decision != nil && e.Decision.Chosen != nil {
			return runsSentence(e, now)
		}
	case gang.Completing:
		return fmt.Sprintf("%s ran, and is being stopped%s: %s.%s", e.Job, stoppedSentence(e), reason, startSentence(e, now))
	case gang.Waiting, gang.Committing:
		return waitsSentence(e, now)
	case gang.Unschedulable:
		return fmt.Sprintf("%s can never start here as written: %s.", e.Job, reason)
	case gang.Rejected:
		if e.Parent != "" {
			return fmt.Sprintf("%s is rejected, and nobody can change it, as it is a child of %s: %s.", e.Job, e.Parent, reason)
		}
		return fmt.Sprintf("%s is rejected: %s.", e.Job, reason)
	case gang.Failed:
		return fmt.Sprintf("%s has failed: %s.", e.Job, reason)
	case gang.Ended:
		if e.Outcome != nil {
			return endedSentence(e, now)
		}
	case gang.Template:
		if e.Runs != nil {
			return fmt.Sprintf("%s does not run itself: %s. Its runs: %s.", e.Job, reason, e.Runs)
		}
		return fmt.Sprintf("%s does not run itself: %s.", e.Job, reason)
	case gang.Native:
		return fmt.Sprintf("%s is not the placer's: %s.", e.Job, reason)
	}
	return fmt.Sprintf("%s is %s: %s.", e.Job, e.State, reason)
}

// endedSentence is of a job that has ended.
func endedSentence(e *query.Explanation, now time.Time) string {
	if e.Outcome.Status == query.AtRest {
		return fmt.Sprintf("%s has no members, since %s: %s.", e.Job, when(e.Outcome.At, now), e.Outcome.Reason.String())
	}
	verb := map[string]string{"complete": "is complete", "failed": "has failed", "stopped": "was stopped"}[e.Outcome.Status]
	at := ""
	if !e.Outcome.At.IsZero() {
		at = ", " + when(e.Outcome.At, now)
	}
	return fmt.Sprintf("%s %s%s: %s.", e.Job, verb, at, e.Outcome.Reason.String())
}

// others is what somebody else says, a node or a driver, as the end of a sentence of ours.
func others(text string) string { return strings.TrimRight(oneLine(text), ". ") }

// runsSentence is of a gang that has its GPUs, or would get them.
func runsSentence(e *query.Explanation, now time.Time) string {
	d, c := e.Decision, e.Decision.Chosen
	held, running := 0, 0
	for _, a := range e.Allocations {
		if held += len(a.GPUs); a.Status == api.AllocClientStatusRunning {
			running += len(a.GPUs)
		}
	}
	if e.State == gang.Starting && !e.Ready.IsZero() { // it was whole once
		if held >= d.Demand && d.Demand > 0 {
			return fmt.Sprintf("%s is to have more members: %s. It was given %s at %s.", e.Job, e.Reason.String(), pal.CountGPUs(d.Demand), clock(e.Decided))
		}
		return fmt.Sprintf("%s has lost members: %s. It was given %s at %s.", e.Job, e.Reason.String(), pal.CountGPUs(d.Demand), clock(e.Decided))
	}
	where := "of " + node(c)
	verb, pending := "runs", running < d.Demand && slices.ContainsFunc(e.Allocations, func(a query.Allocation) bool { return a.Status == api.AllocClientStatusPending })
	switch {
	case e.State == gang.Starting && e.Decided.IsZero():
		switch verb = e.Reason.String(); e.Reason.Kind {
		case reason.WouldStart, reason.WouldStartIdle:
			verb += ","
		default:
			verb += "; they would be"
		}
	case e.State == gang.Starting:
		verb = "is starting"
	case pending: // Nomad has placed all its members, and calls it running
		verb = "is placed"
	}
	text := fmt.Sprintf("%s %s on %s %s", e.Job, verb, pal.CountGPUs(d.Demand), where)
	switch {
	case !e.Restarted.IsZero():
		text += " since " + when(e.Restarted, now) + ". Nomad started its members again then; the placer chose where " + when(e.Decided, now)
	case !e.Decided.IsZero():
		text += " since " + when(e.Decided, now)
	}
	if pending && e.State == gang.Running {
		text += ". " + e.Reason.Sentence() + " "
	} else {
		text += ". "
	}
	if e.Predicted != nil {
		return text + whyThere(d) + fmt.Sprintf("Nomad gave it other GPUs than the placer chose, as its pins allow. Predicted slowdown: %s; of those chosen: %.2f.", times(c.Cost), e.Predicted.Cost)
	}
	text += whyThere(d) + whyThese(d)
	if d.Packed != nil && d.Packed.Cost != c.Cost {
		text += fmt.Sprintf(". Packed%s, it would be %.2f times", map[bool]string{true: ", with outliers"}[sparesOutliers(d)], d.Packed.Cost)
	}
	for _, a := range e.Alternatives {
		if a.What == query.MeasuredNow {
			text += fmt.Sprintf(". As its GPUs measure now, it is %.2f times: the slowest has PM score %s", a.Cost, score(a.PMScore))
		}
	}
	return text + "."
}

// whyThere is why replicas run on these nodes, and why a job is on a slower GPU model than it could be.
func whyThere(d *pal.Decision) (text string) {
	if why := d.Chosen.Spread(); d.Replicas && !why.IsZero() {
		text = why.Sentence() + " "
	}
	if !d.Left.IsZero() {
		text += d.Left.Sentence() + " "
	}
	return text
}

// whyThese is why it has these GPUs, and how slow they are.
func whyThese(d *pal.Decision) string {
	slowdown := "Predicted slowdown: " + times(d.Chosen.Cost)
	switch {
	case d.Candidates.Total == 0 || d.Policy != string(pal.PAL) || !d.Left.IsZero():
		return slowdown
	case d.Candidates.Free <= d.Demand:
		return onlyFree(d) + " " + slowdown
	case d.Replicas && len(d.Chosen.Members) > 1:
		return fmt.Sprintf("Of %d free GPUs, each replica has the best of its node. Predicted slowdown of the slowest: %s", d.Candidates.Free, times(d.Chosen.Cost))
	}
	return fmt.Sprintf("Chosen among %d free ones for their low predicted slowdown: %s", d.Candidates.Free, times(d.Chosen.Cost))
}

// onlyFree says that there was nothing to choose from.
func onlyFree(d *pal.Decision) string {
	text := "They were the only free ones"
	if d.Demand == 1 {
		text = "It was the only free one"
	}
	if sparesOutliers(d) {
		text += map[bool]string{true: " that is no outlier", false: " that are no outliers"}[d.Demand == 1]
	}
	return text + "."
}

// sparesOutliers reports whether all free GPUs were chosen but for those that were left out as too
// slow: packed, the gang would have some of these.
func sparesOutliers(d *pal.Decision) bool {
	return d.Candidates.Outliers > 0 && d.Candidates.Free <= d.Demand
}

func node(c *pal.Choice) string {
	switch {
	case c.Nodes != 1:
		return fmt.Sprintf("%d nodes", c.Nodes)
	case len(c.Members) == 0:
		return "one node"
	}
	return "node " + c.Members[0].Node
}

// times is a predicted slowdown in words.
func times(cost float64) string {
	return fmt.Sprintf("%.2f times as long as on median GPUs of one node", cost)
}

// counted is a number of things.
func counted(n int, what string) string { return verbed(n, what, what+"s") }

// waitsSentence is of a gang that waits, or would.
func waitsSentence(e *query.Explanation, now time.Time) string {
	text := e.Job + " waits"
	switch {
	case e.Planned:
		text = e.Job + " would wait"
	case !e.Ran.IsZero():
		text = fmt.Sprintf("%s ran, and has waited again for %s, since %s", e.Job, about(max(0, now.Sub(e.Ran))), clock(e.Ran))
		text += stoppedSentence(e)
	case !e.Submitted.IsZero():
		text = fmt.Sprintf("%s has waited for %s, since %s", e.Job, about(max(0, now.Sub(e.Submitted))), clock(e.Submitted))
	}
	return fmt.Sprintf("%s: %s.%s", text, e.Reason.String(), startSentence(e, now))
}

// stoppedSentence says why the placer stopped it, and for whom; "" if it did not.
func stoppedSentence(e *query.Explanation) string {
	why := e.StoppedWhy
	if why.IsZero() {
		return ""
	}
	if e.StoppedFor != "" {
		why.Ahead = e.StoppedFor
	}
	return " (" + why.String() + ")"
}

// startSentence says when it is expected to start; "" if nobody knows.
func startSentence(e *query.Explanation, now time.Time) string {
	switch {
	case e.StartTo.IsZero():
		return ""
	case e.Wait != nil && e.Wait.Reason == queue.ReasonLocality:
		return fmt.Sprintf(" It starts at the latest %s.", soon(e.StartTo, e.StartTo, now))
	}
	return fmt.Sprintf(" It is expected to start %s.", soon(e.StartFrom, e.StartTo, now))
}

// allocSentence says which member of which job an allocation is.
func allocSentence(a *api.AllocationListStub) string {
	return fmt.Sprintf("Allocation %s (%s) is %s on node %s: a member of job %s.", short(a.ID), a.Name, a.ClientStatus, a.NodeName, a.JobID)
}

// gpuSentence says who holds a GPU, or why nobody does.
func gpuSentence(g query.GPU) string {
	text := fmt.Sprintf("%s, %s of node %s,", g.ID, g.Device, g.Node)
	switch {
	case !g.Healthy && g.Job != "":
		return fmt.Sprintf("%s is unhealthy, and %s sits on it: %s.", text, g.Job, others(g.Unhealthy))
	case !g.Healthy:
		return fmt.Sprintf("%s is unhealthy, so that it is not chosen: %s.", text, others(g.Unhealthy))
	case g.Quarantine != nil:
		return fmt.Sprintf("%s is in quarantine until %s, so that it is not chosen: %s.", text, untilWhen(*g.Quarantine), others(g.Quarantine.Reason))
	case g.Job != "":
		return fmt.Sprintf("%s is allocated to %s.", text, g.Job)
	case g.Degraded != "" && g.Available:
		return fmt.Sprintf("%s is free, and chosen last, because it is degraded: %s.", text, others(g.Degraded))
	case g.Available:
		return text + " is free."
	}
	return fmt.Sprintf("%s is unavailable: %s.", text, g.Unavailable)
}

// changesSentence says what is tried; "" for nothing.
func changesSentence(c query.Changes) string {
	if len(c) == 0 {
		return ""
	}
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(c)) {
		switch value := c[k]; {
		case value == "":
			parts = append(parts, "no "+k)
		case k == "without":
			parts = append(parts, "no constraint on "+value)
		default:
			parts = append(parts, k+" = "+value)
		}
	}
	return "With " + strings.Join(parts, " and ") + ": "
}

// isJobFile reports whether an argument of explain is a jobspec: no name of a job that
// people use looks like one.
func isJobFile(name string) bool {
	ends, begins := []string{".hcl", ".nomad", ".json"}, []string{"/", "./", "../"}
	return name == "-" || isURL(name) ||
		slices.ContainsFunc(ends, func(end string) bool { return strings.HasSuffix(name, end) }) ||
		slices.ContainsFunc(begins, func(begin string) bool { return strings.HasPrefix(name, begin) })
}

// clock is a time in the reader's zone, and says which that is; "" for one that never was.
func clock(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return clockIn(time.Local, t)
}

func clockIn(zone *time.Location, t time.Time) string {
	return t.In(zone).Format("2006-01-02 15:04:05 MST")
}

// when is a time in the zone of now, and how far from now it is; "" for one that never was.
func when(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	if d := t.Sub(now); d > 0 {
		return clockIn(now.Location(), t) + " (in " + about(d) + ")"
	}
	return clockIn(now.Location(), t) + " (" + ago(t, now) + ")"
}

// about is a duration in the largest unit of which it has two: 47h say more than 2d do.
func about(d time.Duration) string {
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}} {
		if d >= 2*u.unit {
			return fmt.Sprintf("%d%s", int((d+u.unit/2)/u.unit), u.name)
		}
	}
	return fmt.Sprintf("%ds", int((d+time.Second/2)/time.Second))
}

// ago is how long a time has passed, "" for one that never was.
func ago(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return about(max(0, now.Sub(t))) + " ago"
}

// span is between when something is expected.
func span(from, to, now time.Time) string {
	from, to = from.In(now.Location()), to.In(now.Location())
	switch {
	case !to.After(now):
		return "now"
	case to.Sub(from) < time.Second:
		return when(to, now)
	case from.YearDay() == to.YearDay() && from.Year() == to.Year():
		return fmt.Sprintf("%s–%s (in %s)", from.Format("2006-01-02 15:04:05"), to.Format("15:04:05 MST"), reach(from, to, now))
	}
	return fmt.Sprintf("%s – %s (in %s)", from.Format("2006-01-02 15:04 MST"), to.Format("2006-01-02 15:04 MST"), reach(from, to, now))
}

// reach is how far away a span is.
func reach(from, to, now time.Time) string {
	near, far := about(max(0, from.Sub(now))), about(max(0, to.Sub(now)))
	if near == far {
		return far
	}
	if !from.After(now) {
		near = "0"
	}
	return near + "–" + far
}

// soon is a span in a table, without its dates; "" for one that nobody knows.
func soon(from, to, now time.Time) string {
	if to.IsZero() {
		return ""
	}
	if !to.After(now) {
		return "now"
	}
	return "in " + reach(from, to, now)
}
