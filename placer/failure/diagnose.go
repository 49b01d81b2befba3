// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package failure decides why an allocation failed, and which GPUs are quarantined because of the
// failure. The package is pure: it uses only its arguments, reads no clock, makes no requests and
// keeps no state.
//
// Two kinds of evidence count against a GPU. The first kind comes from the machine: the GPU is
// unhealthy, according to the device plugin or to a message of Nomad's client that quotes the
// plugin. The placer trusts this evidence. The second kind comes from jobs: a program fails, or a
// driver cannot start a program. But a mistake that many jobs share, such as a typing error, makes
// these jobs fail on every GPU of the cluster. So [Evidence.Judge] limits which job failures count,
// and [Cap] limits how many GPUs job failures can exclude.
package failure

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/nomad/api"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

const (
	// NodeDown is the Reason of a failure if the node of the allocation was lost.
	NodeDown = "the node went down"
	// BeingStopped is the Reason if a task ended with an error when it was told to stop, for example
	// by a drain. That is no failure for people.
	BeingStopped = "it was being stopped"
)

// Diagnose describes the failure of a failed or lost allocation, with the cause. gpus holds the
// allocation's GPUs that belong to the node. node is the node's name. unhealthy maps each GPU that
// is unhealthy now to the plugin's description of the fault.
func Diagnose(a *cluster.Alloc, gpus []string, node string, unhealthy map[string]string) palapi.Failure {
	f := palapi.Failure{
		Index: a.ModifyIndex,
		At:    time.Unix(0, a.ModifyTime).UTC(), Namespace: a.Job.Namespace, Job: a.Job.ID, Alloc: a.ID, Node: node, GPUs: gpus,
		Placed:   time.Unix(0, a.CreateTime).UTC(),
		GPUHours: time.Duration(max(0, a.ModifyTime-a.CreateTime)).Hours() * float64(len(gpus)),
		Cause:    palapi.CauseUnknown, Reason: "no cause is known",
	}
	for _, id := range gpus {
		if why, ok := unhealthy[id]; ok {
			if f.Unhealthy == nil {
				f.Cause, f.Reason = palapi.CauseInfrastructure, fmt.Sprintf("GPU %s is unhealthy: %s", id, why)
			}
			f.Unhealthy = append(f.Unhealthy, id)
		}
	}
	if f.Unhealthy != nil {
		return f
	}
	if a.Client == api.AllocClientStatusLost {
		f.Cause, f.Reason = palapi.CauseInfrastructure, NodeDown
		return f
	}
	for _, task := range suspects(a.Tasks) {
		// judge looks at the last event first, because Nomad retried the task after each earlier
		// failure.
		events := UntilKilled(a.Tasks[task].Events)
		for _, e := range slices.Backward(events) {
			if judge(&f, task, e) {
				f.OfTask = true
				return f
			}
		}
		said := endedWell(events)
		if said != "" && a.Tasks[task].Failed {
			f.Reason = fmt.Sprintf("task %q %s", task, said)
			return f
		}
		if len(events) < len(a.Tasks[task].Events) {
			f.Reason = BeingStopped
		}
	}
	return f
}

// endedWell describes how a task ended if it exited with code 0 although it must keep running. An
// example is a task of a service whose restart block allows no further start. endedWell returns ""
// for other tasks.
func endedWell(events []*api.TaskEvent) string {
	ended, why := false, ""
	for _, e := range events {
		switch e.Type {
		case api.TaskTerminated:
			ended = true
		case api.TaskNotRestarting:
			why = e.DisplayMessage
		}
	}
	if !ended || why == "" {
		return ""
	}
	return "ended with exit code 0, and is not started again: " + why
}

// UntilKilled returns the events of a task up to the moment when Nomad began to kill the task.
// Later events, such as an exit code or a failed start, do not show why the allocation failed.
func UntilKilled(events []*api.TaskEvent) []*api.TaskEvent {
	i := slices.IndexFunc(events, func(e *api.TaskEvent) bool { return e.Type == api.TaskKilling })
	if i >= 0 {
		return events[:i]
	}
	return events
}

// suspects returns the names of the tasks that may have caused the failure. Tasks that failed come
// before tasks that were killed with them, each in alphabetical order.
func suspects(tasks map[string]*api.TaskState) []string {
	after := func(task string) int {
		if tasks[task].Failed {
			return 0
		}
		return 1
	}
	return slices.SortedFunc(maps.Keys(tasks), func(a, b string) int { return cmp.Or(after(a)-after(b), strings.Compare(a, b)) })
}

