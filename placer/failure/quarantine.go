// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package failure

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

// Quarantine keeps a GPU out of new placements for a while.
type Quarantine struct {
	Until   time.Time `json:"until"`
	Strikes int       `json:"strikes"`
	Last    time.Time `json:"last"`
	Reason  string    `json:"reason"`
	// ByJobs: by the word of jobs, not of the machine. See [Cap].
	ByJobs bool `json:"by_jobs,omitempty"`
	// Operator: an operator put it there. His reason is for everybody who may see the GPU.
	Operator bool `json:"operator,omitempty"`
	// Lifted is the time when an operator last released the GPU: failures before that no
	// longer count against it.
	Lifted time.Time `json:"lifted,omitzero"`
}

const (
	// Base is how long the first strike keeps a GPU out; each further one doubles that.
	Base = 10 * time.Minute
	// Most is how long strikes keep a GPU out at most; as long without one takes one off.
	Most = 24 * time.Hour
	// CountsFor is how long a failure counts against a GPU.
	CountsFor = 24 * time.Hour

	// suspectFamilies different families of jobs that fail in a row on one GPU by
	// their own fault, as it seems, make the GPU the suspect. In a row: the best
	// GPUs are chosen most and so see most failures, but successes between them.
	suspectFamilies = 3
	// oftener is how many times as often as on its other GPUs a namespace's work
	// must fail on a GPU to count against it.
	oftener = 3
	// capShare of the cluster's GPUs, and of each model's, can be kept out by the
	// word of jobs.
	capShare = 8
	// Longest is how long an operator keeps a GPU out who does not say how long: until he lifts it.
	Longest = 100 * 365 * 24 * time.Hour

	// sameTry is how far apart the members of one gang are made.
	sameTry = 2 * time.Second
)

// Cap is how many of n GPUs the word of jobs can keep out: an eighth, but one of
// fewer than that, and none of a single one.
func Cap(n int) int {
	if n < 2 {
		return 0
	}
	return max(1, n/capShare)
}

// QuarantinedGPUs are the GPUs that are kept out now.
func QuarantinedGPUs(qs map[string]Quarantine, now time.Time) map[string]bool {
	out := map[string]bool{}
	for id, q := range qs {
		if now.Before(q.Until) {
			out[id] = true
		}
	}
	return out
}

// Ahead reports whether the quarantine was begun or lifted by a clock that was ahead of now.
func (q Quarantine) Ahead(now time.Time) bool { return q.Last.After(now) || q.Lifted.After(now) }

// NotAhead is the quarantine with what a clock ahead of now wrote moved back to now.
func (q Quarantine) NotAhead(now time.Time) Quarantine {
	if ahead := q.Last.Sub(now); ahead > 0 {
		q.Last, q.Until = q.Last.Add(-ahead), q.Until.Add(-ahead)
	}
	if q.Lifted.After(now) {
		q.Lifted = now
	}
	return q
}

// Endless reports whether the GPU is kept out until an operator gives it free.
func (q Quarantine) Endless() bool { return !q.Last.IsZero() && q.Until.Sub(q.Last) >= Longest/2 }

// Strike is one reason to keep a GPU out.
type Strike struct {
	GPU, Reason string
	ByJobs      bool
}

// Struck is the quarantine of a GPU after a strike.
func (q Quarantine) Struck(s Strike, now time.Time) Quarantine {
	if now.Before(q.Until) {
		return q // of the same trouble: since, nothing was placed on it
	}
	if !q.Last.IsZero() {
		q.Strikes = max(0, q.Strikes-int(now.Sub(q.Last)/Most))
	}
	q.Strikes++
	q.Last, q.Reason, q.ByJobs, q.Operator = now.UTC(), s.Reason, s.ByJobs, false
	q.Until = now.Add(min(Base<<min(q.Strikes-1, 10), Most)).UTC()
	return q
}

// Evidence is what is known when a failure is judged.
type Evidence struct {
	// Failures are those that are remembered, the one to be judged among them.
	Failures []Failure
	// Successes are the allocations that did their work.
	Successes []cluster.Success
	// Models are the cluster's GPUs, id to model.
	Models map[string]string
	// Quarantine is what is in force.
	Quarantine map[string]Quarantine
}

// Judge reports which GPUs a failure is a strike against, and which it would be but
// that enough are kept out by the word of jobs already (spared).
//
// A GPU that the machine calls unhealthy is struck at once, as is one that a task
// driver names, within the [Cap]. A node that went down, a download or a hook that
// failed is no fault of its GPUs. What else fails, or cannot be started, is a strike
// against a GPU once [suspectFamilies] families of jobs have failed on it in a row
// that count:
//
//   - A family is the jobs of one namespace whose names differ in numbers only, or
//     that one template made. It counts if it failed nowhere else: what fails
//     elsewhere too is its author's.
//   - A namespace's families count only if its work fails on this GPU more than
//     [oftener] times as often as on the other GPUs that it used. So a sweep of jobs
//     with names of their own and one mistake counts against no GPU, and neither
//     does a namespace that used no other.
func (e Evidence) Judge(f Failure, now time.Time) (strikes, spared []Strike) {
	for _, id := range f.Unhealthy {
		strikes = append(strikes, Strike{GPU: id, Reason: f.Reason, ByJobs: f.Named})
	}
	if f.unclear() {
		tries := e.tries(now)
		for _, id := range attr.GPUsOf(f.GPUs) {
			if n := e.against(id, tries, now); n >= suspectFamilies {
				reason := fmt.Sprintf("quarantine for failing jobs: jobs of %d different names failed on it in a row, and do not fail elsewhere", n)
				strikes = append(strikes, Strike{GPU: id, Reason: reason, ByJobs: true})
			}
		}
	}
	return e.withinCap(strikes, now)
}

