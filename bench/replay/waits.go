// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package replay

import (
	"slices"
	"time"
)

// Waits is for how long the gangs of a run did not run, from their submission to their
// end or that of the run.
type Waits struct {
	Avg, P99, Longest time.Duration
	Overdue           int // that waited for longer than max_wait
	// Promised is the longest wait that the queue promises the gang that waited longest. Each gang
	// has such a bound; Used is the largest part of its own bound that any gang waited.
	Promised time.Duration
	Used     float64
}

// Waits computes them, for a queue with that max_wait and overdue_share.
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

// waited is for how long the job did not run.
func (j JobResult) waited(end time.Time) time.Duration {
	if !j.FinishedAt.IsZero() {
		end = j.FinishedAt
	}
	return max(0, end.Sub(j.SubmittedAt)-j.RunTime)
}

// promised returns when, after its submission, the job must have started by the queue's promise
// (package comment of pal/queue), if the overdue may have that many GPUs in the long run. It sums
// one turn for the job, and one for each job before it that had not ended when it was submitted.
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
