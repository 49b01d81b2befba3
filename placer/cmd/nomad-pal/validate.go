// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/request"
)

var helpValidate = help("validate [options] <jobspec>", `
Checks that a jobspec can be read, that its hints are valid and do not contradict each
other, and that nomad-pal and Nomad accept the job (as nomad job validate does).
nomad-pal plan also checks an application in pal_class against the agent's
configuration, and shows whether the job fits on the cluster now.

Exit codes: 0 it is valid; 1 it is not, or an error.
`, examples(
	"Is it valid?", "nomad-pal validate train.nomad.hcl",
	"All jobspecs of a folder:", "for f in *.nomad.hcl; do nomad-pal validate $f; done",
), jobOptions, outputOptions, generalOptions)

// validation is the JSON object that `nomad-pal validate -json` prints.
type validation struct {
	Job       string `json:"job"`       // the job's id
	Namespace string `json:"namespace"` // the job's namespace
	Valid     bool   `json:"valid"`     // no errors were found
	// Errors are the reasons why the job is not valid.
	Errors []string `json:"errors"`
	// Warnings are Nomad's warnings.
	Warnings string `json:"warnings,omitempty"`
	// Notes explain how the placer or Nomad interprets the job in ways that the author may not
	// expect.
	Notes []string `json:"notes,omitempty"`
}

func runValidate(b *base, args []string) int {
	fs := b.flags("validate")
	f := b.jobFlags(fs)
	rest, ok := b.parse(fs, args, 1)
	if !ok {
		return 1
	}
	job, _, err := b.readJob(rest[0], f)
	if err != nil {
		return b.fail(err)
	}
	client, err := b.client()
	if err != nil {
		return b.fail(err)
	}
	v := validation{Job: *job.ID, Namespace: *job.Namespace}
	gated, err := gateForRun(job)
	if err != nil {
		v.Errors, gated = append(v.Errors, err.Error()), job
	}
	v.Notes = warnings(job)
	resp, _, err := client.API().Jobs().Validate(gated, (&api.WriteOptions{Namespace: v.Namespace}).WithContext(b.ctx))
	none := b.noNamespace(client, v.Namespace)
	if none != nil {
		v.Errors = append(v.Errors, none.Error())
	}
	if err != nil {
		return b.fail(fmt.Errorf("asking Nomad about job %q: %w", v.Job, nomad.Denied(err, nomad.ReadJob)))
	}
	v.Errors, v.Warnings = append(v.Errors, resp.ValidationErrors...), resp.Warnings
	if len(resp.ValidationErrors) == 0 && resp.Error != "" {
		v.Errors = append(v.Errors, resp.Error)
	}
	v.Valid = len(v.Errors) == 0
	return max(map[bool]int{false: 1}[v.Valid], b.show(v, func() { printValidation(b, v) }))
}

func printValidation(b *base, v validation) {
	if v.Warnings != "" {
		b.printf("Nomad warns: %s\n", strings.Join(strings.Fields(v.Warnings), " "))
	}
	for _, e := range v.Errors {
		fmt.Fprintln(b.io.err, "Error:", strings.TrimSpace(e))
	}
	if v.Valid {
		b.printf("Job validation successful\n")
		for _, n := range v.Notes {
			b.say(plain, n)
		}
	}
}

// warnings returns notes on parts of the job that its author may not intend.
func warnings(job *api.Job) []string {
	all := []string{request.MistypedDevices(job), request.PastNomad(job)}
	return slices.DeleteFunc(all, func(w string) bool { return w == "" })
}
