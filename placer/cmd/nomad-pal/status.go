// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
)

var helpStatus = help("status [options]", `
Shows how many GPUs exist, and how many of them are free. Then it shows what each tenant
holds and has used. Last, it lists every job with GPUs that has not ended, and why a job waits.
With -namespace, it lists only the jobs of that namespace.

Active maintenance windows and reservations are shown with the GPUs that they keep. If the
agent keeps a history, status compares the run times of the same jobs on slow GPUs (class 4 or
slower) and on fast ones (class 1). It needs ten runs of either kind in 90 days. An array (a
parameterized job and its runs) has one line, as in queue. On a narrow terminal, some columns
are left out; -json has all.

Status Options:

  -all                     Print one line for each run of an array; -json always does.
  -mine                    Only your jobs: those whose meta pal_user is NOMAD_PAL_USER, by
                           default the name of your ACL token, or without ACLs your login.
`, examples(
	"How full is the cluster, and what do my jobs do?", "nomad-pal status -namespace research",
	"How many GPUs are free?", "nomad-pal status -json | jq .free",
), exitCodes, outputOptions, generalOptions)

// overview is the JSON object that `nomad-pal status -json` prints.
type overview struct {
	gpuCounts
	// Windows counts, for each active window, the GPUs that the window reserves. A key is the
	// window's name with its end.
	Windows  map[string]int  `json:"windows,omitempty"`
	Warnings []string        `json:"warnings,omitempty"` // warnings for operators; other users do not see them
	Placer   palapi.Activity `json:"placer"`             // whether a placer is active
	// Tenants are the tenants whose namespaces have jobs or have used GPUs, and are visible to the
	// token. A namespace without a tenant counts as a tenant.
	Tenants []queue.TenantUse `json:"tenants,omitempty"`
	// Speed compares run times of the same jobs on fast and on slow GPUs, over 90 days. It is missing
	// if the agent keeps no history.
	Speed *palapi.Speed `json:"speed,omitempty"`
	// Jobs are the jobs with GPUs that have not ended; queued jobs come first.
	Jobs []palapi.JobStatus `json:"jobs"`
	all  []palapi.JobStatus // Jobs, and the jobs that the options filter out
}

// gpuCounts counts GPUs by state. Each GPU counts once. Unhealthy and quarantined GPUs do not count
// as allocated, even if a job holds them.
type gpuCounts struct {
	GPUs        int `json:"gpus"`        // all GPUs; each part of a shared GPU counts as one
	Allocated   int `json:"allocated"`   // allocated to jobs or promised to them
	Free        int `json:"free"`        // neither allocated nor out of use; windows can reserve some of these GPUs
	Unhealthy   int `json:"unhealthy"`   // unhealthy, whether allocated or not
	Quarantined int `json:"quarantined"` // healthy, but in quarantine, whether allocated or not
	// Unavailable GPUs are allocated to no job, but cannot be used now: their node accepts no jobs or
	// has just come back, or tasks of a purged job may still run on them.
	Unavailable int `json:"unavailable"`
	// parts is the number of counted GPUs that are parts of shared GPUs; shared is the number of
	// these shared GPUs. A MIG instance counts as a GPU.
	parts, shared int
}

func countGPUs(gpus []palapi.GPU) (n gpuCounts) {
	n.GPUs = len(gpus)
	shared := map[string]bool{}
	for _, g := range gpus {
		gpu := attr.GPUOf(g.ID)
		if gpu != g.ID {
			n.parts++
			shared[gpu] = true
		}
		switch g.State {
		case palapi.GPUAllocated:
			n.Allocated++
		case palapi.GPUFree:
			n.Free++
		case palapi.GPUUnhealthy:
			n.Unhealthy++
		case palapi.GPUQuarantined:
			n.Quarantined++
		case palapi.GPUUnavailable:
			n.Unavailable++
		}
	}
	n.shared = len(shared)
	return n
}

// keptByWindows counts the GPUs that each active window reserves.
func keptByWindows(gpus []palapi.GPU) map[string]int {
	n := map[string]int{}
	for _, g := range gpus {
		if g.Window != "" {
			n[g.Window]++
		}
	}
	return n
}

