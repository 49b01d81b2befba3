// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/query"
)

// measureLook is the interval between two polls; tests shorten it.
var measureLook = 2 * time.Second

const (
	// placedWithin is how long a measuring job waits for its allocation, longer than Nomad needs if
	// the GPU is free. After measureAgain, the command tries again.
	placedWithin = 20 * time.Second
	measureAgain = time.Minute
	// measurePatience is how long requests to Nomad may fail, for example while Nomad elects a
	// leader.
	measurePatience = 2 * time.Minute
	// purgeWithin is the time limit for removing the remaining jobs at the end of the command.
	purgeWithin = 20 * time.Second
)

// measureRun is one run of measure, which measures GPUs by registering jobs in Nomad.
type measureRun struct {
	b       *base
	o       measureOptions
	client  *nomad.Client
	seen    *query.Snapshot // the latest state read from Nomad
	targets []*measureTarget
	began   time.Time
}

// newMeasureRun finds the GPUs to measure, and the jobs that hold them.
func newMeasureRun(b *base, names []string, o measureOptions) (*measureRun, error) {
	client, err := b.client()
	if err != nil {
		return nil, err
	}
	if err := b.noNamespace(client, b.namespace); err != nil {
		return nil, err
	}
	state, err := client.ReadNodes(b.ctx)
	if err != nil {
		return nil, err
	}
	r := &measureRun{b: b, o: o, client: client, began: time.Now()}
	if r.targets, err = selectGPUs(state.Nodes, names); err != nil {
		return nil, err
	}
	for _, t := range r.targets {
		if _, err := o.driverOn(t.node); err != nil && !t.over() {
			t.Outcome, t.Reason = gpuSkipped, err.Error()
		}
	}
	return r, r.lookHolders()
}

// lookHolders finds the jobs that hold the GPUs to measure. If the token sees only some jobs, a GPU
// that another job holds can look free, and its measuring job waits in Nomad.
func (r *measureRun) lookHolders() (err error) {
	if r.seen, err = plainly(r.b, r.client, r.seen); err != nil {
		return err
	}
	holders := map[string]string{}
	for _, g := range r.seen.GPUs() {
		if g.State == "allocated" {
			holders[g.NodeID+g.ID] = cmp.Or(g.Job, "a job that your token cannot see")
		}
	}
	for _, t := range r.targets {
		if t.over() || !t.registered.IsZero() {
			continue
		}
		t.held = holders[t.node.ID+t.GPU]
		switch {
		case t.held != "":
			t.Outcome, t.Reason = gpuWaits, "held by "+t.held
		case !time.Now().Before(t.again):
			t.Outcome, t.Reason = gpuReady, ""
		}
	}
	return nil
}

func (r *measureRun) outcomes() []measuredGPU {
	return each(r.targets, func(t *measureTarget) measuredGPU { return t.measuredGPU })
}

// progress prints a line about a GPU. If the output is JSON, progress prints to standard error.
func (r *measureRun) progress(t *measureTarget, what string) {
	out := r.b.io.out
	if r.b.json {
		out = r.b.io.err
	}
	text := fmt.Sprintf("%s  %s on %s: %s", time.Now().Format(time.TimeOnly), t.GPU, t.Node, oneLine(what))
	fmt.Fprintln(out, quoted(text, ""))
}

// run registers measuring jobs and follows them until all GPUs have an outcome. At the end, run
// purges the remaining jobs, except jobs whose tasks failed, so that somebody can inspect these
// jobs.
func (r *measureRun) run() (err error) {
	defer func() { err = errors.Join(err, r.purge()) }()
	for _, t := range r.targets {
		if t.held != "" {
			r.progress(t, "waits: "+t.Reason)
		}
	}
	failing := time.Time{} // since when requests have failed; zero if the last one succeeded
	for {
		err := r.step()
		switch {
		case err == nil:
			failing = time.Time{}
		case r.b.ctx.Err() != nil:
		case nomad.Refused(err), !failing.IsZero() && time.Since(failing) > measurePatience:
			return err
		case failing.IsZero():
			failing = time.Now()
			r.b.complain("Nomad fails, retrying: " + err.Error())
		}
		if !slices.ContainsFunc(r.targets, func(t *measureTarget) bool { return !t.over() }) {
			return nil
		}
		select {
		case <-r.b.ctx.Done():
			r.b.complain("Interrupted: removing the measuring jobs.")
			return nil
		case <-time.After(measureLook):
		}
	}
}

