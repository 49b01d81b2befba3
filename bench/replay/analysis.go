// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package replay

import (
	"math"
	"slices"
	"time"
)

// Confidence returns the 95 % confidence interval of the mean of independent values, by Student's t
// distribution; ok is false for fewer than two values.
func Confidence(xs []float64) (low, high float64, ok bool) {
	n := float64(len(xs))
	if n < 2 {
		return 0, 0, false
	}
	mean, squares := 0.0, 0.0
	for _, x := range xs {
		mean += x / n
	}
	for _, x := range xs {
		squares += (x - mean) * (x - mean)
	}
	half := student(len(xs)-1) * math.Sqrt(squares/(n-1)/n)
	return mean - half, mean + half, true
}

// Ratio returns the geometric mean of ratios and its 95 % confidence interval, by Student's t
// distribution of their logarithms. ok is false for fewer than two ratios, which have no interval.
func Ratio(xs []float64) (mean, low, high float64, ok bool) {
	logs, sum := make([]float64, len(xs)), 0.0
	for i, x := range xs {
		logs[i] = math.Log(x)
		sum += logs[i]
	}
	low, high, ok = Confidence(logs)
	return math.Exp(sum / float64(max(len(xs), 1))), math.Exp(low), math.Exp(high), ok
}

// student returns the 97.5 % point of Student's t distribution. Beyond the table, it is
// approximated by the normal distribution's point plus two terms of the expansion in 1/df, with an
// error below 0.001.
func student(df int) float64 {
	table := []float64{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086}
	if df <= len(table) {
		return table[df-1]
	}
	const z = 1.959964
	n := float64(df)
	return z + (z*z*z+z)/(4*n) + (5*z*z*z*z*z+16*z*z*z+3*z)/(96*n*n)
}

// Median returns the middle value, or the mean of the two middle values; 0 without values.
func Median(xs []float64) float64 {
	if len(xs) == 0 {
		return 0
	}
	xs = slices.Sorted(slices.Values(xs))
	return xs[len(xs)/2]/2 + xs[(len(xs)-1)/2]/2
}

// HalfPlacedFor is how long a gang's GPUs, on average, must wait for missing ranks before the gang
// counts as half placed. If a gang is placed as a whole, its ranks start within this time.
const HalfPlacedFor = 5 * time.Second

// Halved reports whether ranks of a gang held GPUs and waited for missing ranks, for longer than
// [HalfPlacedFor] per GPU or until the end of the run.
func (j JobResult) Halved() bool {
	if j.Allocations < 2 {
		return false
	}
	never := j.StartedAt.IsZero() && (len(j.Allocated) > 0 || j.GaveUp > 0)
	return never || j.WaitedGPU/time.Duration(j.GPUs()) > HalfPlacedFor
}

// HalvedShare returns the share of half-placed gangs, among the run's gangs with several
// allocations.
func (r *Result) HalvedShare() float64 {
	gangs, halved := 0, 0
	for _, j := range r.Jobs {
		if j.Allocations < 2 || j.SubmittedAt.IsZero() {
			continue
		}
		gangs++
		if j.Halved() {
			halved++
		}
	}
	return float64(halved) / float64(max(gangs, 1))
}

// end returns the end of the run, or the last event of its jobs if that is later.
func (r *Result) end() time.Time {
	var first, last time.Time
	for _, j := range r.Jobs {
		if !j.SubmittedAt.IsZero() && (first.IsZero() || j.SubmittedAt.Before(first)) {
			first = j.SubmittedAt
		}
		for _, t := range []time.Time{j.SubmittedAt, j.StartedAt, j.FinishedAt} {
			if t.After(last) {
				last = t
			}
		}
	}
	if t := first.Add(r.Took); t.After(last) {
		return t
	}
	return last
}

// AvgJCTAtLeast returns the average completion time of all submitted jobs. Unfinished jobs count as
// if they had finished at the end of the run, so the result is a lower bound of the true average.
func (r *Result) AvgJCTAtLeast() time.Duration { return r.AtLeast(1).AvgJCT }

// AtLeast returns the figures over all submitted jobs. Unfinished jobs count as if they had
// finished at the end of the run, so JCTs and makespan are lower bounds. The utilization counts the
// finished jobs' work until the end of the run.
func (r *Result) AtLeast(gpus int) Summary {
	all := *r
	all.Jobs = slices.Clone(r.Jobs)
	all.Jobs = slices.DeleteFunc(all.Jobs, func(j JobResult) bool { return j.SubmittedAt.IsZero() })
	s, end := r.Summarize(gpus), r.end()
	if s.Finished == len(all.Jobs) {
		return s
	}
	for i := range all.Jobs {
		if all.Jobs[i].FinishedAt.IsZero() {
			all.Jobs[i].FinishedAt = end
		}
	}
	least := all.Summarize(gpus)
	least.Finished, least.Jobs = s.Finished, s.Jobs
	scale := s.Makespan.Seconds() / least.Makespan.Seconds()
	least.Utilization, least.Useful = s.Utilization*scale, s.Useful*scale
	return least
}

// PercentileAtLeast returns a percentile (0 to 1) of the completion times of all submitted jobs, as
// [Result.AtLeast] counts them.
func (r *Result) PercentileAtLeast(p float64) time.Duration {
	var all []time.Duration
	for _, j := range r.Jobs {
		switch {
		case j.SubmittedAt.IsZero():
		case j.FinishedAt.IsZero():
			all = append(all, r.end().Sub(j.SubmittedAt))
		default:
			all = append(all, j.JCT())
		}
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[min(len(all)-1, int(p*float64(len(all))))]
}

// HeldShare returns the share of the run's GPU time in which ranks held GPUs while other ranks were
// missing.
func (r *Result) HeldShare(gpus int) float64 {
	if r.Took <= 0 {
		return 0
	}
	return r.HeldInVain.Seconds() / (r.Took.Seconds() * float64(gpus))
}

// Queueing returns the times from submission until all ranks ran, by the gang's number of GPUs. For
// a gang that never started, the time until the end of the run counts.
func (r *Result) Queueing() map[int][]time.Duration {
	end := r.end()
	out := map[int][]time.Duration{}
	for _, j := range r.Jobs {
		if j.SubmittedAt.IsZero() {
			continue
		}
		start := j.StartedAt
		if start.IsZero() {
			start = end
		}
		out[j.GPUs()] = append(out[j.GPUs()], start.Sub(j.SubmittedAt))
	}
	return out
}

// Starts returns the times from submission until all ranks ran, for jobs that were submitted when
// enough GPUs were free and no other job waited.
func (r *Result) Starts(gpus int) []time.Duration {
	var out []time.Duration
	for i, j := range r.Jobs {
		if j.SubmittedAt.IsZero() || j.StartedAt.IsZero() {
			continue
		}
		busy, waits := 0, false
		for k, o := range r.Jobs {
			if k == i || o.SubmittedAt.IsZero() || !o.SubmittedAt.Before(j.SubmittedAt) {
				continue
			}
			started := !o.StartedAt.IsZero() && !o.StartedAt.After(j.SubmittedAt)
			waits = waits || !started
			if o.FinishedAt.IsZero() || o.FinishedAt.After(j.SubmittedAt) {
				busy += o.GPUs()
			}
		}
		if !waits && busy+j.GPUs() <= gpus {
			out = append(out, j.StartedAt.Sub(j.SubmittedAt))
		}
	}
	slices.Sort(out)
	return out
}