func (n gpuCounts) String() string {
	text := fmt.Sprintf("%d allocated, %d free", n.Allocated, n.Free)
	for _, c := range []struct {
		n    int
		what string
	}{{n.Unhealthy, "unhealthy"}, {n.Quarantined, "quarantined"}, {n.Unavailable, "unavailable"}} {
		if c.n > 0 {
			text += fmt.Sprintf(", %d %s", c.n, c.what)
		}
	}
	if n.parts > 0 {
		text += fmt.Sprintf("; %d of these are parts of %s", n.parts, pal.CountGPUs(n.shared))
	}
	return text
}

func runStatus(b *base, args []string) int {
	fs := b.flags("status")
	elements := fs.Bool("all", false, "")
	mine := fs.Bool("mine", false, "")
	if _, ok := b.parse(fs, args, 0); !ok {
		return 1
	}
	s, err := b.ask()
	if err != nil {
		return b.fail(err)
	}
	o, gpus := overview{Warnings: s.Warnings(), Placer: s.activity}, []palapi.GPU(nil)
	all, shown, err := jobs(b, s, *mine)
	o.Jobs = slices.Clone(shown)
	if err == nil {
		gpus, err = s.GPUs()
	}
	if err == nil {
		o.Tenants, err = s.Tenants()
	}
	if err != nil {
		return b.fail(err)
	}
	if b.given("namespace") && b.namespace != "*" {
		o.Jobs = slices.DeleteFunc(o.Jobs, func(j palapi.JobStatus) bool { return j.Namespace != b.namespace })
		if len(o.Jobs) == 0 {
			err = b.noNamespace(s.nomad, b.namespace)
		}
	}
	if err != nil {
		return b.fail(err)
	}
	o.Speed = speedOf(s, time.Now())
	slices.SortStableFunc(o.Jobs, byPosition)
	o.all = all
	o.gpuCounts = countGPUs(gpus)
	o.Windows = keptByWindows(gpus)
	return s.close(b.show(o, func() { printStatus(b, o, *elements) }))
}

// measuredDays is for how many days status compares run times.
const measuredDays = 90

// speedOf asks the agent how much slower the same jobs run on slow GPUs. It returns nil if the agent
// keeps no history, or cannot read it now: status is useful without it.
func speedOf(s *answers, now time.Time) *palapi.Speed {
	var speed palapi.Speed
	q := url.Values{"since": {now.AddDate(0, 0, -measuredDays).UTC().Format(time.RFC3339)}}
	if err := s.get("/v1/speed", q, &speed); err != nil {
		return nil
	}
	return &speed
}

// speedSentence describes a comparison of enough runs.
func speedSentence(s palapi.Speed) string {
	return fmt.Sprintf("the same jobs took %.1f %% (%.1f to %.1f %%) longer with a GPU of class 4 or slower (%d runs) than on GPUs of class 1 (%d runs)",
		100**s.Slower, 100**s.Low, 100**s.High, s.SlowRuns, s.FastRuns)
}

func printStatus(b *base, o overview, elements bool) {
	rows := []string{row("GPUs", fmt.Sprintf("%d: %s", o.GPUs, o.gpuCounts)), row("Agent", workSentence(o.Placer, time.Now()))}
	for _, w := range slices.Sorted(maps.Keys(o.Windows)) {
		rows = append(rows, row("Window", w+": "+pal.CountGPUs(o.Windows[w])))
	}
	for _, w := range o.Warnings {
		rows = append(rows, row("Warning", oneLine(w)))
	}
	if o.Speed != nil && o.Speed.Slower != nil {
		rows = append(rows, row("Speed", speedSentence(*o.Speed)))
	}
	b.io.pairs(rows)
	printTenants(b, o.Tenants)
	if len(o.Jobs) == 0 {
		b.io.printf("\nNo jobs with GPUs%s.\n", map[bool]string{true: fmt.Sprintf(" match these options; %d others do not match", len(o.all))}[len(o.all) > 0])
		return
	}
	b.io.printf("\n")
	if !elements {
		o.Jobs = palapi.ByArray(o.Jobs, o.all)
	}
	b.printJobs(o.Jobs, time.Now())
	if slices.ContainsFunc(o.Jobs, func(j palapi.JobStatus) bool { return j.State == palapi.Running && j.EndTo.IsZero() }) {
		b.io.write("\n")
		b.io.say(plain, "These running jobs have no expected end: services, jobs without pal_duration or earlier runs, and jobs that are late.")
	}
}
