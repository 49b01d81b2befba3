// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/attr"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
)

// stateCell returns a gang's state as a coloured table cell.
func stateCell(s palapi.State) painted {
	p := painted{plain, string(s)}
	switch s {
	case palapi.Running:
		p.style = green
	case palapi.Waiting, palapi.Committing, palapi.Starting, palapi.Stopping, palapi.Completing, palapi.Lost, palapi.Resubmitted:
		p.style = yellow
	case palapi.Failed, palapi.Rejected, palapi.Unschedulable:
		p.style = red
	}
	return p
}

// shortGPU cuts a GPU's id to its first n bytes, unless n is 0. Callers choose n so that different
// GPUs have different short ids. Commands accept short ids as arguments.
func shortGPU(id string, n int) string {
	if n == 0 {
		return id
	}
	return attr.Shorten(id, n)
}

// idLength returns the length to which ids of GPUs are cut: n on a terminal, otherwise 0 (whole ids).
func (b *base) idLength(n int) int {
	if b.io.terminal {
		return n
	}
	return 0
}

// gpuNames returns the names of GPUs in an explanation: NODE:INDEX if the index is known.
func gpuNames(e *palapi.Explanation, ids ...string) string {
	return strings.Join(each(ids, func(id string) string { return cmp.Or(e.GPUNames[id], id) }), " ")
}

func printSteps(b *base, steps []string) {
	if len(steps) == 0 {
		return
	}
	b.head("Next")
	for _, s := range steps {
		b.sayAfter("- ", plain, s)
	}
}

// printHolders prints the jobs that hold GPUs for which a gang waits.
func printHolders(b *base, h *palapi.Holders) {
	if h == nil || len(h.Jobs) == 0 {
		return
	}
	b.head("Who holds the GPUs that this job could use")
	now := time.Now()
	rows := []string{row("Job", "GPUs", "Expected end")}
	for _, j := range h.Jobs {
		rows = append(rows, row(j.Job, j.GPUs, whenItEnds(j, now)))
	}
	b.table(rows)
	for _, j := range h.Jobs {
		if j.MayGive > 0 {
			b.say(plain, fmt.Sprintf("%s is elastic: the job can give back %d of these GPUs from %s on.", j.Job, j.MayGive, palapi.When(j.GiveFrom, now)))
		}
	}
	if h.Omitted > 0 {
		b.say(plain, "And "+counted(h.Omitted, "more job")+".")
	}
}

// roomWhen says which of the holders have to end before a waiting job has enough room; "" if that
// is unknown.
func roomWhen(h *palapi.Holders) string {
	if h == nil || !h.Enough {
		return ""
	}
	var needed []string
	for _, j := range h.Jobs {
		if j.Needed {
			needed = append(needed, j.Job)
		}
	}
	switch len(needed) {
	case 0:
		return ""
	case 1:
		return "There is enough room for this job when " + needed[0] + " has ended."
	case 2, 3:
		return "There is enough room for this job when " + strings.Join(needed, " and ") + " have ended."
	}
	return fmt.Sprintf("There is enough room for this job when %d other jobs have ended; -verbose lists them first.", len(needed))
}

// whenItEnds describes when a job is expected to release its GPUs.
func whenItEnds(j palapi.Holder, now time.Time) string {
	end := "unknown: the job has neither pal_duration nor earlier runs, or has run longer than predicted"
	switch {
	case j.Stopping:
		return "soon: the job was stopped, and its tasks are ending"
	case j.Service:
		end = "when somebody stops the job, which is a service"
	case !j.EndTo.IsZero():
		end = palapi.Soon(j.EndFrom, j.EndTo, now) + ", " + j.EndFrom.Local().Format("2006-01-02 15:04 MST")
	}
	if j.Preemptible {
		end += "; nomad-pal may stop the job for other jobs (pal_preempt)"
	}
	return end
}

// words maps PAL's terms to their explanations.
var words = map[string]string{
	"PM score":          "time on this GPU relative to the median GPU; 0.9 is faster, 1.1 slower",
	"Variability class": "a set of GPUs with similar PM scores; class 1 is the fastest",
	"Application class": "how much a slow GPU slows the job down, from A (most) to D (least)",
	"Locality":          "the smallest unit that contains all GPUs of the gang: a node, a rack or the cluster",
	"Penalty":           "how many times longer a gang takes at this locality than on one node",
	"L×V matrix":        "penalty × mean PM score, for each locality and each bin (GPUs with similar PM scores, which count as equal). An entry fits if, at its locality, enough GPUs of its bin and of faster bins are free for the gang. nomad-pal chooses the lowest entry that fits, but prefers a fuller node to an emptier one if this costs little more",
	"Slowdown":          "penalty × PM score of the slowest GPU; 1 is the slowdown of a gang on median GPUs of one node",
	"Speed":             "how fast the job runs on a GPU model, relative to the model on which the job is fastest",
}

// slowdownOfModels replaces the explanation of the slowdown if the speeds of several GPU models are
// known.
const slowdownOfModels = "penalty × PM score of the slowest GPU ÷ speed of its GPU model; 1 is the slowdown of a gang on median GPUs of one node, of the model on which the job is fastest"

// printLegend prints the explanations of the terms in used.
func printLegend(b *base, used ...string) {
	b.head("Words")
	for _, w := range used {
		printWord(b, w, words[w])
	}
}

func printWord(b *base, word, means string) { b.sayAfter("  ", plain, word+": "+means+".") }

// printWords prints the explanations of the terms that occur in the explanation of a job.
func printWords(b *base, e *palapi.Explanation) {
	d := e.Decision
	if d == nil || e.State == palapi.Unschedulable {
		return
	}
	used := []string{"Application class"}
	if d.Chosen != nil {
		used = append(used, "Variability class")
	}
	if d.Chosen != nil || len(e.Tradeoffs) > 0 {
		used = append(used, "PM score", "Locality", "Penalty")
		if len(d.Models) == 0 {
			used = append(used, "Slowdown")
		}
	}
	if len(d.Walk) > 0 {
		used = append(used, "L×V matrix")
	}
	if len(d.Models) > 0 {
		used = append(used, "Speed")
	}
	printLegend(b, used...)
	if len(d.Models) > 0 {
		printWord(b, "Slowdown", slowdownOfModels)
	}
}
