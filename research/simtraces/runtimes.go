// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// predictionLoss says how well the queue predicts run times: pinball losses, in doublings of the
// run time, and how often the predictions are right.
type predictionLoss struct {
	Trace  string `json:"trace"`
	Part   part   `json:"part"`
	Regime string `json:"regime"`
	Runs   int    `json:"runs"`
	// Half and Most are the losses of the predicted median and of the predicted 90th percentile.
	Half float64 `json:"loss_50"`
	Most float64 `json:"loss_90"`
	// Below, Within and Near are shares of the runs. Below: runs not longer than the predicted
	// median. Within: runs not longer than the predicted 90th percentile. Near: runs within a
	// factor of two of the predicted median.
	Below  float64 `json:"hits_50"`
	Within float64 `json:"hits_90"`
	Near   float64 `json:"near"`
}

// constant names the predictor to compare with, which predicts DefaultRuntime for each job.
const constant = "ten minutes each"

// predictRuns predicts the run time of each job at its submission, as if each job started at its
// submission.
func predictRuns(s source, r regime) (predictionLoss, error) {
	t := predictionLoss{Trace: s.trace.Name, Part: s.part, Regime: r.name}
	q, err := queue.New(queue.Default())
	if err != nil {
		return t, err
	}
	js := s.trace.Jobs
	ends := make([]int, len(js))
	for i := range ends {
		ends[i] = i
	}
	endOf := func(i int) time.Duration { return secs(js[i].SubmitS + js[i].WorkS()) }
	slices.SortStableFunc(ends, func(a, b int) int { return cmp.Compare(endOf(a), endOf(b)) })
	for i, j := range js {
		now := secs(j.SubmitS)
		for ; len(ends) > 0 && endOf(ends[0]) <= now; ends = ends[1:] {
			q.Finished(endOf(ends[0]), fmt.Sprint(ends[0]))
		}
		job := queue.Job{ID: fmt.Sprint(i), Name: j.Name, Tenant: j.Tenant, Gang: pal.SingleGPUs(fmt.Sprint(i), j.Class, j.GPUs)}
		if r.nameless {
			job.Name = ""
		}
		if r.says != nil {
			job.Estimate = r.says(i, j)
		}
		if err := q.Restore(job, pal.Placement{PMScore: 1, Penalty: 1}, now); err != nil {
			return t, err
		}
		at := q.RemainingQuantiles(now, job.ID, 0.5, 0.9)
		if r.name == constant {
			at = []time.Duration{queue.DefaultRuntime, queue.DefaultRuntime}
		}
		t.add(j, at[0], at[1])
	}
	n := max(1, float64(t.Runs))
	t.Half, t.Most, t.Below, t.Within, t.Near = round(t.Half/n), round(t.Most/n), round(t.Below/n), round(t.Within/n), round(t.Near/n)
	return t, nil
}

// add adds a run and its predictions; all times count as at least ten seconds.
func (t *predictionLoss) add(j trace.Job, half, most time.Duration) {
	long := math.Log2(max(10, j.WorkS()))
	off := func(d time.Duration) float64 { return long - math.Log2(max(10, d.Seconds())) }
	pinball := func(off, part float64) float64 { return max(part*off, (part-1)*off) }
	t.Runs++
	t.Half += pinball(off(half), 0.5)
	t.Most += pinball(off(most), 0.9)
	for to, hit := range map[*float64]bool{&t.Below: off(half) <= 0, &t.Within: off(most) <= 0, &t.Near: math.Abs(off(half)) <= 1} {
		if hit {
			*to++
		}
	}
}

// predictAll returns the results for all sources.
func predictAll(found []source) (ts []predictionLoss, err error) {
	for _, s := range found {
		for _, r := range slices.Concat([]regime{{name: constant}}, ownLines()) {
			if r.baseline != "" || r.stops != nil {
				continue
			}
			t, err := predictRuns(s, r)
			if err != nil {
				return nil, err
			}
			ts = append(ts, t)
		}
	}
	return ts, nil
}

const runTimesText = `
## Run times predicted

This table compares run times with the queue's predictions at the submission of gangs that cannot be stopped. The queue has learned from all jobs that
would have ended before this submission if each job started at once. The pinball loss of the run time's base-2 logarithm is averaged over jobs, then over
traces. For the median, a loss of 0.5 is a factor of two. "As predicted" is the share of run times that are at most as long as predicted. Ideal shares are 50 % for the median and 90 % for the prediction of 90 %.

`

// runTimesTables writes how well run times are predicted.
func runTimesTables(b *bytes.Buffer, ts []predictionLoss) {
	if len(ts) == 0 {
		return
	}
	b.WriteString(runTimesText)
	for i, p := range []part{chosen, reported} {
		fmt.Fprintf(b, "%s:\n\n| | traces | loss of the median | loss of 90 %% | as predicted, median | as predicted, 90 %% | within a factor of two |\n|---|---|---|---|---|---|---|\n", halves[i])
		for _, r := range slices.Concat([]regime{{name: constant}}, ownLines()) {
			n, sum := 0.0, predictionLoss{}
			for _, t := range ts {
				if t.Part == p && t.Regime == r.name {
					n++
					sum.Half, sum.Most, sum.Below, sum.Within, sum.Near = sum.Half+t.Half, sum.Most+t.Most, sum.Below+t.Below, sum.Within+t.Within, sum.Near+t.Near
				}
			}
			if n > 0 {
				fmt.Fprintf(b, "| %s | %.0f | %.2f | %.2f | %.0f %% | %.0f %% | %.0f %% |\n", r.name, n, sum.Half/n, sum.Most/n, 100*sum.Below/n, 100*sum.Within/n, 100*sum.Near/n)
			}
		}
		fmt.Fprintln(b)
	}
}

