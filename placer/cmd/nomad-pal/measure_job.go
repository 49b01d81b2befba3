// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

// measureLasts is how long the task of a measuring job sleeps if the job is not stopped earlier.
// This time is longer than any measurement with the plugin's defaults. It also ends the jobs of a
// command that was killed.
const measureLasts = 15 * time.Minute

// measurePriority is the lowest priority. With this priority, Nomad may preempt a measuring job for
// almost any other job, and never preempts a job for a measuring job.
const measurePriority = 1

func measureKey(namespace, gpu string) cluster.JobKey {
	return cluster.JobKey{Namespace: namespace, ID: "nomad-pal-measure-" + gpu}
}

// measures reports whether j is a measuring job. The job's name is no proof, because any user can
// give a job this name.
func measures(j *api.Job) bool {
	return len(j.TaskGroups) == 1 && len(j.TaskGroups[0].Tasks) == 1 && j.TaskGroups[0].Tasks[0].Env[attr.EnvMeasure] != ""
}

// measureJob returns a job that requests the GPU of t from Nomad, and asks the device plugin for a
// measurement.
func (o measureOptions) measureJob(key cluster.JobKey, t *measureTarget) (*api.Job, error) {
	driver, err := o.driverOn(t.node)
	if err != nil {
		return nil, err
	}
	task := api.NewTask("measure", driver)
	task.Config = map[string]any{"command": "sleep", "args": []string{strconv.Itoa(int(measureLasts.Seconds()))}}
	if driver == "docker" || driver == "podman" {
		task.Config["image"] = o.image
	}
	task.Env = map[string]string{attr.EnvMeasure: "1"}
	task.KillTimeout = new(time.Second)
	task.LogConfig = &api.LogConfig{MaxFiles: new(1), MaxFileSizeMB: new(1)}
	task.Resources = &api.Resources{CPU: new(10), MemoryMB: new(32), Devices: []*api.RequestedDevice{{
		Name: attr.Vendor + "/" + attr.Type, Count: new(uint64(1)),
		Constraints: []*api.Constraint{{LTarget: "${device.ids}", Operand: "set_contains_any", RTarget: t.GPU}},
	}}}
	group := api.NewTaskGroup("measure", 1)
	group.EphemeralDisk = &api.EphemeralDisk{SizeMB: new(10)}
	group.RestartPolicy = &api.RestartPolicy{Attempts: new(0), Mode: new("fail")}
	group.ReschedulePolicy = &api.ReschedulePolicy{Attempts: new(0), Unlimited: new(false)}
	job := api.NewBatchJob(key.ID, key.ID, "", measurePriority)
	job.Region, job.Namespace = nil, &key.Namespace
	job.Datacenters, job.NodePool = []string{"*"}, &t.node.NodePool
	job.Constrain(api.NewConstraint("${node.unique.id}", "=", t.node.ID))
	return job.AddTaskGroup(group.AddTask(task)), nil
}

// driverOn picks the task driver for a node. The driver must run tasks as processes of the node,
// because the device plugin recognizes a measuring task by its environment.
func (o measureOptions) driverOn(n *api.Node) (string, error) {
	drivers := []string{"raw_exec", "exec", "docker", "podman"}
	if o.driver != "" {
		drivers = []string{o.driver}
	}
	if name := firstHealthy(n.Drivers, drivers...); name != "" {
		return name, nil
	}
	return "", fmt.Errorf("none of these drivers is healthy on its node: %s; enable one of them in the client's configuration, or choose another driver with -driver", strings.Join(drivers, ", "))
}

// firstHealthy returns the first of the named task drivers that is healthy on a node, or "" if none
// is.
func firstHealthy(on map[string]*api.DriverInfo, names ...string) string {
	for _, name := range names {
		if d := on[name]; d != nil && d.Detected && d.Healthy {
			return name
		}
	}
	return ""
}
