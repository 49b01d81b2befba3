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

// shortIDs returns a function that shortens these ids of GPUs on a terminal, so that they still
// differ. Commands accept short ids as arguments.
func (s streams) shortIDs(ids []string) func(id string) string {
	n := palapi.IDLength(ids)
	return func(id string) string {
		if !s.terminal {
			return id
		}
		return attr.Shorten(id, n)
	}
}

// gpuNames returns the names of GPUs in an explanation: NODE:INDEX if the index is known.
func gpuNames(e *palapi.Explanation, ids ...string) string {
	return strings.Join(each(ids, func(id string) string { return cmp.Or(e.GPUNames[id], id) }), " ")
}

func printSteps(b *base, steps []string) {
	if len(steps) == 0 {
		return
	}
	b.io.head("Next")
	for _, s := range steps {
		b.io.sayAfter("- ", plain, s)
	}
}

// printHolders prints the jobs that hold GPUs for which a gang waits.
func printHolders(b *base, h *palapi.Holders) {
	if h == nil || len(h.Jobs) == 0 {
		return
	}
	b.io.head("Who holds the GPUs that this job could use")
	now := time.Now()
	rows := []string{row("Job", "GPUs", "Expected end")}
	for _, j := range h.Jobs {
		rows = append(rows, row(j.Job, j.GPUs, whenItEnds(j, now)))
	}
	b.io.table(rows)
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
	n := len(needed)
	switch {
	case n == 0:
		return ""
	case n > 3:
		return fmt.Sprintf("There is enough room for this job when %d other jobs have ended; -verbose lists them first.", n)
	case n > 1:
		return "There is enough room for this job when " + strings.Join(needed, " and ") + " have ended."
	}
	return "There is enough room for this job when " + needed[0] + " has ended."
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
