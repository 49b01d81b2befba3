// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
)

// others prepares a message of a node or driver for the end of a sentence.
func others(text string) string { return strings.TrimRight(oneLine(text), ". ") }

// counted returns a count with its noun, such as "3 nodes".
func counted(n int, what string) string { return reason.Counted(n, what, what+"s") }

// allocSentence describes an allocation: its state, node and job.
func allocSentence(a *api.AllocationListStub) string {
	return fmt.Sprintf("Allocation %s (%s) is %s on node %s: a member of job %s.", short(a.ID), a.Name, a.ClientStatus, a.NodeName, a.JobID)
}

// gpuSentence describes a GPU's state in one sentence: who holds it, or why nobody does.
func gpuSentence(g palapi.GPU) string {
	text := fmt.Sprintf("%s, %s of node %s,", g.ID, g.Device, g.Node)
	place := placeOf(g)
	if place != "" {
		text += " " + place + ","
	}
	switch {
	case !g.Healthy && g.Job != "":
		return fmt.Sprintf("%s is unhealthy, and %s runs on it: %s.", text, g.Job, others(g.Unhealthy))
	case !g.Healthy:
		return fmt.Sprintf("%s is unhealthy and not chosen: %s.", text, others(g.Unhealthy))
	case g.Quarantine != nil:
		return fmt.Sprintf("%s is in quarantine until %s and not chosen: %s.", text, untilWhen(*g.Quarantine), others(g.Quarantine.Reason))
	case g.Job != "":
		return fmt.Sprintf("%s is allocated to %s.", text, g.Job)
	case g.Degraded != "" && g.Available:
		return fmt.Sprintf("%s is free, and chosen last, because it is degraded: %s.", text, others(g.Degraded))
	case g.Available:
		return text + " is free."
	}
	return fmt.Sprintf("%s is unavailable: %s.", text, g.Unavailable)
}

// isJobFile reports whether an argument of explain is a jobspec and not a name. In practice, no job
// has a name that looks like a file name.
func isJobFile(name string) bool {
	ends, begins := []string{".hcl", ".nomad", ".json"}, []string{"/", "./", "../"}
	return name == "-" ||
		slices.ContainsFunc(ends, func(end string) bool { return strings.HasSuffix(name, end) }) ||
		slices.ContainsFunc(begins, func(begin string) bool { return strings.HasPrefix(name, begin) })
}

// clock formats a time in the local zone; the zero time becomes "".
func clock(t time.Time) string { return palapi.Clock(time.Local, t) }