// The package nomad/api has no names for these types of events.
const (
	taskHookFailed    = "Task hook failed"
	taskRestoreFailed = "Failed Restoring Task"
	TaskMainDead      = "Main Tasks Dead"
	// devicesHook begins the message of a task hook that failed to reserve devices. If the message
	// contains the word "unhealthy", the device plugin refused GPUs that had become unhealthy
	// before Nomad knew. Otherwise the message names all requested GPUs, and it can mean that the
	// client or the plugin has just started.
	devicesHook = "devices: "
	unhealthy   = "unhealthy"
)

// tooLong is the error of Linux if the environment of a program is too large. Nomad passes the meta
// of a job in the environment, so the cause is the job.
const tooLong = "argument list too long"

// judge evaluates one task event and reports whether it shows the cause.
func judge(f *palapi.Failure, task string, e *api.TaskEvent) bool {
	switch e.Type {
	case taskHookFailed:
		said := cmp.Or(e.Message, e.DisplayMessage)
		f.Cause, f.Reason = palapi.CauseInfrastructure, fmt.Sprintf("task %q: %s", task, said)
		if strings.HasPrefix(said, devicesHook) && strings.Contains(said, unhealthy) {
			f.Unhealthy = named(f, said)
		}
		return true
	case taskRestoreFailed, api.TaskArtifactDownloadFailed, api.TaskSetupFailure:
		f.Cause, f.Reason = palapi.CauseInfrastructure, fmt.Sprintf("task %q: %s: %s", task, e.Type, e.DisplayMessage)
		return true
	case api.TaskDriverFailure:
		if strings.Contains(e.DisplayMessage, tooLong) {
			f.Cause, f.Reason = palapi.CauseUser, fmt.Sprintf("task %q: its environment, which includes the job's meta, is too large for Linux: %s", task, e.DisplayMessage)
			return true
		}
		f.Cause, f.Reason = palapi.CauseInfrastructure, fmt.Sprintf("task %q: %s: %s", task, e.Type, e.DisplayMessage)
		f.Unhealthy = named(f, e.DisplayMessage)
		f.Driver, f.Named = f.Unhealthy == nil, f.Unhealthy != nil
		return true
	case api.TaskFailedValidation:
		f.Cause, f.Reason = palapi.CauseUser, fmt.Sprintf("task %q: %s: %s", task, e.Type, e.DisplayMessage)
		return true
	case api.TaskTerminated:
		code, signal := ExitCode(e), signalOf(e)
		switch {
		case e.Details["oom_killed"] == "true":
			f.Cause, f.Reason = palapi.CauseUser, fmt.Sprintf("task %q ran out of memory", task)
		case signal != 0:
			f.Cause, f.Reason = palapi.CauseUser, fmt.Sprintf("task %q ended with exit code %d by signal %d (%s)", task, code, signal, syscall.Signal(signal))
		case code != 0:
			f.Cause, f.Reason = palapi.CauseUser, fmt.Sprintf("task %q ended with exit code %d", task, code)
		default:
			return false
		}
		f.ExitCode, f.Signal = code, signal
		return true
	}
	return false
}

// named returns the allocation's GPUs that a message names.
func named(f *palapi.Failure, message string) []string {
	var out []string
	for _, id := range f.GPUs {
		if strings.Contains(message, id) {
			out = append(out, id)
		}
	}
	return out
}

// signalOf returns the signal that ended a task, or 0 if no signal ended the task.
func signalOf(e *api.TaskEvent) int {
	if signal, err := strconv.Atoi(e.Details["signal"]); err == nil {
		return max(0, signal)
	}
	return max(0, e.Signal)
}

// variable matches the parts of a message that differ between jobs with the same cause: the paths of
// URLs, ids and numbers.
var variable = regexp.MustCompile(`https?://[^\s"'` + "`" + `]+|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9]+`)

// ofTask matches the name of the task at the start of a reason.
var ofTask = regexp.MustCompile(`^task ".*?": `)

// SharedCause returns a text that is equal for all failures with the same cause outside of the
// jobs, such as a server of artifacts that is down, or a program that the nodes lack. SharedCause
// returns "" for causes that the placer avoids by choosing other GPUs: a node that is down, and
// GPUs that are unhealthy.
func SharedCause(f *palapi.Failure) string {
	if f.Cause != palapi.CauseInfrastructure || f.Reason == NodeDown || len(f.Unhealthy) > 0 {
		return ""
	}
	return variable.ReplaceAllStringFunc(ofTask.ReplaceAllString(f.Reason, ""), func(part string) string {
		scheme, rest, isURL := strings.Cut(part, "://")
		if !isURL {
			return "#"
		}
		host, _, _ := strings.Cut(rest, "/")
		return scheme + "://" + host
	})
}

// ExitCode returns the task's exit code from an event that reports the end of a task.
func ExitCode(e *api.TaskEvent) int {
	if code, err := strconv.Atoi(e.Details["exit_code"]); err == nil {
		return code
	}
	return e.ExitCode
}