// step reads what has changed, and registers the measuring jobs of GPUs whose turn has come.
func (r *measureRun) step() error {
	if err := r.look(); err != nil {
		return err
	}
	r.giveUpWaiting()
	for _, t := range beginMeasuring(r.targets, time.Now(), r.o.atMost) {
		if err := r.begin(t); err != nil {
			return err
		}
	}
	return nil
}

// giveUpWaiting skips the GPUs that still wait after the time that the user set with -wait.
func (r *measureRun) giveUpWaiting() {
	if r.o.wait < 0 || time.Since(r.began) < r.o.wait {
		return
	}
	for _, t := range r.targets {
		if t.registered.IsZero() && t.Outcome == gpuWaits {
			r.end(t, gpuSkipped, t.Reason)
		}
	}
}

// begin registers a GPU's measuring job. A running job of this name in Nomad belongs to another
// command, or was left behind by a killed command and ends by itself.
func (r *measureRun) begin(t *measureTarget) error {
	key := measureKey(r.b.namespace, t.GPU)
	was, err := r.client.Job(r.b.ctx, key)
	if err != nil {
		return err
	}
	if was != nil && !measures(was) {
		r.end(t, gpuSkipped, fmt.Sprintf("the name %q is reserved for the measuring job; give your job another name", key.ID))
		return nil
	}
	if was != nil && !cluster.Dead(was) {
		r.later(t, fmt.Sprintf("job %q is already measuring this GPU", key.ID))
		return nil
	}
	if was != nil {
		if err := r.client.Deregister(r.b.ctx, key, true); err != nil {
			return err
		}
	}
	if t.node, err = r.node(t); err != nil {
		return err
	}
	if why := unmeasurable(t.node, t.GPU); why != "" {
		r.end(t, gpuSkipped, why)
		return nil
	}
	job, err := r.o.measureJob(key, t)
	if err != nil {
		r.end(t, gpuSkipped, err.Error())
		return nil
	}
	for _, d := range cluster.GPUDevices(t.node) { // another job may have measured the GPU in the meantime
		if a, known := accountOf(d, t.GPU); known {
			t.before = a
		}
	}
	if _, err := r.client.Register(r.b.ctx, job, 0); errors.Is(err, nomad.ErrConflict) {
		r.later(t, fmt.Sprintf("job %q is already measuring this GPU", key.ID))
		return nil
	} else if err != nil {
		return err
	}
	t.registered, t.started, t.told, t.Outcome, t.Reason = time.Now(), false, "", gpuWaits, "being measured"
	return nil
}

// later makes a GPU wait for measureAgain before the next try.
func (r *measureRun) later(t *measureTarget, why string) {
	if t.Reason != why {
		r.progress(t, "waits: "+why)
	}
	t.Outcome, t.Reason, t.registered, t.again = gpuWaits, why, time.Time{}, time.Now().Add(measureAgain)
}

func (r *measureRun) end(t *measureTarget, o measureOutcome, why string) {
	t.Outcome, t.Reason = o, why
	text := string(o)
	if why != "" {
		text += ": " + why
	}
	r.progress(t, text)
}

// look reads what has changed in Nomad since the previous poll, and updates the targets.
func (r *measureRun) look() error {
	if slices.ContainsFunc(r.targets, func(t *measureTarget) bool { return t.registered.IsZero() && !t.over() }) {
		if err := r.lookHolders(); err != nil {
			return err
		}
	}
	nodes := map[string]*api.Node{}
	for _, t := range r.targets {
		if t.registered.IsZero() || t.over() {
			continue
		}
		if nodes[t.node.ID] == nil {
			n, err := r.node(t)
			if err != nil {
				return err
			}
			nodes[t.node.ID] = n
		}
		if err := r.follow(t, nodes[t.node.ID]); err != nil {
			return err
		}
	}
	return nil
}

