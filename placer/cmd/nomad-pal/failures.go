// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/failure"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/query"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

var helpFailures = help("failures [options]", `
Shows the last failed or lost allocations with GPUs: first their number and the lost
GPU hours by cause, then each allocation, then the quarantined GPUs. Operators see
the failures of all namespaces. If the token may not read the variable
nomad-pal/failures, the command asks the agent, and shows only failures in namespaces
whose jobs the token can list. With -namespace it shows the failures of one namespace,
and all quarantined GPUs.
`, examples(
	"What failed, and whose fault was it?", "nomad-pal failures",
	"Failures and GPU hours lost, by cause:", "nomad-pal failures -json | jq .causes",
), outputOptions, generalOptions)

// failureReport is the JSON object that `nomad-pal failures -json` prints.
type failureReport struct {
	Causes     map[failure.Cause]causeSum    `json:"causes"`     // sums of Failures by cause
	Failures   []failure.Failure             `json:"failures"`   // the latest failures, the oldest first
	Quarantine map[string]failure.Quarantine `json:"quarantine"` // quarantined GPUs, by id
}

// causeSum sums up the failures with one cause.
type causeSum struct {
	Failures int     `json:"failures"`  // number of failures with this cause
	GPUHours float64 `json:"gpu_hours"` // GPU hours lost by these failures
}

func runFailures(b *base, args []string) int {
	if _, ok := b.parse(b.flags("failures"), args, 0); !ok {
		return 1
	}
	client, err := b.client()
	if err != nil {
		return b.fail(err)
	}
	r := failureReport{Causes: map[failure.Cause]causeSum{}}
	var s *answers // nil unless the agent was asked
	failures, err := store.In(client).Failures().Read(b.ctx)
	r.Failures = failures.Of.Kept
	if nomad.Refused(err) {
		r.Failures, s, err = visibleFailures(b)
	}
	if err = b.damaged(err); err != nil {
		return b.fail(err)
	}
	if b.given("namespace") && b.namespace != "*" {
		r.Failures = slices.DeleteFunc(r.Failures, func(f failure.Failure) bool { return f.Namespace != b.namespace })
		if len(r.Failures) == 0 {
			err = b.noNamespace(client, b.namespace)
		}
	}
	if err != nil {
		return b.fail(err)
	}
	switch r.Quarantine, err = quarantined(b, client); {
	case nomad.Refused(err) && s != nil:
		s.note += "; your token may not list the GPUs in quarantine"
	case err != nil:
		return b.fail(err)
	}
	for _, f := range r.Failures {
		sum := r.Causes[f.Cause]
		sum.Failures++
		sum.GPUHours += f.GPUHours
		r.Causes[f.Cause] = sum
	}
	code := b.show(r, func() { b.printReport(r, time.Now()) })
	if s != nil {
		return s.close(code)
	}
	return code
}

// visibleFailures asks the agent for the failures in namespaces whose jobs the token can list.
func visibleFailures(b *base) (fs []failure.Failure, s *answers, err error) {
	s, err = b.ask()
	if lacksAgent(err) {
		err = fmt.Errorf("without an agent, only operators can read failures: %w", err)
	}
	if err != nil {
		return nil, nil, err
	}
	s.note = "failures in namespaces whose jobs your token cannot list are left out"
	err = s.get("/v1/failures", nil, &fs)
	return fs, s, err
}

func (b *base) printReport(r failureReport, now time.Time) {
	if len(r.Failures) == 0 {
		b.printf("Nothing failed.\n")
	} else {
		rows := []string{row("Cause", "Failures", "GPU hours lost")}
		for _, cause := range slices.Sorted(maps.Keys(r.Causes)) {
			rows = append(rows, row(cause, r.Causes[cause].Failures, fmt.Sprintf("%.2f", r.Causes[cause].GPUHours)))
		}
		b.table(rows)
		b.printf("\n")
		var ids []string
		for _, f := range r.Failures {
			ids = append(ids, f.GPUs...)
		}
		length := query.IDLength(ids)
		rows = []string{row("Time", "Job", "Allocation", "Node", "Cause", "Reason", "GPUs")}
		for _, f := range r.Failures {
			rows = append(rows, row(query.Ago(f.At, now), cluster.JobKey{Namespace: f.Namespace, ID: f.Job}, b.short(f.Alloc), f.Node, f.Cause, oneLine(f.Reason), shortGPUs(f.GPUs, b.idLength(length))))
		}
		b.table(rows)
	}
	if len(r.Quarantine) > 0 {
		b.printf("\nQuarantine\n")
		printQuarantine(b, r.Quarantine)
	}
}
