// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package replay

import (
	"slices"
	"time"
)

// Waits summarizes the waits of a run's gangs. A gang's wait is the time in which it did not run,
// from its submission to its end or the end of the run.
type Waits struct {
	Avg, P99, Longest time.Duration
	Overdue           int // gangs that waited longer than max_wait
	// Promised is the longest wait that the queue promised to the gang that waited longest. Used is
	// the largest ratio of a gang's wait to its own bound.
	Promised time.Duration
	Used     float64
}

// Waits computes the waits for a queue with this max_wait and overdue_share.
func (r *Result) Waits(maxWait time.Duration, share float64, gpus int) Waits {
	var w Waits
	var all []time.Duration
	end := r.end()
	for _, j := range r.Jobs {
		if j.SubmittedAt.IsZero() {
			continue
		}
		d := j.waited(end)
		all = append(all, d)
		w.Avg += d
		if d > maxWait {
			w.Overdue++
		}
		promised := r.promised(j, maxWait, share*float64(gpus))
		if d > w.Longest {
			w.Longest, w.Promised = d, promised
		}
		w.Used = max(w.Used, d.Seconds()/promised.Seconds())
	}
	if n := len(all); n > 0 {
		slices.Sort(all)
		w.Avg /= time.Duration(n)
		w.P99 = all[(n-1)*99/100]
	}
	return w
}

// waited returns how long the job did not run.
func (j JobResult) waited(end time.Time) time.Duration {
	if !j.FinishedAt.IsZero() {
		end = j.FinishedAt
	}
	return max(0, end.Sub(j.SubmittedAt)-j.RunTime)
}

// promised returns the queue's bound for the time from the job's submission to its start (package
// comment of pal/queue). overdueGPUs is how many GPUs overdue gangs may use in the long run. A turn
// is maxWait plus the longest run time. The bound is maxWait plus one turn. Each earlier job that
// had not ended when this job was submitted adds one turn, plus the time until the overdue gangs'
// share has paid for the earlier job.
func (r *Result) promised(j JobResult, maxWait time.Duration, overdueGPUs float64) time.Duration {
	var longest time.Duration
	for _, o := range r.Jobs {
		longest = max(longest, o.RunTime)
	}
	turn := maxWait + longest
	at := maxWait + turn
	for _, o := range r.Jobs {
		if o.SubmittedAt.Before(j.SubmittedAt) && !o.SubmittedAt.IsZero() && (o.FinishedAt.IsZero() || o.FinishedAt.After(j.SubmittedAt)) {
			at += turn + time.Duration(float64(turn+longest)*float64(o.GPUs())/overdueGPUs)
		}
	}
	return at
}
