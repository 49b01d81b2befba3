// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

type runCommand struct{ base }

func (c *runCommand) Synopsis() string { return "Run a job through the placer" }

func (c *runCommand) Help() string {
	return help("run [options] <jobspec>", `
Adds the gate to a job, registers it as nomad job run does, and watches until
the placer has placed it. Jobs without GPUs are registered as they are. Running
the same file again leaves what runs alone.

Run Options:

  -detach                  Do not wait for the placer.
  -check-index=<index>     Only register if the job's modify index is this; 0: if it is new.
  -learned                 Where the job says no pal_class and no pal_app, say the class that
                           nomad-pal classify -save remembered.
`, jobOptions, outputOptions, generalOptions)
}

func (c *runCommand) Run(args []string) int {
	fs := c.flags("run")
	var f jobFlags
	fs.Var(&f.vars, "var", "")
	fs.Var(&f.varFiles, "var-file", "")
	fs.BoolVar(&f.isJSON, "json-job", false, "")
	detach := fs.Bool("detach", false, "")
	checkIndex := fs.Int64("check-index", -1, "")
	learned := fs.Bool("learned", false, "")
	rest, ok := c.parse(fs, args, 1)
	if !ok {
		return 1
	}
	client, err := c.client()
	if err != nil {
		return c.fail(err)
	}
	job, submission, err := c.readJob(rest[0], f)
	if err != nil {
		return c.fail(err)
	}
	if *learned {
		if err := c.useLearned(client, job); err != nil {
			return c.fail(err)
		}
	}
	gated, err := gateForRun(job)
	if err != nil {
		return c.fail(err)
	}
	if rewrite.Gated(gated) {
		// Where the queues cannot be read, the placer will say so.
		if q, err := client.QueueFor(c.ctx, gated); err == nil && q.Refusal(gated) != nil {
			return c.fail(fmt.Errorf("job %q: %w", *job.ID, q.Refusal(gated)))
		}
	}
	opts := &api.RegisterOptions{Submission: submission}
	if *checkIndex >= 0 {
		opts.EnforceIndex, opts.ModifyIndex = true, uint64(*checkIndex)
	}
	w := (&api.WriteOptions{Namespace: *job.Namespace}).WithContext(c.ctx)
	resp, _, err := client.API().Jobs().RegisterOpts(gated, opts, w)
	if err != nil {
		return c.fail(fmt.Errorf("registering job %q: %w", *job.ID, nomad.Denied(err, nomad.SubmitJob)))
	}
	if *detach || !rewrite.AsksGPUs(gated) || nomad.Template(gated) {
		return c.registered(client, gated, resp)
	}
	return c.watch(client, nomad.JobKey{Namespace: *job.Namespace, ID: *job.ID})
}

// useLearned gives the job the class that was remembered for its name, where
// its author says none.
func (c *runCommand) useLearned(client *nomad.Client, job *api.Job) error {
	h, err := rewrite.ParseHints(job)
	if err != nil || h.Class != "" || h.App != "" {
		return err
	}
	v, ok, err := client.ReadClass(c.ctx, nomad.JobKey{Namespace: *job.Namespace, ID: *job.ID})
	if err != nil || !ok {
		return err
	}
	job.SetMeta("pal_class", string(v.Verdict.Class))
	fmt.Fprintf(c.io.err, "Application class %s, as remembered: %s\n", v.Verdict.Class, v.Verdict.Reason)
	return nil
}

// gateForRun adds the gate, or says why the job must not have one.
func gateForRun(job *api.Job) (*api.Job, error) {
	if !rewrite.AsksGPUs(job) {
		return job, nil
	}
	if _, err := rewrite.ParseHints(job); err != nil {
		return nil, err
	}
	if t := *job.Type; t == api.JobTypeSystem || t == api.JobTypeSysbatch {
		return job, nil // on every node: nothing to choose
	}
	if p := job.ParameterizedJob; p != nil && p.Payload == "required" {
		return nil, fmt.Errorf("job %q takes a payload, and Nomad loses payloads of jobs that are rewritten: run it with nomad job run, with a native class constraint", *job.ID)
	}
	return rewrite.Gate(job), nil
}

func (c *runCommand) registered(client *nomad.Client, job *api.Job, resp *api.JobRegisterResponse) int {
	v := map[string]any{"job": *job.ID, "namespace": *job.Namespace, "gated": rewrite.Gated(job), "evaluation": resp.EvalID}
	if done, code := c.structured(v); done {
		return code
	}
	c.printf("Job %q registered", *job.ID)
	switch {
	case nomad.Template(job):
		if rules, err := placer.ReadRules(c.ctx, client); err == nil {
			c.printf(": %s", nomad.TemplateReason(job, rules.Children))
		}
	case rewrite.Gated(job):
		c.printf(", waiting for the placer: see nomad-pal explain %s", *job.ID)
	}
	c.printf("\n")
	if resp.Warnings != "" {
		c.printf("Nomad warns: %s\n", resp.Warnings)
	}
	return 0
}

// watch follows the job until all members run or it ends, printing each new
// word on it.
func (c *runCommand) watch(client *nomad.Client, k nomad.JobKey) int {
	last := ""
	var s *placer.Survey
	for {
		began := time.Now()
		e, err := c.look(client, &s, k)
		switch {
		case c.ctx.Err() != nil:
			c.printf("Detached. The job stays registered: see nomad-pal explain %s\n", k.ID)
			return 0
		case err != nil:
			return c.fail(err)
		}
		done := e.Phase == placer.Running || e.Phase == placer.Ended || e.Phase == placer.Native
		if c.json || c.template != "" {
			if done {
				_, code := c.structured(e)
				return code
			}
		} else if word := string(e.Phase) + ": " + e.Reason; word != last {
			c.printf("%s  %s\n", time.Now().Format(time.TimeOnly), word)
			last = word
		}
		if done {
			printExplanation(&c.base, e)
			return 0
		}
		select {
		case <-time.After(max(500*time.Millisecond, 10*time.Since(began))): // a look at a large cluster costs its servers
		case <-c.ctx.Done():
		}
	}
}

// look observes, and leaves what it saw in s for the next look.
func (c *runCommand) look(client *nomad.Client, s **placer.Survey, k nomad.JobKey) (*placer.Explanation, error) {
	ctx, cancel := context.WithTimeout(c.ctx, time.Minute)
	defer cancel()
	next, err := (*placer.Survey)(nil), error(nil)
	if *s == nil {
		next, err = placer.Observe(ctx, client)
	} else {
		next, err = (*s).Again(ctx, client)
	}
	if err != nil {
		return nil, err
	}
	*s = next
	return next.Explain(ctx, k)
}
