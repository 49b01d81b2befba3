// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package api

import (
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/reason"
)

// Headline summarizes an explanation in a sentence or two: what happens, since when, and why. Times
// are in now's time zone.
func (e *Explanation) Headline(now time.Time) string {
	text := mainSentence(e, now)
	for _, r := range slices.Concat(e.Leaving, e.Members) {
		text += " " + r.Sentence()
	}
	return text
}

func mainSentence(e *Explanation, now time.Time) string {
	reason := e.Reason.String()
	if e.Reason.Kind.Predicate() && (e.Decision == nil || e.Decision.Chosen == nil) {
		return fmt.Sprintf("%s %s.", e.Job, reason)
	}
	switch e.State {
	case Running, Starting:
		if e.Decision != nil && e.Decision.Chosen != nil {
			return runsSentence(e, now)
		}
	case Completing:
		return fmt.Sprintf("%s ran, and is being stopped%s: %s.%s", e.Job, stoppedSentence(e), reason, startSentence(e, now))
	case Waiting, Committing:
		return waitsSentence(e, now)
	case Unschedulable:
		return fmt.Sprintf("%s can never start here as written: %s.", e.Job, reason)
	case Rejected:
		if e.Parent != "" {
			return fmt.Sprintf("%s is rejected: %s. Nobody can change this job, because it is a run of %s.", e.Job, reason, e.Parent)
		}
		return fmt.Sprintf("%s is rejected: %s.", e.Job, reason)
	case Failed:
		return fmt.Sprintf("%s has failed: %s.", e.Job, reason)
	case Ended:
		if e.Outcome != nil {
			return endedSentence(e, now) + runsOfIt(e)
		}
	case Template:
		return fmt.Sprintf("%s does not run itself: %s.%s", e.Job, reason, runsOfIt(e))
	case Native:
		return fmt.Sprintf("%s is left to Nomad: %s.", e.Job, reason)
	}
	return fmt.Sprintf("%s is %s: %s.", e.Job, e.State, reason)
}

// runsOfIt returns a sentence that counts the jobs that a parameterized or periodic job has made;
// "" if there are none.
func runsOfIt(e *Explanation) string {
	if e.Runs == nil {
		return ""
	}
	return fmt.Sprintf(" Its runs: %s.", e.Runs)
}

// endedSentence describes a job that has ended.
func endedSentence(e *Explanation, now time.Time) string {
	if e.Outcome.Status == AtRest {
		return fmt.Sprintf("%s has had no members since %s: %s.", e.Job, When(e.Outcome.At, now), e.Outcome.Reason.String())
	}
	verb := map[string]string{"complete": "is complete", "failed": "has failed", "stopped": "was stopped"}[e.Outcome.Status]
	at := ""
	if !e.Outcome.At.IsZero() {
		at = ", " + When(e.Outcome.At, now)
	}
	return fmt.Sprintf("%s %s%s: %s.", e.Job, verb, at, e.Outcome.Reason.String())
}

// runsSentence describes a gang that has its GPUs, or would get them.
func runsSentence(e *Explanation, now time.Time) string {
	d, c := e.Decision, e.Decision.Chosen
	held, running := 0, 0
	for _, a := range e.Allocations {
		held += len(a.GPUs)
		if a.Status == api.AllocClientStatusRunning {
			running += len(a.GPUs)
		}
	}
	if e.State == Starting && !e.Ready.IsZero() { // all members ran before
		if held >= d.Demand && d.Demand > 0 {
			return fmt.Sprintf("%s needs more members: %s. The job got %s at %s.", e.Job, e.Reason.String(), pal.CountGPUs(d.Demand), Clock(now.Location(), e.Decided))
		}
		return fmt.Sprintf("%s has lost members: %s. The job got %s at %s.", e.Job, e.Reason.String(), pal.CountGPUs(d.Demand), Clock(now.Location(), e.Decided))
	}
	where := "of " + node(c)
	verb, pending := "runs", running < d.Demand && slices.ContainsFunc(e.Allocations, func(a Allocation) bool { return a.Status == api.AllocClientStatusPending })
	switch {
	case e.State == Starting && e.Decided.IsZero():
		verb = e.Reason.String()
		switch e.Reason.Kind {
		case reason.WouldStart, reason.WouldStartIdle:
			verb += ","
		default:
			verb += "; its members would be"
		}
	case e.State == Starting:
		verb = "is starting"
	case pending: // Nomad has placed all members, and calls the job running
		verb = "is placed"
	}
	text := fmt.Sprintf("%s %s on %s %s", e.Job, verb, pal.CountGPUs(d.Demand), where)
	switch {
	case !e.Restarted.IsZero():
		text += ", placed " + When(e.Decided, now) + "; Nomad restarted its members " + When(e.Restarted, now)
	case !e.Decided.IsZero():
		text += ", placed " + When(e.Decided, now)
	}
	if pending && e.State == Running {
		text += ". " + e.Reason.Sentence() + " "
	} else {
		text += ". "
	}
	if e.Predicted != nil {
		return text + whyThere(d) + fmt.Sprintf("Nomad gave the job GPUs that nomad-pal did not choose, but that the job's pins allow. Predicted slowdown: %s; on the chosen GPUs: %.2f.", times(c.Cost), e.Predicted.Cost)
	}
	text += whyThere(d) + whyThese(d, !e.Decided.IsZero())
	if d.Packed != nil && d.Packed.Cost != c.Cost {
		text += fmt.Sprintf(". Packed%s, it would be %.2f times", map[bool]string{true: ", with outliers"}[sparesOutliers(d)], d.Packed.Cost)
	}
	return text + "."
}

