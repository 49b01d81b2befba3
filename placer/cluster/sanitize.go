// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"fmt"
	"maps"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// A node's data come from its Nomad client, which can report anything. Bad data of one node must
// not keep the placer from serving jobs on other nodes. So each node passes through [sanitize]
// before it enters a [State]. After [sanitize], no driver, device group or GPU is nil, and the ids
// of nodes and GPUs can be listed in constraints. Warnings name the data that [sanitize] removed
// and the amounts that exceed the limit of [clamp]. owner.go decides which node owns a GPU id that
// several nodes name.

const (
	// maxDevices is the maximum number of GPU models of one node.
	maxDevices = 64
	// maxAmount is the maximum of a node's CPU in MHz, and of its memory and disk in MB. No machine
	// reaches this maximum, and sums over a cluster do not overflow.
	maxAmount = 1 << 40
)

// sanitize returns the node without unusable data, and a list of the node's faults. sanitize
// returns nil if the node cannot be used.
func sanitize(n *api.Node) (*api.Node, []string) {
	if n == nil {
		return nil, nil
	}
	why := badID(n.ID)
	if why != "" {
		return nil, []string{fmt.Sprintf("node %.80q is left out, because its id %.80q %s", n.Name, n.ID, why)}
	}
	var problems []string
	report := func(format string, args ...any) {
		problems = append(problems, fmt.Sprintf("node %.80q (%s): %s", n.Name, shortID(n.ID), fmt.Sprintf(format, args...)))
	}
	out := *n
	out.Drivers = maps.Clone(n.Drivers)
	maps.DeleteFunc(out.Drivers, func(_ string, d *api.DriverInfo) bool { return d == nil })
	if n.NodeResources == nil {
		return &out, problems
	}
	r := *n.NodeResources
	r.Devices = usableDevices(r.Devices, report)
	for _, d := range r.Devices {
		unkept := TextOf(d, attr.Unkept)
		if isGPU(d) && unkept != "" {
			report("the device plugin cannot store its state, and loses it at a restart: %.300q", unkept)
			break // each group has the same text
		}
	}
	out.NodeResources = &r
	for _, amount := range []struct {
		of    string
		value int64
	}{{"MHz", r.Cpu.CpuShares}, {"MB of memory", r.Memory.MemoryMB}, {"MB of disk", r.Disk.DiskMB}} {
		c := int64(clamp(amount.value))
		if amount.value != c {
			report("%d %s count as %d", amount.value, amount.of, c)
		}
	}
	return &out, problems
}

// usableDevices returns a node's devices without unusable GPUs.
func usableDevices(all []*api.NodeDeviceResource, report func(string, ...any)) (kept []*api.NodeDeviceResource) {
	seen, models := map[string]bool{}, 0
	for _, d := range all {
		switch {
		case d == nil:
			continue
		case !isGPU(d): // not a GPU
		case badName(d.Name) != "":
			report("GPUs of model %.80q are left out, because the name %s", d.Name, badName(d.Name))
			continue
		case models == maxDevices:
			report("GPUs of model %.80q are left out, because the node has more than %d models", d.Name, maxDevices)
			continue
		default:
			models++
			copied := *d
			copied.Instances = usableInstances(d, seen, report)
			d = &copied
		}
		kept = append(kept, d)
	}
	return kept
}

// usableInstances returns a group's usable GPUs. seen holds the GPU ids of the node that were
// already accepted.
func usableInstances(d *api.NodeDeviceResource, seen map[string]bool, report func(string, ...any)) (kept []*api.NodeDevice) {
	var wrong []string
	for _, in := range d.Instances {
		why, id := "is missing", ""
		if in != nil {
			why, id = badID(in.ID), in.ID
		}
		switch {
		case why != "":
		case seen[id]:
			why = "occurs twice"
		case len(seen) == attr.MaxGPUs:
			why = fmt.Sprintf("exceeds the limit of %d GPUs per node", attr.MaxGPUs)
		default:
			seen[id] = true
			kept = append(kept, in)
			continue
		}
		wrong = append(wrong, fmt.Sprintf("%.80q %s", id, why))
	}
	if len(wrong) > 0 {
		report("%d of the GPUs of model %.80q are left out, because the id %s", len(wrong), d.Name, wrong[0])
	}
	return kept
}

// badID returns the reason why an id cannot be part of a list, or "" if it can. Constraints
// separate ids with commas; attributes separate ids with ';' and spaces.
func badID(id string) string {
	switch {
	case badName(id) != "":
		return badName(id)
	case strings.ContainsAny(id, ",;") || strings.Contains(id, "${"):
		return "contains ',', ';' or '${'"
	case id == rewrite.Mark || strings.HasPrefix(id, rewrite.Mark+"/"):
		return "is nomad-pal's own mark"
	case strings.ContainsFunc(id, unicode.IsSpace):
		return "contains a space"
	}
	return ""
}

func badName(name string) string {
	switch {
	case name == "":
		return "is empty"
	case len(name) > attr.MaxName:
		return fmt.Sprintf("has %d bytes, more than %d", len(name), attr.MaxName)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsGraphic(r) }):
		return "contains characters that cannot be printed"
	}
	return ""
}

// shortID returns an id in the short form that `nomad node status` shows.
func shortID(id string) string {
	return id[:min(8, len(id))]
}

// clamp limits an amount to the range from 0 to maxAmount.
func clamp[N int64 | uint64](x N) int { return int(min(max(x, 0), maxAmount)) }
