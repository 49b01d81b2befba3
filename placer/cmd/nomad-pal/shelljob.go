// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os/user"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

const (
	// sessionBeat is the interval of a session's heartbeats to its job.
	sessionBeat = 10 * time.Second
	// sessionGrace is how long the job runs on without a heartbeat.
	sessionGrace = time.Minute
)

// shellKeeper is the script that the session's job runs. The script ends after $2 seconds in total,
// or after $1 seconds without a heartbeat. Each heartbeat writes a new number to a file. With
// raw_exec, Nomad does not kill the session's processes, so the script kills them. The script finds
// these processes by the allocation id in their environment.
const shellKeeper = `finish() {
  trap '' TERM INT
  [ -z "$1" ] || echo "$1"
  cd /proc || exit 0
  for signal in HUP TERM KILL; do
    for process in [0-9]*; do
      [ "$process" != $$ ] && grep -qs "NOMAD_ALLOC_ID=$NOMAD_ALLOC_ID" "$process/environ" && kill -$signal "$process" 2> /dev/null
    done
    [ $signal != TERM ] || sleep 1
  done
  exit 0
}
trap finish TERM INT
began=$(date +%s) heard=$(date +%s) seen=
while :; do
  sleep 1
  now=$(date +%s) number=
  [ -r "$NOMAD_TASK_DIR/session" ] && read -r number < "$NOMAD_TASK_DIR/session"
  [ "$number" = "$seen" ] || { seen=$number; heard=$now; }
  [ $((now - began)) -lt "$2" ] || finish "The time limit of $2 s is reached."
  [ $((now - heard)) -lt "$1" ] || finish "The session has not answered for $1 s."
done`

// sessionFile is the script of a heartbeat, which writes the number to the file that shellKeeper
// reads.
const sessionFile = `echo "$1" > "$NOMAD_TASK_DIR/session"`

type shellOptions struct {
	gpus                            int
	class, driver, image, pool, job string
	limit                           time.Duration
	cpu, memory                     int
	meta                            paths // key=value
}

var unnamed = regexp.MustCompile(`[^a-z0-9-]+`)

// shellName returns a new, unique job name.
func shellName() string {
	who := "user"
	if u, err := user.Current(); err == nil {
		who = cmp.Or(unnamed.ReplaceAllString(strings.ToLower(u.Username), ""), who)
	}
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return "shell-" + who + "-" + hex.EncodeToString(b[:])
}

// shellJob returns the job that holds a session's GPUs. Nomad must neither restart nor reschedule
// the job, because a session cannot move.
func (o shellOptions) shellJob(namespace string) (*api.Job, error) {
	task := api.NewTask("shell", o.driver)
	args := []string{"-c", shellKeeper, "sh", strconv.Itoa(int(sessionGrace.Seconds())), strconv.Itoa(int(o.limit.Seconds()))}
	task.Config = map[string]any{"command": "/bin/sh", "args": args}
	if o.image != "" {
		task.Config["image"] = o.image
	}
	if o.driver == "docker" { // do not run the image's entry point
		delete(task.Config, "command")
		task.Config["entrypoint"] = []string{"/bin/sh"}
	}
	task.Resources = &api.Resources{CPU: &o.cpu, MemoryMB: &o.memory, Devices: []*api.RequestedDevice{{
		Name: attr.Vendor + "/" + attr.Type, Count: new(uint64(o.gpus)),
	}}}
	group := api.NewTaskGroup("shell", 1)
	group.RestartPolicy = &api.RestartPolicy{Attempts: new(0), Mode: new("fail")}
	group.ReschedulePolicy = &api.ReschedulePolicy{Attempts: new(0), Unlimited: new(false)}
	job := api.NewBatchJob(o.job, o.job, "", api.JobDefaultPriority)
	job.Region, job.Namespace, job.Datacenters, job.NodePool = nil, &namespace, []string{"*"}, &o.pool
	job.Meta = map[string]string{"pal_duration": o.limit.String(), "pal_preempt": "false", "pal_migrate": "false", "pal_on_failure": "none"}
	if o.class != "" {
		job.Meta["pal_class"] = o.class
	}
	for _, m := range o.meta {
		key, value, ok := strings.Cut(m, "=")
		if !ok {
			return nil, fmt.Errorf("-meta %q is not <key>=<value>", m)
		}
		job.Meta[key] = value
	}
	job.AddTaskGroup(group.AddTask(task))
	cluster.Canonicalize(job)
	return job, nil
}

// shellDriver returns the task driver that the user names. If the user names none, shellDriver
// returns docker for an image; otherwise raw_exec if a client has this driver, or else exec.
func shellDriver(b *base, client *nomad.Client, o shellOptions) string {
	switch {
	case o.driver != "":
		return o.driver
	case o.image != "":
		return "docker"
	}
	nodes, _, err := client.API().Nodes().List((&api.QueryOptions{}).WithContext(b.ctx))
	if err != nil {
		return "exec" // most clients have it
	}
	for _, n := range nodes {
		if firstHealthy(n.Drivers, "raw_exec") != "" {
			return "raw_exec"
		}
	}
	return "exec"
}
