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

// NoGPUs reports that a job asks for no GPUs, and names the devices that it asks for instead.
func NoGPUs(job *api.Job) string {
	var names []string
	for _, name := range rewrite.OtherDevices(job) {
		names = append(names, fmt.Sprintf("%q%s", name, question(name)))
	}
	switch len(names) {
	case 0:
		return "the job asks for no GPUs"
	case 1:
		return fmt.Sprintf("the job asks for no GPUs: its device %s is none", names[0])
	}
	return fmt.Sprintf("the job asks for no GPUs: its devices %s are none", strings.Join(names, ", "))
}

// MistypedDevices names the devices of a job that look like GPUs and are none of the placer's;
// "" if there are none.
func MistypedDevices(job *api.Job) string {
	var names []string
	for _, name := range rewrite.OtherDevices(job) {
		if q := question(name); q != "" {
			names = append(names, fmt.Sprintf("%q%s", name, q))
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("The job asks for device %s, which is not a GPU of the placer's: Nomad places it only where a node has such a device.", strings.Join(names, " and "))
}

// question asks whether a device is a GPU with its name spelt wrong; "" if it hardly is.
func question(device string) string {
	if meant := meantGPU(device); meant != "" {
		return fmt.Sprintf(" (did you mean %q?)", meant)
	}
	return ""
}

// meantGPU is how a request for GPUs is written that is spelt otherwise, or names another
// vendor's; "" of other devices. A type is compared exactly: a TPU is no GPU.
func meantGPU(device string) string {
	parts := strings.SplitN(device, "/", 3)
	for i := range min(2, len(parts)) {
		parts[i] = strings.ToLower(parts[i])
	}
	if len(parts) > 1 && nearest.Name(parts[0], []string{attr.Vendor}) == "" && !strings.HasPrefix(parts[1], attr.Type) {
		return ""
	}
	meant := attr.Vendor + "/" + attr.Type
	if len(parts) == 3 {
		meant += "/" + parts[2]
	}
	return meant
}
