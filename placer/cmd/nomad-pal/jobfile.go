// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/jobspec2"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

// jobFlags are the options of commands that read a jobspec, named like Nomad's own options.
type jobFlags struct {
	vars, varFiles paths
}

const jobOptions = `
Job Options:

  -var=<key>=<value>       An HCL variable; may be given several times. The environment
                           variable NOMAD_VAR_<key> also sets one.
  -var-file=<path>         A file with HCL variables; may be given several times.
  -verbose                 Show the evidence for the answer, too.

<jobspec> is a file, or "-" for standard input, in HCL or in
the JSON of nomad job inspect and nomad job run -output. A region in
the jobspec overrides -region and NOMAD_REGION.
`

func (b *base) jobFlags(fs *flag.FlagSet) *jobFlags {
	f := &jobFlags{}
	fs.Var(&f.vars, "var", "")
	fs.Var(&f.varFiles, "var-file", "")
	fs.BoolVar(&b.verbose, "verbose", false, "")
	return f
}

// isScript returns the error for a script that somebody submits as if it were a jobspec, as with
// sbatch.
func isScript(path string) error {
	return fmt.Errorf("%s is a script, not a jobspec. To run it on a GPU of a node that has the script: nomad-pal shell -- %s. For an example of a jobspec: nomad-pal init", path, palapi.ShellQuoted(path))
}

// readJob parses a jobspec as `nomad job run` does. readJob also returns the source, which Nomad
// stores with the job. After readJob, requests go to the job's region.
func (b *base) readJob(path string, f *jobFlags) (*api.Job, *api.JobSubmission, error) {
	body, err := b.io.readFile(path)
	if err != nil {
		return nil, nil, fmt.Errorf("reading jobspec %q: %w", path, err)
	}
	job, submission, err := f.parse(path, body)
	if err != nil && bytes.HasPrefix(body, []byte("#!")) {
		return nil, nil, isScript(path)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("parsing jobspec %s: %w", path, unplaced{err})
	}
	if job.Region != nil {
		b.connect.Region = *job.Region
	}
	if job.Namespace == nil {
		job.Namespace = &b.namespace
	}
	cluster.Canonicalize(job)
	return job, submission, nil
}

// unplaced wraps HCL errors that have no position in the file. HCL writes "<nil>: " in place of the
// position, and unplaced removes this.
// If a variable is unset, unplaced says how to set it.
type unplaced struct{ error }

func (e unplaced) Error() string {
	text := strings.TrimPrefix(strings.ReplaceAll(e.error.Error(), "\n<nil>: ", "\n"), "<nil>: ")
	if strings.Contains(text, "Unset variable") {
		text += "\nTo set variables: -var <name>=<value>, or -var-file <file>"
	}
	return text
}
func (e unplaced) Unwrap() error { return e.error }

func (f *jobFlags) parse(path string, body []byte) (job *api.Job, submission *api.JobSubmission, err error) {
	submission = &api.JobSubmission{Source: string(body), Format: "json"}
	if isJSONJob(body) {
		if len(f.vars) > 0 || len(f.varFiles) > 0 {
			return nil, nil, errors.New("cannot use variables with JSON files")
		}
		if job, err = parseJSONJob(body); err == nil {
			err = cluster.Wellformed(job)
		}
		return job, submission, err
	}
	if path == "-" {
		path = "stdin"
	}
	job, err = jobspec2.ParseWithConfig(&jobspec2.ParseConfig{
		// Nomad's own file functions resolve relative paths against the working directory, too.
		Path: path, BaseDir: ".", Body: body, ArgVars: f.vars, VarFiles: f.varFiles, Strict: true, AllowFS: true, Envs: os.Environ(),
	})
	if err != nil {
		return nil, nil, err
	}
	submission.Format, submission.VariableFlags = "hcl2", map[string]string{}
	for _, v := range os.Environ() {
		if name, ok := strings.CutPrefix(v, jobspec2.VarEnvPrefix); ok {
			k, value, _ := strings.Cut(name, "=")
			submission.VariableFlags[k] = value
		}
	}
	for _, v := range f.vars {
		k, value, _ := strings.Cut(v, "=")
		submission.VariableFlags[k] = value
	}
	for _, path := range f.varFiles {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, nil, err
		}
		submission.Variables += string(text) + "\n"
	}
	return job, submission, nil
}

// isJSONJob reports whether a jobspec is JSON for Nomad's API, and not HCL in its JSON form. In
// HCL, the key "job" is in lower case.
func isJSONJob(body []byte) bool {
	if !bytes.HasPrefix(bytes.TrimSpace(body), []byte("{")) {
		return false
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(body, &keys); err != nil {
		return false // the parser reports what is wrong
	}
	return keys["Job"] != nil || keys["ID"] != nil
}

func parseJSONJob(body []byte) (*api.Job, error) {
	either := struct {
		Nested *api.Job `json:"Job"`
		api.Job
	}{}
	if err := json.Unmarshal(body, &either); err != nil {
		return nil, fmt.Errorf("the job is not valid JSON: %w", err)
	}
	job := &either.Job
	if either.Nested != nil {
		job = either.Nested
	}
	job.Name = cmp.Or(job.Name, job.ID)
	return job, nil
}
