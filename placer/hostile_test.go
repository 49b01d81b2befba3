// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/internal/race"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/hostile"
	"github.com/nomad-pal/nomad-pal/placer/query"
)

// Each hostile job alone, and all of them together, run beside an honest job. The honest job
// starts, nothing panics, and the placer answers every query about each job.
func TestHostileJobs(t *testing.T) {
	sets := map[string][]hostile.Job{"all of them": hostile.Jobs(1)}
	for _, j := range hostile.Jobs(1) {
		sets[j.Name] = []hostile.Job{j}
	}
	for name, jobs := range sets {
		t.Run(name, func(t *testing.T) {
			if race.Enabled && len(jobs) == 1 {
				t.Skip(race.Sampled) // one goroutine
			}
			s, prof, err := benchState(8, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, j := range jobs {
				s.PutJob(j.Job)
			}
			honest := hostile.Plain("honest", 2, 4, 1000)
			s.PutJob(honest)
			p := newPlacer(t)
			p.m.Profile = prof
			now := time.Now()
			as := pass(t, p, s, now)
			if !startsJob(as, cluster.KeyOf(honest)) {
				t.Errorf("the honest job does not start: %v", as)
			}
			for _, a := range as {
				if n := len(a.Found.GPUs()); n == 0 || n > 32 {
					t.Errorf("%s starts on %d GPUs", a.Job, n)
				}
			}
			p.publish(now)
			answers(t, p, now, jobs)
			if path := os.Getenv("PAL_HOSTILE_REPORT"); path != "" && len(jobs) > 1 {
				page, rows := hostileReport(p, as, jobs)
				writeReport(t, path, page, rows)
			}
		})
	}
}

// writeReport writes a page of the docs, and its table as a CSV file beside it.
func writeReport(t *testing.T, path, page string, rows [][]string) {
	t.Helper()
	var table bytes.Buffer
	if err := csv.NewWriter(&table).WriteAll(rows); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{path: page, strings.TrimSuffix(path, ".md") + ".csv": table.String()} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// hostileReport returns a page of the docs, and a row for each job: what the placer does with it,
// and why.
func hostileReport(p *Placer, as []queue.Action, jobs []hostile.Job) (page string, rows [][]string) {
	status := map[string]palapi.JobStatus{}
	for _, j := range p.Status().Jobs {
		status[j.Job] = j
	}
	rows = [][]string{{"the job has", "it is", "because"}}
	states := map[string]int{}
	for _, j := range jobs {
		k := cluster.KeyOf(j.Job)
		state, why := "left to Nomad", "it requests no GPUs"
		if s, ok := status[k.ID]; ok {
			state, why = string(s.State), s.Reason.String()
		}
		if startsJob(as, k) {
			state, why = "started", "it asks for GPUs that exist"
		}
		if len(why) > 200 {
			why = strings.ToValidUTF8(why[:200], "") + "…"
		}
		states[state]++
		rows = append(rows, []string{cell(j.Name), state, cell(why)})
	}
	var counts []string
	for _, state := range slices.Sorted(maps.Keys(states)) {
		counts = append(counts, fmt.Sprintf("%s %d", state, states[state]))
	}
	return fmt.Sprintf(`# What hostile jobs do to the placer

Written by `+"`make faults`"+`. The %d absurd jobs of `+"`placer/nomadtest/hostile`"+`, all of which Nomad accepts, compete with an honest gang of 2 × 4 GPUs. The
cluster has 8 nodes of 8 GPUs, and half of the GPUs are free. Nothing panics. The honest gang starts beside each single absurd job, and also beside all of them
(`+"`TestHostileJobs`"+`). States of the absurd jobs: %s. The CSV file beside this page has each job, with the reason
that `+"`explain`"+` gives.
`, len(jobs), strings.Join(counts, ", ")), rows
}

// cell returns a text in the form of a table cell, without control characters.
func cell(s string) string {
	quoted := strconv.QuoteToGraphic(s)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

func startsJob(as []queue.Action, k cluster.JobKey) bool {
	for _, a := range as {
		if a.Kind == queue.Start && a.Job == k.String() {
			return true
		}
	}
	return false
}

// answers makes the queries of the commands about each job.
func answers(t *testing.T, p *Placer, now time.Time, jobs []hostile.Job) {
	t.Helper()
	s := query.Picture(p.m, p.nomad, nil)
	listed := map[string]bool{}
	for _, j := range s.Jobs() {
		listed[j.Job] = true
	}
	for _, j := range jobs {
		k := cluster.KeyOf(j.Job)
		if p.m.State.Jobs[k] == nil {
			continue // it requests no GPUs at all
		}
		if !listed[k.ID] {
			t.Errorf("%s: not in the list of jobs", j.Name)
		}
		if tracked := p.m.Jobs[k]; tracked == nil || tracked.Nomad != palapi.Waiting {
			t.Errorf("%s: does not wait", j.Name)
			continue
		}
		e, err := s.Explain(t.Context(), k)
		if err != nil {
			t.Errorf("%s: explain: %v", j.Name, err)
		} else if e.Reason.IsZero() && e.Wait == nil {
			t.Errorf("%s: no reason why it waits", j.Name)
		}
		if _, err := (query.Picture(p.m, p.nomad, nil)).Plan(t.Context(), j.Job); err != nil {
			t.Errorf("%s: plan: %v", j.Name, err)
		}
	}
}