// whyThere explains why replicas run on these nodes.
func whyThere(d *pal.Decision) string {
	why := d.Chosen.Spread()
	if !d.Replicas || why.IsZero() {
		return ""
	}
	return why.Sentence() + " "
}

// whyThese explains the choice of GPUs and their predicted slowdown. placed reports whether the job
// has the GPUs.
func whyThese(d *pal.Decision, placed bool) string {
	slowdown := "Predicted slowdown: " + times(d.Chosen.Cost)
	switch {
	case d.Candidates.Total == 0 || d.Policy != string(pal.PAL):
		return slowdown
	case d.Candidates.Free <= d.Demand:
		return onlyFree(d) + " " + slowdown
	case d.Replicas && len(d.Chosen.Members) > 1:
		slowest := "the slowest"
		device, mixed := d.Slowest()
		if mixed {
			slowest += ", on " + device
		}
		free := map[bool]string{false: "are free, and each replica would get the best of its node", true: "were free, and each replica got the best of its node"}[placed]
		return fmt.Sprintf("%d GPUs %s. Predicted slowdown of %s: %s", d.Candidates.Free, free, slowest, times(d.Chosen.Cost))
	}
	whose := "their"
	if d.Demand == 1 {
		whose = "its"
	}
	return fmt.Sprintf("Chosen among %d free GPUs for %s low predicted slowdown: %s", d.Candidates.Free, whose, times(d.Chosen.Cost))
}

// onlyFree returns the sentence for a gang that got all free GPUs that it could use, or all of these
// except outliers.
func onlyFree(d *pal.Decision) string {
	text := "These were the only free GPUs that the job could use"
	if d.Demand == 1 {
		text = "This was the only free GPU that the job could use"
	}
	if sparesOutliers(d) {
		text += ", except outliers"
	}
	return text + "."
}

// sparesOutliers reports whether the placer chose all free GPUs except the outliers, which packing
// would have used.
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

// times formats a predicted slowdown.
func times(cost float64) string {
	return fmt.Sprintf("%.2f times as long as on median GPUs of one node", cost)
}

// waitsSentence returns the headline of a gang that waits, or, in a plan, would wait.
func waitsSentence(e *Explanation, now time.Time) string {
	text := e.Job + " waits"
	switch {
	case e.Planned:
		text = e.Job + " would wait"
	case !e.Ran.IsZero():
		text = fmt.Sprintf("%s ran before, and has been waiting again for %s, since %s", e.Job, About(max(0, now.Sub(e.Ran))), Clock(now.Location(), e.Ran))
		text += stoppedSentence(e)
	case !e.Submitted.IsZero():
		text = fmt.Sprintf("%s has waited for %s, since %s", e.Job, About(max(0, now.Sub(e.Submitted))), Clock(now.Location(), e.Submitted))
	}
	return fmt.Sprintf("%s: %s.%s", text, e.Reason.String(), startSentence(e, now))
}

// stoppedSentence returns, in brackets, why the placer stopped the job, and for which other job. It
// returns "" if the placer did not stop the job, or if the job's reason includes this.
func stoppedSentence(e *Explanation) string {
	why := e.StoppedWhy
	if why.IsZero() || e.Reason.Includes(why) {
		return ""
	}
	if e.StoppedFor != "" {
		why.Ahead = e.StoppedFor
	}
	return " (" + why.String() + ")"
}

// startSentence returns a sentence about the expected start of the job; "" if the start is unknown
// and the reason already explains why.
func startSentence(e *Explanation, now time.Time) string {
	switch {
	case e.StartTo.IsZero() && !e.Planned && e.Wait != nil && (e.Wait.Reason == reason.Quota || e.Wait.Reason == reason.Array):
		return " The start cannot be predicted: the end of a job that this job waits for is unknown."
	case e.StartTo.IsZero():
		return ""
	case e.Wait != nil && e.Wait.Reason == reason.Locality:
		return fmt.Sprintf(" The job waits for such GPUs at most until %s, and then starts on any suitable GPUs that are still free.", When(e.StartTo, now))
	}
	return fmt.Sprintf(" The job is expected to start %s.", Soon(e.StartFrom, e.StartTo, now))
}

// Score formats a PM score.
func Score(s pal.PMScore) string {
	if s == 0 {
		return "not measured"
	}
	return fmt.Sprintf("%.3f", s)
}

// Uncapped says that the scores of n GPUs for class A say little.
func Uncapped(n int) string {
	return fmt.Sprintf("class A was measured below the power limit on %s, so the PM scores say little about training", pal.CountGPUs(n))
}