const sidesText = `
## Who gains

Half of the jobs, drawn at random, have estimates or may be stopped. The first table has the average of each half, relative to the same jobs
when no job has estimates or may be stopped. For the second table, another run exchanges the halves. The table compares each job that
has an estimate with the same job without an estimate. Differences of up to one percent do not count.

`

// sidesTables compares users who estimate run times or allow stops with users who do not.
func sidesTables(b *bytes.Buffer, fs []felt) {
	fmt.Fprint(b, sidesText)
	by := map[string]felt{}
	for _, f := range fs {
		by[f.key()] = f
	}
	under := func(f felt, regime string) (felt, bool) {
		f.Regime = regime
		w, ok := by[f.key()]
		return w, ok
	}
	for i, p := range []part{chosen, reported} {
		fmt.Fprintf(b, "%s:\n\n| | cells | half with stops or estimates | other half | cells in which the first half gains less |\n|---|---|---|---|---|\n", halves[i])
		for _, r := range [][2]string{{stopHalf, sayNothing}, {honest, nameless}} {
			n, less, do, others := 0.0, 0, 0.0, 0.0
			for _, f := range fs {
				w, ok := under(f, r[1])
				if f.Part != p || f.Regime != r[0] || !ok {
					continue
				}
				n++
				d, o := math.Log(f.Half/w.Half), math.Log(f.Others/w.Others)
				if do, others = do+d, others+o; d > o+0.01 {
					less++
				}
			}
			if n > 0 {
				fmt.Fprintf(b, "| %s | %.0f | %.3f | %.3f | %d |\n", r[0], n, math.Exp(do/n), math.Exp(others/n), less)
			}
		}
		fmt.Fprintln(b)
	}
	for i, p := range []part{chosen, reported} {
		n, sum, worst, harmed := 0.0, 0.0, 0.0, 0
		for _, f := range fs {
			o, ok := under(f, honestOther)
			if f.Part != p || f.Regime != honest || !ok {
				continue
			}
			over := (f.Half + o.Others) / (f.Others + o.Half)
			n, sum, worst = n+1, sum+math.Log(over), max(worst, over)
			if over > 1.01 {
				harmed++
			}
		}
		if n > 0 {
			fmt.Fprintf(b, "%s:\n\n| | cells | average | worst cell | cells in which estimates do harm |\n|---|---|---|---|---|\n| each job, relative to itself | %.0f | %.3f | %.2f | %d |\n\n",
				halves[i], n, math.Exp(sum/n), worst, harmed)
		}
	}
}

const wideText = `
## Wide gangs at 60 % load

The table compares the worst wait of the widest gangs at 60 % load with their worst wait under EASY with users' guesses. Differences of a minute do not count.
A gang's wait is the sum of its waits before each start. If gangs may be stopped, the longest-waiting gang usually runs for days, is stopped many
times, and waits for a small part of its run time. Therefore the table also has the p95 slowdown relative to EASY.

`

// wideTables compares the worst wait of wide gangs with the worst wait under EASY.
func wideTables(b *bytes.Buffer, fs []felt) {
	b.WriteString(wideText)
	easy := map[string]felt{}
	for _, f := range fs {
		if f.Regime == "easy-users" && f.Load == 0.6 {
			easy[f.Trace] = f
		}
	}
	for i, p := range []part{chosen, reported} {
		fmt.Fprintf(b, "%s:\n\n| | cells | mean | worst cell | cells above 1.3 | p95 slowdown | average over EASY |\n|---|---|---|---|---|---|---|\n", halves[i])
		for _, r := range ownLines() {
			n, sum, slow, avg, worst, above := 0.0, 0.0, 0.0, 0.0, 0.0, 0
			for _, f := range fs {
				e, ok := easy[f.Trace]
				if !ok || f.Part != p || f.Regime != r.name || f.Load != 0.6 || r.baseline != "" {
					continue
				}
				over := (f.WideWorst + 60) / (e.WideWorst + 60)
				n, sum, slow, avg, worst = n+1, sum+math.Log(over), slow+math.Log(f.WideP95/e.WideP95), avg+math.Log(f.AvgJCT/e.AvgJCT), max(worst, over)
				if over > 1.3 {
					above++
				}
			}
			if n > 0 {
				fmt.Fprintf(b, "| %s | %.0f | %.2f | %.1f | %d | %.2f | %.3f |\n", r.name, n, math.Exp(sum/n), worst, above, math.Exp(slow/n), math.Exp(avg/n))
			}
		}
		fmt.Fprintln(b)
	}
}
