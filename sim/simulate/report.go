// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package simulate

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/sim"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// Report is the result of a simulation, as -json prints it. Times are in seconds.
type Report struct {
	Trace string `json:"trace"` // file or other source of the jobs
	// Skipped is the number of jobs that are left out, by reason.
	Skipped map[string]int `json:"skipped,omitempty"`
	// Notes is the number of jobs that are simulated differently from the trace, by difference.
	Notes map[string]int `json:"notes,omitempty"`
	// Warnings are reasons why the figures can be misleading.
	Warnings    []string `json:"warnings,omitempty"`
	Policy      string   `json:"policy"`                  // placement policy, or baseline
	Order       string   `json:"order"`                   // order of the queue; "" if the policy has no queue
	Seed        uint64   `json:"seed"`                    // seed of the random numbers
	Nodes       int      `json:"nodes"`                   // number of nodes
	GPUsPerNode int      `json:"gpus_per_node,omitempty"` // missing if the nodes come from a Nomad cluster
	GPUs        int      `json:"gpus"`                    // number of whole GPUs
	GPUModels   string   `json:"gpu_models,omitempty"`    // the GPU models, if the cluster has several
	// Locality has the locality penalty of each tier in use, for class A.
	Locality string `json:"locality"`

	// AvgJCT is the average completion time: from submission to finish. All times count only
	// finished jobs.
	AvgJCT      float64 `json:"avg_jct_s"`
	GeoJCT      float64 `json:"geomean_jct_s"` // geometric mean of completion times
	P50         float64 `json:"p50_jct_s"`     // median completion time
	P90         float64 `json:"p90_jct_s"`     // 90th percentile of completion times
	P99         float64 `json:"p99_jct_s"`     // 99th percentile of completion times
	MaxJCT      float64 `json:"max_jct_s"`     // longest completion time
	AvgWait     float64 `json:"avg_wait_s"`    // average of total waiting times
	Makespan    float64 `json:"makespan_s"`    // from first submission to last finish
	Utilization float64 `json:"utilization"`   // share of GPU time that gangs held
	// Useful is the GPU time that the completed work takes at slowdown 1, divided by all GPU time.
	// Lost work does not count.
	Useful     float64 `json:"useful_utilization"`
	Restarts   int     `json:"restarts"`          // starts after a job's first, without resizes; under plain Nomad, gangs that gave up
	Resizes    int     `json:"resizes,omitempty"` // changes of size of running elastic gangs
	LostGPUh   float64 `json:"gpu_hours_lost"`    // GPU hours that gangs held without keeping any work, for example because of a restart
	Unfinished int     `json:"unfinished"`        // jobs that never finish

	// Speed is what choosing GPUs by their speed is worth. It is missing unless the GPUs are your own
	// (-from-history, -profile), differ in speed, and the placement is pal.
	Speed *speedWorth `json:"speed,omitempty"`

	BySize  []row `json:"by_size"`     // finished jobs by number of GPUs
	ByTier  []row `json:"by_locality"` // finished jobs by tier of their last GPUs
	ByClass []row `json:"by_class"`    // finished jobs by application class
	// ByModel are finished jobs by the model of their last GPUs, if the cluster has several models.
	ByModel []row     `json:"by_gpu_model,omitempty"`
	Jobs    []jobLine `json:"jobs"` // the simulated jobs

	samples []sim.Sample
}

// row summarizes the jobs of one kind.
type row struct {
	Kind     string  `json:"kind"`       // what the jobs have in common, such as "2-4 GPUs"
	Jobs     int     `json:"jobs"`       // number of finished jobs
	AvgJCT   float64 `json:"avg_jct_s"`  // average completion time
	AvgWait  float64 `json:"avg_wait_s"` // average of the total waiting times
	P90Wait  float64 `json:"p90_wait_s"` // 90th percentile of the total waiting times
	Slowdown float64 `json:"slowdown"`   // time on GPUs divided by work
}

// jobLine is one simulated job; a time of -1 means never.
type jobLine struct {
	ID       string  `json:"id"`                  // the job's id in the trace
	Class    string  `json:"class"`               // application class
	GPUs     int     `json:"gpus"`                // GPUs that the job requests
	Submit   float64 `json:"submit_s"`            // submission, seconds since the trace began
	Start    float64 `json:"start_s"`             // first start, seconds since the trace began
	Finish   float64 `json:"finish_s"`            // end, seconds since the trace began
	JCT      float64 `json:"jct_s"`               // completion time: Finish − Submit
	Wait     float64 `json:"wait_s"`              // total waiting time, also after stops
	Slowdown float64 `json:"slowdown"`            // time on GPUs divided by work; 0: never finished
	Runs     int     `json:"runs,omitempty"`      // number of starts; under plain Nomad, number of tries
	Locality string  `json:"locality,omitempty"`  // tier of the job's last GPUs; missing: it never ran
	GPUModel string  `json:"gpu_model,omitempty"` // model of the job's last GPUs, if all have the same model
}