// withinCap parts the strikes that there is room for from those that there is not.
func (e Evidence) withinCap(strikes []Strike, now time.Time) (kept, spared []Strike) {
	outside := map[string]int{} // by model; "" all
	for id := range QuarantinedGPUs(e.Quarantine, now) {
		if e.Quarantine[id].ByJobs {
			outside[""]++
			outside[e.Models[id]]++
		}
	}
	size := map[string]int{"": len(e.Models)}
	for _, model := range e.Models {
		size[model]++
	}
	for _, s := range strikes {
		model, out := e.Models[s.GPU], now.Before(e.Quarantine[s.GPU].Until)
		switch {
		case !s.ByJobs || out:
			kept = append(kept, s)
		case outside[""] < Cap(size[""]) && outside[model] < Cap(size[model]):
			outside[""]++
			outside[model]++
			kept = append(kept, s)
		default:
			spared = append(spared, s)
		}
	}
	return kept, spared
}

// unclear reports whether the job's own fault, as it seems, may be that of its GPUs.
func (f *Failure) unclear() bool { return f.Cause == User || f.Driver }

// try is one attempt of a job that failed: for a gang, all members that failed.
type try struct {
	namespace, family, job string
	placed, at             time.Time
	gpus                   map[string]bool
}

// tries are the attempts that failed within the window and not clearly by another's
// fault.
func (e Evidence) tries(now time.Time) []*try {
	var out []*try
	for i := range e.Failures {
		f := &e.Failures[i]
		if !f.unclear() || now.Sub(f.At) > CountsFor {
			continue
		}
		placed := f.Placed
		if placed.IsZero() {
			placed = f.At
		}
		k := slices.IndexFunc(out, func(t *try) bool {
			return t.namespace == f.Namespace && t.job == f.Job && t.placed.Sub(placed).Abs() <= sameTry
		})
		if k < 0 {
			k = len(out)
			out = append(out, &try{namespace: f.Namespace, family: Family(f.Job), job: f.Job, placed: placed, gpus: map[string]bool{}})
		}
		if t := out[k]; f.At.After(t.at) {
			t.at = f.At
		}
		for _, id := range attr.GPUsOf(f.GPUs) {
			out[k].gpus[id] = true
		}
	}
	return out
}

// against counts the families that count against a GPU.
func (e Evidence) against(gpu string, tries []*try, now time.Time) int {
	since := e.Quarantine[gpu].Lifted
	used := map[string]map[string]bool{} // other GPUs, by namespace
	use := func(namespace, id string) {
		if used[namespace] == nil {
			used[namespace] = map[string]bool{}
		}
		if id != gpu {
			used[namespace][id] = true
		}
	}
	for _, s := range e.Successes {
		for _, id := range s.GPUs {
			if id == gpu && s.At.After(since) {
				since = s.At
			}
			if now.Sub(s.At) <= CountsFor {
				use(s.Job.Namespace, id)
			}
		}
	}
	here, elsewhere := map[string]map[string]bool{}, map[string]map[string]bool{} // families, by namespace
	for _, t := range tries {
		to := elsewhere
		if t.gpus[gpu] {
			to = here
		}
		for id := range t.gpus {
			use(t.namespace, id)
		}
		if t.gpus[gpu] && t.at.Before(since) {
			continue
		}
		if to[t.namespace] == nil {
			to[t.namespace] = map[string]bool{}
		}
		to[t.namespace][t.family] = true
	}
	n := 0
	for namespace, families := range here {
		failing := len(elsewhere[namespace])
		maps.DeleteFunc(families, func(family string, _ bool) bool { return elsewhere[namespace][family] })
		if len(families)*len(used[namespace]) > oftener*(failing+1) {
			n += len(families)
		}
	}
	return n
}

// Nomad's own names for the jobs that a template makes, and the parts of a name
// that tell the jobs of a sweep apart.
var (
	ofTemplate = regexp.MustCompile(`/(dispatch|periodic)-[^/]*$`)
	numbers    = regexp.MustCompile(`[0-9a-fA-F]*[0-9][0-9a-fA-F]*`)
)

// Family is what the names of jobs have in common that one author made at a time:
// the template's name, or the name without its numbers.
func Family(job string) string {
	if template := ofTemplate.ReplaceAllString(job, ""); template != job {
		return template
	}
	return strings.ToLower(numbers.ReplaceAllString(job, "#"))
}
