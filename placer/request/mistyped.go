// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package request

import (
	"fmt"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/internal/nearest"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// NoGPUs returns a message that a job requests no GPUs, and which devices the job requests.
func NoGPUs(job *api.Job) string {
	var names []string
	for _, name := range rewrite.OtherDevices(job) {
		names = append(names, fmt.Sprintf("%q%s", name, question(name)))
	}
	switch len(names) {
	case 0:
		return "the job requests no GPUs"
	case 1:
		return fmt.Sprintf("the job requests no GPUs: its device %s is not a GPU that nomad-pal serves", names[0])
	}
	return fmt.Sprintf("the job requests no GPUs: its devices %s are not GPUs that nomad-pal serves", strings.Join(names, ", "))
}

// MistypedDevices returns a warning about devices of a job that look like GPUs, but that the placer
// does not manage; "" if there are none.
func MistypedDevices(job *api.Job) string {
	var names []string
	for _, name := range rewrite.OtherDevices(job) {
		q := question(name)
		if q != "" {
			names = append(names, fmt.Sprintf("%q%s", name, q))
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("The job requests device %s, which is not a GPU that nomad-pal manages: Nomad places the job only on a node with such a device.", strings.Join(names, " and "))
}

// question returns a text that asks whether a device's name is a misspelled GPU; "" if this is
// unlikely.
func question(device string) string {
	meant := meantGPU(device)
	if meant != "" {
		return fmt.Sprintf(" (did you mean %q?)", meant)
	}
	return ""
}

// meantGPU returns the correct spelling of a misspelled request for GPUs; "" for other devices. A
// name without a vendor may be a GPU's model. A name with another vendor is not misspelled: Nomad
// places GPUs of other vendors.
func meantGPU(device string) string {
	parts := strings.SplitN(device, "/", 3)
	for i := range min(2, len(parts)) {
		parts[i] = strings.ToLower(parts[i])
	}
	if len(parts) > 1 && !nearest.Misspells(parts[0], attr.Vendor) {
		return ""
	}
	meant := attr.Vendor + "/" + attr.Type
	if len(parts) == 3 {
		meant += "/" + parts[2]
	}
	return meant
}