// most is the share of left-out jobs above which the report warns.
const most = 0.05

// leftOut returns a text that says how many jobs are left out, and why. played is the number of
// simulated jobs.
func leftOut(skipped map[string]int, played int) string {
	left := 0
	var texts []string
	for _, reason := range slices.Sorted(maps.Keys(skipped)) {
		left += skipped[reason]
		texts = append(texts, fmt.Sprintf("%d %s", skipped[reason], reason))
	}
	return fmt.Sprintf("%d of %s: %s", left, jobs(left+played), strings.Join(texts, ", "))
}

func jobs(n int) string {
	if n == 1 {
		return "1 job"
	}
	return fmt.Sprintf("%d jobs", n)
}

func newReport(o *options, t trace.Trace) *Report {
	r := &Report{Trace: t.Name, Skipped: t.Skipped(), Notes: t.Notes(), Policy: string(o.rules.Placement), Order: o.orderName(), Seed: o.seed,
		Nodes: o.nodes, GPUsPerNode: o.gpusPerNode, Locality: o.localityText(), GPUModels: o.fleet.String()}
	if o.fromHistory {
		r.GPUsPerNode = 0
	}
	left := len(t.LeftOut)
	all := left + len(t.Jobs)
	if float64(left) > most*float64(all) {
		r.Warnings = append(r.Warnings, fmt.Sprintf("%.1f %% of the jobs are left out: the figures cover the other jobs", 100*float64(left)/float64(all)))
	}
	return r
}

// fill computes the figures.
func (r *Report) fill(out sim.Outcome, c *pal.Cluster) {
	r.Nodes, r.GPUs = c.NumNodes(), c.NumGPUs()
	done := make([]sim.JobResult, 0, len(out.Jobs))
	for _, j := range out.Jobs {
		line := jobLine{ID: j.ID, Class: string(j.Class), GPUs: j.GPUs, Submit: j.Submit, Start: j.Start, Finish: j.Finish,
			JCT: -1, Wait: j.Wait, Runs: j.Runs, Locality: j.Tier.String(), GPUModel: j.Model}
		if j.Finish >= 0 {
			done = append(done, j)
			line.JCT, line.Slowdown = j.JCT(), j.Slowdown()
			r.AvgWait += j.Wait
		}
		r.Jobs = append(r.Jobs, line)
	}
	f := sim.FiguresOf(done)
	r.AvgJCT, r.GeoJCT = f.AvgJCT, f.GeoJCT
	r.P50, r.P90 = f.P50, f.P90
	r.P99, r.MaxJCT = f.P99, f.MaxJCT
	r.Makespan = f.Makespan
	r.AvgWait /= float64(max(1, len(done)))
	r.Utilization, r.Useful = out.Utilization, out.Useful
	r.Restarts, r.Resizes = out.Preemptions, out.Resizes
	r.LostGPUh, r.Unfinished = out.LostGPUh, out.Stuck
	r.BySize = group(done, sizeOf, "1 GPU", "2-4 GPUs", "5-8 GPUs", "more than 8 GPUs")
	r.ByTier = group(done, func(j sim.JobResult) string { return j.Tier.String() }, tiers()...)
	r.ByClass = group(done, func(j sim.JobResult) string { return string(j.Class) }, "A", "B", "C", "D")
	names := models(c)
	if len(names) > 1 {
		r.ByModel = group(done, func(j sim.JobResult) string { return j.Model }, names...)
	}
	r.samples = out.Samples
}

