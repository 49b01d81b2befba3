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
	fmt.Fprintf(s.out, "%d nodes × %d emulated GPUs, %s; the speeds of the GPUs come from %s.\n", o.Nodes, gpusPerNode, s.models(), source)
	var worst []string
	for _, u := range s.gpus.All {
		if u.Scores[0] >= 1.5 {
			worst = append(worst, fmt.Sprintf("node gpu-%02d has one GPU that takes %.2f× as long on compute-bound work", u.Node, u.Scores[0]))
		}
	}
	fmt.Fprintf(s.out, "GPUs by variability class (1 fastest … 5 slowest): %s\n", s.histogram())
	for _, w := range worst {
		fmt.Fprintln(s.out, " ", w)
	}
	sizes := map[int]int{}
	for _, j := range jobs {
		sizes[j.GPUs()]++
	}
	fmt.Fprintf(s.out, "%d jobs of the Sia-Philly mix, GPUs: %s. Every gang is as fast as its slowest rank, takes %.1f times as long on several nodes, and gives up if its ranks do not all start within 20 s.\n\n", len(jobs), counts(sizes), penalty)
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

func (s *stage) compare(plain, placed *replay.Result) {
	fmt.Fprintf(s.out, "\n%-14s %4s │ %-38s │ %s\n", "", "", "plain Nomad (bin packing)", "nomad-pal (pal)")
	w := tabwriter.NewWriter(s.out, 2, 0, 2, ' ', 0)
	fmt.Fprintln(w, "JOB\tCLASS\tGPUS\t│\tNODES\tMODEL\tGPU CLASSES\tSLOWEST\tGAVE UP\tRUN\tDONE AFTER\t│\tNODES\tMODEL\tGPU CLASSES\tSLOWEST\tPREDICTED\tRUN\tDONE AFTER")
	for i := range plain.Jobs {
		p, q := plain.Jobs[i], placed.Jobs[i]
		fmt.Fprintf(w, "%s\t%s\t%d\t│\t%s\t%d\t%s\t%s\t│\t%s\t%s\t%s\t%s\n", p.ID, p.Class, p.GPUs(),
			s.where(p), p.GaveUp, seconds(p.RunTime), completion(p),
			s.where(q), seconds(time.Duration(q.Predicted*float64(q.Work()))), seconds(q.RunTime), completion(q))
	}
	w.Flush()
	n := len(s.gpus.All)
	fmt.Fprintln(s.out)
	for _, r := range []*replay.Result{plain, placed} {
		sum := r.Summarize(n)
		fmt.Fprintf(s.out, "%-12s %d of %d jobs finished; completion time average %s, geomean %s; makespan %s; useful GPU time %.0f %%; gangs were incomplete for %s in total; for %s of this time, no gang ran at all.\n",
			r.Mode+":", sum.Finished, sum.Jobs, seconds(sum.AvgJCT), seconds(sum.GeomeanJCT), seconds(sum.Makespan), 100*sum.Useful, seconds(r.HalfPlaced), seconds(r.Deadlocked))
	}
	if plain.Bounded {
		fmt.Fprintln(s.out, "The time limit ended the run of plain Nomad, so its averages include only the jobs that finished.")
	}
	s.choice(placed)
}

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

// modelOf returns the GPU model on which a job ran; "both" if the job ran on two models, as can
// happen under plain Nomad.
func (s *stage) modelOf(j replay.JobResult) (model string) {
	for _, ids := range j.GPUIDs {
		for _, id := range ids {
			if of := short(s.gpus.Model(id)); model == "" || model == of {
				model = of
			} else {
				return "both"
			}
		}
	}
	return model
}

// choice prints the GPU model on which the gangs of each class ran, and why.
func (s *stage) choice(r *replay.Result) {
	models := s.gpus.Models()
	if len(models) != 2 {
		return
	}
	first, second := short(models[0]), short(models[1])
	ran, others, left := map[pal.AppClass]map[string]int{}, 0, 0
	for _, j := range r.Jobs {
		if ran[j.Class] == nil {
			ran[j.Class] = map[string]int{}
		}
		on := s.modelOf(j)
		ran[j.Class][on]++
		if on == second {
			others++
			if j.LeftFaster {
				left++
			}
		}
	}
	var parts []string
	for _, c := range slices.Sorted(maps.Keys(ran)) {
		parts = append(parts, fmt.Sprintf("class %s (%.2f × as fast on the %s): %d on %s, %d on %s", c, s.gpus.SpeedOf(models[1], c), second, ran[c][first], first, ran[c][second], second))
	}
	fmt.Fprintf(s.out, "Number of gangs on each GPU model under nomad-pal: %s. Of the %d gangs on %s, %d left free %ss to gangs that gain more from this model or fit on no other model. For the other gangs, too few were free, and waiting would have taken longer.\n",
		strings.Join(parts, "; "), others, second, left, first)
}

func (s *stage) where(j replay.JobResult) string {
	if len(j.GPUIDs) == 0 {
		return "-\t-\t-\t-"
	}
	byClass := map[int]int{}
	worst := 0.0
	for _, ids := range j.GPUIDs {
		for _, id := range ids {
			byClass[s.gpus.Class(id, j.Class)]++
			worst = max(worst, s.gpus.Score(id, j.Class))
		}
	}
	var parts []string
	for c := 1; c <= 5; c++ {
		if byClass[c] > 0 {
			parts = append(parts, fmt.Sprintf("%d:%d", c, byClass[c]))
		}
	}
	return fmt.Sprintf("%d\t%s\t%s\t%.2f", len(j.GPUIDs), s.modelOf(j), strings.Join(parts, " "), worst)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

func completion(j replay.JobResult) string {
	if j.FinishedAt.IsZero() {
		return "not finished"
	}
	return seconds(j.JCT())
}

// verify checks that each gang ran on exactly the GPUs that `nomad-pal explain` named.
func (s *stage) verify(r *replay.Result) error {
	checked := 0
	for _, j := range r.Jobs {
		if j.FinishedAt.IsZero() {
			return fmt.Errorf("job %q did not finish under the placer", j.ID)
		}
		if !slices.Equal(j.Allocated, j.Explained) || len(j.Allocated) != j.GPUs() {
			return fmt.Errorf("%w: job %q ran on %v, but explain showed %v", errMismatch, j.ID, j.Allocated, j.Explained)
		}
		checked += len(j.Allocated)
	}
	fmt.Fprintf(s.out, "Checked: all %d gangs ran on exactly the %d GPUs that `explain` shows.\n", len(r.Jobs), checked)
	return nil
}
