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
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

const (
	// Base is how long a GPU is in quarantine after its first strike. Each further strike doubles
	// the time in quarantine.
	Base = 10 * time.Minute
	// Most is the longest quarantine that strikes can cause. A GPU loses one strike for each period
	// of length Most without a new strike.
	Most = 24 * time.Hour
	// CountsFor is how long a failure counts against a GPU.
	CountsFor = 24 * time.Hour

	// suspectFamilies is the number of families of similar jobs (see [Family]) that must fail in a
	// row on a GPU before the GPU is suspect. A success on the GPU restarts the count. If successes
	// did not count, the best GPUs would become suspect, because most jobs run on them.
	suspectFamilies = 3
	// oftener limits which failures count against a GPU. Failures of a namespace count only if its
	// jobs fail on this GPU more than oftener times as often as on their other GPUs.
	oftener = 3
	// capShare limits how many GPUs can be excluded because of job failures: at most 1/capShare of
	// the cluster's GPUs, and at most 1/capShare of the GPUs of each model.
	capShare = 8

	// sameTry is the maximum difference between the creation times of members in one attempt to
	// start a gang.
	sameTry = 2 * time.Second
)

// Cap returns how many of n GPUs can be excluded because of job failures: an eighth of the GPUs,
// but at least one. If there is only one GPU, it cannot be excluded.
func Cap(n int) int {
	if n < 2 {
		return 0
	}
	return max(1, n/capShare)
}

// QuarantinedGPUs returns the GPUs that are in quarantine now.
func QuarantinedGPUs(qs map[string]palapi.Quarantine, now time.Time) map[string]bool {
	out := map[string]bool{}
	for id, q := range qs {
		if now.Before(q.Until) {
			out[id] = true
		}
	}
	return out
}

// Strike is one reason to put a GPU in quarantine.
type Strike struct {
	GPU, Reason string
	ByJobs      bool
}

// Struck returns a GPU's quarantine after one more strike.
func Struck(q palapi.Quarantine, s Strike, now time.Time) palapi.Quarantine {
	if now.Before(q.Until) {
		return q // the same incident, because no job was placed on the GPU since
	}
	if !q.Last.IsZero() {
		q.Strikes = max(0, q.Strikes-int(now.Sub(q.Last)/Most))
	}
	q.Strikes++
	q.Last = now.UTC()
	q.Reason = s.Reason
	q.ByJobs = s.ByJobs
	q.Operator = false
	q.Until = now.Add(min(Base<<min(q.Strikes-1, 10), Most)).UTC()
	return q
}

// Evidence is the information that [Evidence.Judge] needs to judge a failure.
type Evidence struct {
	// Failures contains the remembered failures, including the failure that is judged.
	Failures []palapi.Failure
	// Successes contains the allocations that succeeded.
	Successes []cluster.Success
	// Models maps the ids of the cluster's GPUs to their models.
	Models map[string]string
	// Quarantine holds the current quarantines, by GPU id.
	Quarantine map[string]palapi.Quarantine
}

// Judge returns a strike for each GPU against which the failure counts. spared holds the strikes
// that do not count because the limit of [Cap] is reached.
//
// A GPU that the machine reports as unhealthy gets a strike at once. A GPU that a task driver names
// in an error message also gets a strike, within the limit of [Cap]. If the cause is unknown, a
// node went down, a download failed, or a hook failed for another reason, no GPU gets a strike.
//
// If a program failed, or a driver failed and named no GPU, Judge counts the families of similar
// jobs that have failed in a row on each GPU of the allocation. A GPU on which [suspectFamilies]
// families have failed in a row gets a strike. Not every failure counts:
//
//   - A family is the jobs of one namespace whose names differ only in numbers, or that come from
//     one template. A family counts only if it failed on no other GPU, because jobs that also fail
//     on other GPUs have a fault of their own.
//   - A namespace's families count only if its jobs fail on this GPU more than [oftener] times as
//     often as on the other GPUs that it used. So if jobs with different names make the same
//     mistake, they count against no GPU. The jobs of a namespace that used no other GPU do not
//     count, either.
func (e Evidence) Judge(f palapi.Failure, now time.Time) (strikes, spared []Strike) {
	why := f.Reason
	// Users of all namespaces can read the quarantine, so its reason must not contain a message that
	// names a task.
	switch {
	case f.Named:
		why = "a task driver named this GPU in an error message"
	case f.OfTask:
		why = "the device plugin refused to give this GPU to a task, because the GPU is unhealthy"
	}
	for _, id := range f.Unhealthy {
		strikes = append(strikes, Strike{GPU: id, Reason: why, ByJobs: f.Named})
	}
	if unclear(f) {
		tries := e.tries(now)
		for _, id := range attr.GPUsOf(f.GPUs) {
			n := e.against(id, tries, now)
			if n >= suspectFamilies {
				reason := fmt.Sprintf("jobs with %d different names failed on this GPU in a row, but do not fail on other GPUs", n)
				strikes = append(strikes, Strike{GPU: id, Reason: reason, ByJobs: true})
			}
		}
	}
	return e.withinCap(strikes, now)
}

// withinCap separates the strikes that the limit of [Cap] allows from the other strikes.
func (e Evidence) withinCap(strikes []Strike, now time.Time) (kept, spared []Strike) {
	outside := map[string]int{} // by model; "" is all models
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

// unclear reports whether the GPUs may have caused the failure, although the job appears to be at
// fault.
func unclear(f palapi.Failure) bool { return f.Cause == palapi.CauseUser || f.Driver }

// try is one failed attempt to run a job. The attempt includes all members of the gang that failed.
type try struct {
	namespace, family, job string
	placed, at             time.Time
	gpus                   map[string]bool
}

// tries returns the attempts that failed within CountsFor and whose cause is unclear.
func (e Evidence) tries(now time.Time) []*try {
	var out []*try
	for i := range e.Failures {
		f := &e.Failures[i]
		if !unclear(*f) || now.Sub(f.At) > CountsFor {
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
		t := out[k]
		if f.At.After(t.at) {
			t.at = f.At
		}
		for _, id := range attr.GPUsOf(f.GPUs) {
			out[k].gpus[id] = true
		}
	}
	return out
}

// against returns the number of families whose failures count against a GPU.
func (e Evidence) against(gpu string, tries []*try, now time.Time) int {
	since := e.Quarantine[gpu].Lifted
	used := map[string]map[string]bool{} // by namespace: the GPUs except gpu that its jobs used
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
	here, elsewhere := map[string]map[string]bool{}, map[string]map[string]bool{} // by namespace: families
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

// ofTemplate matches the end of the name of a job that Nomad made from a template. numbers matches
// the parts of a name in which similar jobs differ.
var (
	ofTemplate = regexp.MustCompile(`/(dispatch|periodic)-[^/]*$`)
	numbers    = regexp.MustCompile(`[0-9a-fA-F]*[0-9][0-9a-fA-F]*`)
)

// Family returns the name that similar jobs share: the name of their template, or the job's name
// without its numbers.
func Family(job string) string {
	template := ofTemplate.ReplaceAllString(job, "")
	if template != job {
		return template
	}
	return strings.ToLower(numbers.ReplaceAllString(job, "#"))
}
