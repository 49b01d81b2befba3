// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"fmt"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
)

// said are the run times that ask tries, as if the job's author had given them.
var said = []time.Duration{10 * time.Minute, time.Hour, 8 * time.Hour}

// ask suggests an estimate for a waiting job whose run time is unknown, and describes what an
// estimate would gain now. ask returns "" for other jobs, while no placer is active, and if an
// estimate would gain nothing. Callers hold mu.
func (s *Snapshot) ask(t *model.Tracked, w *model.Wait) string {
	job := t.QueueJob(s.m.Cfg.RestartCost)
	if w == nil || job.Endless || s.Activity.Idle() || s.m.Queue.Told(job) {
		return ""
	}
	was := startOf(w.Wait)
	var sooner []string
	now := gang.QueueTime(s.m.Time)
	c := s.m.View.Cluster
	for _, d := range said {
		job.Estimate = d
		_, o, starts := s.m.Queue.Ask(now, c, job, gang.QueueTime(t.WaitsSince()))
		if o.Reason == reason.Locality { // until then, it would decline the GPUs that are free now
			o.To = o.Until
		}
		ran := " if it runs " + palapi.ShortDuration(d)
		if starts {
			sooner = append(sooner, "now"+ran)
		} else if at := startOf(o); at != "" && at != was && (w.To == 0 || o.To < w.To) {
			sooner = append(sooner, at+ran)
		}
	}
	text := ""
	if len(sooner) > 0 {
		text = " With an estimate, the job would start " + strings.Join(sooner, ", ")
		if was != "" {
			text += "; without an estimate " + was
		}
		text += "."
	}
	job.Estimate = 0
	silent := s.m.Queue.TurnAfter(job)
	job.Estimate = time.Second
	if s.m.Queue.TurnAfter(job) < silent {
		factor := s.m.Cfg.Queue.Patience
		text += fmt.Sprintf(" If the job runs for less than %s, the job would be overdue after a wait of %g times its run time (at least an hour), instead of after %s.",
			palapi.ShortDuration(time.Duration(float64(silent)/factor)), factor, palapi.ShortDuration(silent))
	}
	if text == "" {
		return ""
	}
	return "Set the job's expected run time (pal_duration), because no earlier run of the job shows how long the job runs." + text
}

// startOf formats the latest expected start of a gang; "" if its start is unknown.
func startOf(w queue.Wait) string {
	if w.To == 0 {
		return ""
	}
	return "by " + model.Moment(w.To)
}

// notePreempt notes which configuration key allows the placer to stop the job for other jobs,
// unless the job itself sets pal_preempt.
func (s facts) notePreempt(e *draft, t *model.Tracked) {
	from := t.Request.PreemptFrom
	if from != "" {
		e.addNote(fmt.Sprintf("%s allows nomad-pal to stop the job for other jobs; pal_preempt = \"false\" in the job's meta forbids this", from))
	}
}
