// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/nomad-pal/nomad-pal/bench/replay"
	"github.com/nomad-pal/nomad-pal/pal"
)

// stage prints the demo's progress and results.
type stage struct {
	out   io.Writer
	gpus  *replay.GPUs
	start time.Time
}

// progress prints a line with the time since the start. Several goroutines may call progress at
// once, because each line is one write.
func (s *stage) progress(line string) {
	fmt.Fprintf(s.out, "[%4.0f s] %s\n", time.Since(s.start).Seconds(), line)
}

func (s *stage) introduce(source string, o options, jobs []replay.Job) {
	fmt.Fprintf(s.out, "%d nodes × %d emulated GPUs, %s. Their speeds come from %s.\n", o.Nodes, gpusPerNode, s.models(), source)
	fmt.Fprintf(s.out, "GPUs by variability class (1 fastest … 5 slowest): %s\n", s.histogram())
	for _, u := range s.gpus.All {
		if u.Scores[0] >= 1.5 {
			fmt.Fprintf(s.out, "Node gpu-%02d has one GPU that takes %.2f times as long on compute-bound work.\n", u.Node, u.Scores[0])
		}
	}
	sizes := map[int]int{}
	for _, j := range jobs {
		sizes[j.GPUs()]++
	}
	fmt.Fprintf(s.out, "%d jobs of the Sia-Philly mix, jobs × GPUs: %s.\n", len(jobs), counts(sizes))
	fmt.Fprintf(s.out, "A gang is as fast as its slowest rank, and takes %.1f times as long on several nodes. If its ranks do not all start within %.0f s, they give up and start again.\n\n", penalty, giveUp.Seconds())
}

func (s *stage) histogram() string {
	var parts []string
	for _, c := range pal.AppClasses() {
		var n [6]int
		for _, u := range s.gpus.All {
			n[s.gpus.Class(u.ID, c)]++
		}
		parts = append(parts, fmt.Sprintf("%s %v", c, n[1:]))
	}
	return strings.Join(parts, "  ")
}

func counts(m map[int]int) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, fmt.Sprintf("%d×%d", m[k], k))
	}
	return strings.Join(parts, ", ")
}

// compare prints the last screen, for a terminal of 120 × 40: the outcome of each job, the sums, and
// how to go on.
func (s *stage) compare(plain, placed *replay.Result) error {
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\t\t\t│\tplain Nomad\t\t\t\t│\tnomad-pal\t\t\t")
	fmt.Fprintln(w, "JOB\tCLASS\tGPUS\t│\tNODES\tMODEL\tSLOWEST\tDONE AFTER\t│\tNODES\tMODEL\tSLOWEST\tDONE AFTER")
	for i, p := range plain.Jobs {
		fmt.Fprintf(w, "%s\t%s\t%d\t│\t%s\t│\t%s\n", p.ID, p.Class, p.GPUs(), s.outcome(p), s.outcome(placed.Jobs[i]))
	}
	fmt.Fprintln(w, "\t\t\t│\t\t\t\t\t│\t\t\t")
	a, b := s.sum(plain), s.sum(placed)
	for _, row := range []struct {
		name string
		of   func(sums) string
	}{
		{"average", func(f sums) string { return f.seconds(f.average) }},
		{"90th percentile", func(f sums) string { return f.seconds(f.p90) }},
		{"useful GPU time", func(f sums) string { return percent(f.useful) }},
		{"held in vain", func(f sums) string { return percent(f.vain) }},
	} {
		fmt.Fprintf(w, "%s\t\t\t│\t\t\t\t%s\t│\t\t\t\t%s\n", row.name, row.of(a), row.of(b))
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("printing the comparison: %w", err)
	}
	fmt.Fprintf(s.out, "\n%s\n%sGo on: make playground (a cluster to try nomad-pal on) · docs/tasks/try.md\n", headline(a, b), a.unfinished())
	return nil
}

// sums are the figures of a run over all of its jobs.
type sums struct {
	average, p90 time.Duration
	useful       float64 // work on median GPUs of one node, as a share of the GPU time of the run
	vain         float64 // share of the run's GPU time that half-placed gangs held
	late         int     // jobs that had not finished at the end of the run; they count as finished then
	jobs         int
	took         time.Duration
}

func (s *stage) sum(r *replay.Result) sums {
	all := r.AtLeast(len(s.gpus.All))
	f := sums{average: all.AvgJCT, p90: r.PercentileAtLeast(0.9), useful: all.Useful, vain: r.HeldShare(len(s.gpus.All)), took: r.Took}
	f.jobs, f.late = all.Jobs, all.Jobs-all.Finished
	return f
}

// seconds marks a time as a lower bound if jobs had not finished.
func (f sums) seconds(d time.Duration) string {
	if f.late > 0 {
		return "≥ " + seconds(d)
	}
	return seconds(d)
}

func (f sums) unfinished() string {
	if f.late == 0 {
		return ""
	}
	return fmt.Sprintf("Under plain Nomad, %d of %d jobs had not finished after %.0f s. They count as if they had finished then.\n", f.late, f.jobs, f.took.Seconds())
}

// headline says in one sentence what nomad-pal changed, for the better or worse.
func headline(plain, placed sums) string {
	ratio := plain.average.Seconds() / placed.average.Seconds()
	held := fmt.Sprintf("half-placed gangs held %s of GPU time, now %s", percent(plain.vain), percent(placed.vain))
	if ratio < 1 {
		return fmt.Sprintf("Under nomad-pal, jobs finish %.1f times later on average; %s.", 1/ratio, held)
	}
	atLeast := ""
	if plain.late > 0 {
		atLeast = "at least "
	}
	return fmt.Sprintf("Under nomad-pal, jobs finish %s%.1f times sooner on average; %s.", atLeast, ratio, held)
}

func percent(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) }

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// models returns a text with the number of GPUs of each model.
func (s *stage) models() string {
	var parts []string
	for _, model := range s.gpus.Models() {
		parts = append(parts, fmt.Sprintf("%d %s", s.gpus.Count(model), short(model)))
	}
	return strings.Join(parts, " and ")
}

// short returns a model's name without the vendor's brand and suffix.
func short(model string) string {
	model, _, _ = strings.Cut(model, "-")
	return strings.TrimPrefix(strings.TrimPrefix(model, "Tesla "), "Quadro ")
}

// outcome returns a job's columns: where it ran last, the PM score of its slowest GPU, and when it
// was done.
func (s *stage) outcome(j replay.JobResult) string {
	done := "not done"
	if !j.FinishedAt.IsZero() {
		done = seconds(j.JCT())
	}
	if len(j.GPUIDs) == 0 {
		return "-\t-\t-\t" + done
	}
	models, worst := map[string]bool{}, 0.0
	for _, ids := range j.GPUIDs {
		for _, id := range ids {
			models[short(s.gpus.Model(id))] = true
			worst = max(worst, s.gpus.Score(id, j.Class))
		}
	}
	model := slices.Sorted(maps.Keys(models))[0]
	if len(models) > 1 {
		model = "both"
	}
	return fmt.Sprintf("%d\t%s\t%.2f\t%s", len(j.GPUIDs), model, worst, done)
}
