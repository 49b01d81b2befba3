// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/hashicorp/nomad/api"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// Gang describes a job in the form that its author writes. The job has one group, whose members
// have GPUs. By default, the job is a gated batch job.
type Gang struct {
	Name      string
	Namespace string // "" means "default"
	// Members is the number of members, and GPUs the number of GPUs of each member. 0 means 1.
	Members, GPUs int
	// Runs is how long each member runs. 0 means forever.
	Runs time.Duration
	// Exit is the exit code of the members.
	Exit int
	// OneExit is true if only the first member exits with the code Exit, and the others exit with
	// 0.
	OneExit bool
	Service bool
	Ungated bool
	// Restarts is how often Nomad retries a failed member on the same node. Reschedules is how
	// often Nomad retries a failed member on other nodes.
	Restarts, Reschedules int
	Priority              int
	Meta                  map[string]string
	// Device is the device that each member requests. "" means nvidia/gpu.
	Device string
	// Change is called with the complete job, and may change it. Change can be nil.
	Change func(*api.Job)
}

// Job returns the job in the form that its author registers.
func (g Gang) Job() *api.Job {
	kind, script := "batch", "sleep infinity"
	if g.Service {
		kind = "service"
	}
	if g.Runs > 0 {
		script = fmt.Sprintf("sleep %g; exit %d", g.Runs.Seconds(), g.Exit)
		if g.OneExit {
			script = fmt.Sprintf("sleep %g; [ $NOMAD_ALLOC_INDEX = 0 ] && exit %d; exit 0", g.Runs.Seconds(), g.Exit)
		}
	}
	members, gpus, namespace := max(1, g.Members), uint64(max(1, g.GPUs)), cmp.Or(g.Namespace, "default")
	priority, unlimited := cmp.Or(g.Priority, 50), false
	zero, second, hour, fail, constant := time.Duration(0), time.Second, time.Hour, "fail", "constant"
	job := &api.Job{
		ID: &g.Name, Name: &g.Name, Namespace: &namespace, Type: &kind, Priority: &priority, Datacenters: []string{"*"}, Meta: g.Meta,
		TaskGroups: []*api.TaskGroup{{
			Name: new("workers"), Count: &members,
			RestartPolicy:    &api.RestartPolicy{Attempts: &g.Restarts, Delay: &second, Interval: &hour, Mode: &fail},
			ReschedulePolicy: &api.ReschedulePolicy{Attempts: &g.Reschedules, Delay: new(5 * time.Second), DelayFunction: &constant, MaxDelay: &zero, Interval: &hour, Unlimited: &unlimited},
			Tasks: []*api.Task{{
				Name: "work", Driver: "raw_exec", Config: map[string]any{"command": "/bin/sh", "args": []string{"-c", script}},
				Resources: &api.Resources{CPU: new(100), MemoryMB: new(100), Devices: []*api.RequestedDevice{{Name: cmp.Or(g.Device, "nvidia/gpu"), Count: &gpus}}},
			}},
		}},
	}
	if g.Change != nil {
		g.Change(job)
	}
	if g.Ungated {
		return job
	}
	return rewrite.Gate(job)
}

// elastic returns a function that makes a job elastic. least and most are the limits for the number
// of members.
func elastic(least, most int64) func(*api.Job) {
	return func(j *api.Job) {
		j.Meta = maps.Clone(j.Meta)
		if j.Meta == nil {
			j.Meta = map[string]string{}
		}
		j.Meta["pal_elastic"] = "true"
		j.TaskGroups[0].Scaling = &api.ScalingPolicy{Min: &least, Max: &most}
	}
}

// Key returns the key of a job in namespace "default".
func Key(name string) nomadtest.Key { return nomadtest.Key{Namespace: "default", ID: name} }

// Submit registers a gang as its author does.
func (w *World) Submit(g Gang) {
	w.T.Helper()
	if err := w.Register(g.Job()); err != nil {
		w.T.Fatalf("submitting %q: %v", g.Name, err)
	}
}

// Register registers a job as its author does, and returns Nomad's error.
func (w *World) Register(job *api.Job) error {
	w.rules.submits(copyOf(job))
	_, _, err := w.Author.Jobs().Register(job, &api.WriteOptions{Namespace: *job.Namespace})
	return err
}

// Edit changes the author's form of a job, and registers it again. Many authors work like this:
// their edit overwrites the changes that the placer made.
func (w *World) Edit(k nomadtest.Key, change func(*api.Job)) error {
	w.T.Helper()
	job := w.rules.authored(k)
	if job == nil {
		w.T.Fatalf("job %s was never submitted", k)
	}
	change(job)
	return w.Register(job)
}

// Rerun registers a job again without changes.
func (w *World) Rerun(k nomadtest.Key) error {
	w.T.Helper()
	return w.Edit(k, func(*api.Job) {})
}

// Stop stops a job as its author does.
func (w *World) Stop(k nomadtest.Key) error { return w.deregister(k, false) }

// Purge purges a job as its author does.
func (w *World) Purge(k nomadtest.Key) error { return w.deregister(k, true) }

func (w *World) deregister(k nomadtest.Key, purge bool) error {
	w.rules.stops(k, purge)
	_, _, err := w.Author.Jobs().Deregister(k.ID, purge, &api.WriteOptions{Namespace: k.Namespace})
	return err
}

// Quarantine puts GPUs into quarantine for an hour, as an agent does after many failures.
func (w *World) Quarantine(gpus ...string) {
	w.T.Helper()
	now, out := time.Now(), map[string]palapi.Quarantine{}
	for _, id := range gpus {
		out[id] = palapi.Quarantine{Until: now.Add(time.Hour), Last: now, Strikes: 1, Reason: "as the test has it"}
	}
	text, err := json.Marshal(out)
	if err == nil {
		items := &api.Variable{Path: "nomad-pal/quarantine", Namespace: "default", Items: api.VariableItems{"json": string(text)}}
		_, _, err = w.Author.Variables().Create(items, nil)
	}
	if err != nil {
		w.T.Fatalf("putting GPUs into quarantine: %v", err)
	}
}

func copyOf(job *api.Job) *api.Job {
	text, err := json.Marshal(job)
	if err != nil {
		panic(err)
	}
	var out api.Job
	if err := json.Unmarshal(text, &out); err != nil {
		panic(err)
	}
	return &out
}