// models returns the cluster's GPU models.
func models(c *pal.Cluster) (names []string) {
	for g := range c.Groups() {
		_, name := c.Group(g)
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

func tiers() []string {
	var names []string
	for t := pal.TierIsland; t <= pal.TierCluster; t++ {
		names = append(names, t.String())
	}
	return names
}

// sizeOf returns the size class of a job, as in the Philly study.
func sizeOf(j sim.JobResult) string {
	switch {
	case j.GPUs == 1:
		return "1 GPU"
	case j.GPUs <= 4:
		return "2-4 GPUs"
	case j.GPUs <= 8:
		return "5-8 GPUs"
	}
	return "more than 8 GPUs"
}

// group summarizes the jobs by kind, in the order of kinds; it omits kinds without jobs.
func group(jobs []sim.JobResult, kind func(sim.JobResult) string, kinds ...string) []row {
	byKind := map[string][]sim.JobResult{}
	for _, j := range jobs {
		byKind[kind(j)] = append(byKind[kind(j)], j)
	}
	var rows []row
	for _, k := range kinds {
		js := byKind[k]
		if len(js) == 0 {
			continue
		}
		r := row{Kind: k, Jobs: len(js)}
		waits := make([]float64, 0, len(js))
		var sum sim.JobResult // sum of the times of all jobs
		for _, j := range js {
			r.AvgJCT += j.JCT() / float64(len(js))
			r.AvgWait += j.Wait / float64(len(js))
			waits = append(waits, j.Wait)
			sum.HeldS, sum.WorkS = sum.HeldS+j.HeldS, sum.WorkS+j.WorkS
		}
		slices.Sort(waits)
		r.P90Wait, r.Slowdown = waits[min(len(waits)-1, len(waits)*9/10)], sum.Slowdown()
		rows = append(rows, r)
	}
	return rows
}

func (r *Report) writeJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	if err := e.Encode(r); err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	return nil
}

// whyUnfinished says why jobs never finish. Jobs that are too large for the cluster were left out
// before.
func (r *Report) whyUnfinished() string {
	if p, ok := sim.PolicyOf(r.Policy); ok && p.Nomad != nil {
		return "hold GPUs and wait for each other"
	}
	return "need more than a limit of their tenant or the nodes allow"
}

func (r *Report) writeTable(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	order := ""
	if r.Order != "" {
		order = ", order " + r.Order
	}
	fmt.Fprintf(w, "%s, policy %s%s, %d GPUs on %d nodes, seed %d\n", r.Trace, r.Policy, order, r.GPUs, r.Nodes, r.Seed)
	if r.GPUModels != "" {
		fmt.Fprintf(w, "GPU models\t%s\n", r.GPUModels)
	}
	fmt.Fprintf(w, "jobs\t%d\n", len(r.Jobs))
	if len(r.Skipped) > 0 {
		fmt.Fprintf(w, "left out\t%s\n", leftOut(r.Skipped, len(r.Jobs)))
	}
	for _, note := range slices.Sorted(maps.Keys(r.Notes)) {
		fmt.Fprintf(w, "note\t%s: %s\n", jobs(r.Notes[note]), note)
	}
	for _, warning := range r.Warnings {
		fmt.Fprintf(w, "warning\t%s\n", warning)
	}
	if r.Unfinished > 0 {
		fmt.Fprintf(w, "never finished\t%d (they %s); the figures cover the other jobs\n", r.Unfinished, r.whyUnfinished())
	}
	fmt.Fprintf(w, "average JCT\t%.1f s\tgeometric mean\t%.1f s\n", r.AvgJCT, r.GeoJCT)
	fmt.Fprintf(w, "median, p90, p99, longest\t%.0f, %.0f, %.0f, %.0f s\n", r.P50, r.P90, r.P99, r.MaxJCT)
	fmt.Fprintf(w, "average wait\t%.1f s\tmakespan\t%.0f s\n", r.AvgWait, r.Makespan)
	fmt.Fprintf(w, "GPU time held\t%.1f %%\n", 100*r.Utilization)
	fmt.Fprintf(w, "useful\t%.1f %%\trestarts\t%d\tGPU hours lost\t%.1f\n", 100*r.Useful, r.Restarts, r.LostGPUh)
	if r.Speed != nil {
		fmt.Fprintf(w, "speed\t%s\n", r.Speed)
	}
	for _, rows := range [][]row{r.BySize, r.ByTier, r.ByClass, r.ByModel} {
		if len(rows) == 0 {
			continue
		}
		fmt.Fprintf(w, "\nkind\tjobs\tavg JCT s\tavg wait s\tp90 wait s\tslowdown\n")
		for _, x := range rows {
			fmt.Fprintf(w, "%s\t%d\t%.1f\t%.1f\t%.1f\t%.3f\n", x.Kind, x.Jobs, x.AvgJCT, x.AvgWait, x.P90Wait, x.Slowdown)
		}
	}
	return w.Flush()
}