// node reads a GPU's node. If Nomad no longer has the node, node returns a node without GPUs.
func (r *measureRun) node(t *measureTarget) (*api.Node, error) {
	n, _, err := r.client.API().Nodes().Info(t.node.ID, (&api.QueryOptions{}).WithContext(r.b.ctx))
	if nomad.StatusOf(err) == http.StatusNotFound {
		return &api.Node{ID: t.node.ID, Name: t.node.Name}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading node %q: %w", t.Node, err)
	}
	return n, nil
}

// follow checks whether a GPU with a registered measuring job has an outcome. When the GPU is
// measured, follow removes the job.
func (r *measureRun) follow(t *measureTarget, node *api.Node) error {
	key := measureKey(r.b.namespace, t.GPU)
	for _, d := range cluster.GPUDevices(node) {
		a, known := accountOf(d, t.GPU)
		if known && a.Last != t.before.Last {
			r.take(t, d, a)
			return r.client.Deregister(r.b.ctx, key, true)
		}
		if known && t.started && a.Waits != "" && a.Waits != t.told {
			t.told = a.Waits
			r.progress(t, "waits: "+a.Waits)
		}
	}
	allocs, err := r.client.JobAllocs(r.b.ctx, key)
	if err != nil {
		return err
	}
	has := func(is func(*cluster.Alloc) bool) bool { return slices.ContainsFunc(allocs, is) }
	live := has((*cluster.Alloc).Live)
	if live && !t.started {
		t.started = true
		r.progress(t, "reserved by job "+key.ID)
	}
	desires := func(status string) bool { return has(func(a *cluster.Alloc) bool { return a.Desired == status }) }
	switch {
	case live || len(allocs) == 0 && time.Since(t.registered) <= placedWithin:
		return nil
	case has(func(a *cluster.Alloc) bool { return a.Client == api.AllocClientStatusFailed }):
		r.end(t, gpuFailed, "the task of job "+key.ID+" failed: nomad job status "+query.InNamespace(key.Namespace, key.ID)+" shows why")
		return nil // keep the job, so that somebody can inspect it
	}
	if err := r.client.Deregister(r.b.ctx, key, true); err != nil {
		return err
	}
	if node, err = r.node(t); err != nil { // the node's state may explain why the job ended
		return err
	}
	switch why := unmeasurable(node, t.GPU); {
	case why != "":
		r.end(t, gpuSkipped, why)
	case len(allocs) == 0:
		r.later(t, "Nomad does not place the measuring job: another job took the GPU, or the node lacks 10 MHz or 32 MiB")
	case desires(api.AllocDesiredStatusEvict):
		r.later(t, "the measuring job was preempted by another job")
	case has(func(a *cluster.Alloc) bool { return a.Client == api.AllocClientStatusLost }):
		r.later(t, "its node was disconnected or down")
	case desires(api.AllocDesiredStatusStop):
		r.end(t, gpuSkipped, "somebody stopped the measuring job")
	default:
		r.end(t, gpuFailed, fmt.Sprintf("not measured within %s: %s", measureLasts,
			cmp.Or(t.told, "see nomad-device-pal doctor on the node, and the log of its Nomad client")))
	}
	return nil
}

// take records the result of a GPU's measurement.
func (r *measureRun) take(t *measureTarget, d *api.NodeDeviceResource, a attr.Account) {
	if a.Problem != "" {
		r.end(t, gpuFailed, a.Problem)
		return
	}
	ms, err := attr.ParseMeasurements(cluster.TextOf(d, attr.Raw))
	i := slices.IndexFunc(ms, func(m attr.Measurement) bool { return m.GPU == t.GPU })
	if err == nil && i >= 0 {
		t.Key, t.Times = ms[i].Key, ms[i].Times
	}
	t.Provisional, t.Uncapped = a.Provisional, a.Uncapped
	r.end(t, gpuMeasured, "")
}

// purge removes the measuring jobs of targets that have no outcome yet.
func (r *measureRun) purge() (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.b.ctx), purgeWithin)
	defer cancel()
	for _, t := range r.targets {
		if !t.registered.IsZero() && !t.over() {
			err = errors.Join(err, r.client.Deregister(ctx, measureKey(r.b.namespace, t.GPU), true))
		}
	}
	return err
}
