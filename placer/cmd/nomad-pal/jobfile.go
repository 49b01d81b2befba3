// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/jobspec2"

	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

// jobFlags are the flags of commands that read a jobspec.
type jobFlags struct {
	vars     paths
	varFiles paths
	isJSON   bool
}

const jobOptions = `
Job Options:

  -var=<key>=<value>       An HCL variable; may be given several times. NOMAD_VAR_<key> in the
                           environment gives one, too.
  -var-file=<path>         A file with HCL variables; may be given several times.
  -json-job                The job is JSON, as nomad job run -json takes it.
`

// readJob parses a jobspec, "-" for standard input, as `nomad job run` does,
// and returns the source to be kept with it.
func (b *base) readJob(path string, f jobFlags) (*api.Job, *api.JobSubmission, error) {
	body, err := b.readFile(path)
	if err != nil {
		return nil, nil, fmt.Errorf("reading job: %w", err)
	}
	submission := &api.JobSubmission{Source: string(body), Format: "hcl2", VariableFlags: map[string]string{}}
	var job *api.Job
	if f.isJSON {
		submission.Format = "json"
		job, err = parseJSONJob(body)
	} else {
		for _, v := range f.vars {
			if k, value, ok := strings.Cut(v, "="); ok {
				submission.VariableFlags[k] = value
			}
		}
		job, err = jobspec2.ParseWithConfig(&jobspec2.ParseConfig{
			Path: path, Body: body, ArgVars: f.vars, VarFiles: f.varFiles, Strict: true, AllowFS: true, Envs: os.Environ(),
		})
	}
	if err != nil {
		return nil, nil, fmt.Errorf("parsing job %q: %w", path, err)
	}
	if job.Namespace == nil {
		job.Namespace = &b.namespace
	}
	nomad.Canonicalize(job)
	if len(job.Datacenters) == 0 {
		job.Datacenters = []string{"*"} // as Nomad's server does
	}
	return job, submission, nil
}

func parseJSONJob(body []byte) (*api.Job, error) {
	var wrapped struct{ Job *api.Job }
	if err := json.Unmarshal(body, &wrapped); err != nil {
		return nil, err
	}
	if wrapped.Job != nil {
		return wrapped.Job, nil
	}
	var job api.Job
	if err := json.Unmarshal(body, &job); err != nil {
		return nil, err
	}
	return &job, nil
}
