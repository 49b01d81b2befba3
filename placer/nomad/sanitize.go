// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

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

// Whoever runs a Nomad client writes its node's data. No such data may keep the
// placer from serving other nodes, so each node passes through [sanitize] before it
// enters a [State]: what the rest of this package reads has no nil entries, only
// ids that can stand in a list, and numbers that do not overflow. What is left out
// is named in a warning. Which node a GPU id belongs to where several name it is
// decided in owner.go.

const (
	// maxDevices bounds the GPU models of one node.
	maxDevices = 64
	// maxAmount bounds a node's CPU in MHz, its memory and its disk in MB: far above
	// any machine, and small enough that sums over a cluster do not overflow.
	maxAmount = 1 << 40
)

// sanitize is the node as the placer reads it, the node itself where nothing is wrong
// with it, and what is wrong in words. It is nil where the node cannot be used.
func sanitize(n *api.Node) (*api.Node, []string) {
	if n == nil {
		return nil, nil
	}
	if why := badID(n.ID); why != "" {
		return nil, []string{fmt.Sprintf("node %.80q is left out: its id %.80q %s", n.Name, n.ID, why)}
	}
	var problems []string
	report := func(format string, args ...any) {
		problems = append(problems, fmt.Sprintf("node %.80q (%s): %s", n.Name, shortID(n.ID), fmt.Sprintf(format, args...)))
	}
	out := n
	if r := sanitizeResources(n.NodeResources, report); r != n.NodeResources {
		changed := *n
		changed.NodeResources = r
		out = &changed
	}
	if drivers := withoutNil(n.Drivers); len(drivers) != len(n.Drivers) {
		copied := *out
		copied.Drivers = drivers
		out = &copied
	}
	if r := out.NodeResources; r != nil {
		for _, amount := range []struct {
			of    string
			value int64
		}{{"MHz", r.Cpu.CpuShares}, {"MB of memory", r.Memory.MemoryMB}, {"MB of disk", r.Disk.DiskMB}} {
			if c := int64(clamp(amount.value)); amount.value != c {
				report("%d %s count as %d", amount.value, amount.of, c)
			}
		}
	}
	return out, problems
}

// withoutNil is m without nil values, m itself where it has none.
func withoutNil[V any](m map[string]*V) map[string]*V {
	out := m
	for k, v := range m {
		if v != nil {
			continue
		}
		if len(out) == len(m) {
			out = maps.Clone(m)
		}
		delete(out, k)
	}
	return out
}

// sanitizeResources is r where nothing is wrong with its GPUs.
func sanitizeResources(r *api.NodeResources, report func(string, ...any)) *api.NodeResources {
	if r == nil {
		return nil
	}
	var devices []*api.NodeDeviceResource
	seen, gpus, groups, same := map[string]bool{}, 0, 0, true
	for _, d := range r.Devices {
		switch {
		case d == nil:
			same = false
			continue
		case d.Vendor != attr.Vendor || d.Type != attr.Type: // not ours to look at
		case badName(d.Name) != "":
			report("GPUs of model %.80q are left out: the name %s", d.Name, badName(d.Name))
			same = false
			continue
		case groups == maxDevices:
			report("GPUs of model %.80q are left out: more than %d models", d.Name, maxDevices)
			same = false
			continue
		default:
			groups++
			whole := d
			d = sanitizeDevice(whole, seen, &gpus, report)
			same = same && d == whole
		}
		devices = append(devices, d)
	}
	if same {
		return r
	}
	out := *r
	out.Devices = devices
	return &out
}

// sanitizeDevice is the device group without instances that cannot be used. seen are
// the ids that the node has named already, gpus how many GPUs it has so far.
func sanitizeDevice(d *api.NodeDeviceResource, seen map[string]bool, gpus *int, report func(string, ...any)) *api.NodeDeviceResource {
	var kept []*api.NodeDevice
	bad, first, reason := 0, "", ""
	for _, in := range d.Instances {
		why, id := "", ""
		switch {
		case in == nil:
			why = "is not there"
		case badID(in.ID) != "":
			why, id = badID(in.ID), in.ID
		case seen[in.ID]:
			why, id = "is there twice", in.ID
		case *gpus == attr.MaxGPUs:
			why, id = fmt.Sprintf("is one more than the %d that a node may have", attr.MaxGPUs), in.ID
		}
		if why != "" {
			if bad++; bad == 1 {
				first, reason = id, why
			}
			continue
		}
		seen[in.ID] = true
		*gpus++
		kept = append(kept, in)
	}
	if bad == 0 {
		return d
	}
	report("%d of the GPUs of model %.80q are left out: the id %.80q %s", bad, d.Name, first, reason)
	out := *d
	out.Instances = kept
	return &out
}

// badID says why an id cannot stand in a list of ids, "" where it can: lists are
// joined by commas in constraints, and by ';' and spaces in attributes.
func badID(id string) string {
	switch {
	case id == "":
		return "is empty"
	case len(id) > attr.MaxName:
		return fmt.Sprintf("has %d bytes, more than %d", len(id), attr.MaxName)
	case strings.ContainsAny(id, ",;") || strings.Contains(id, "${"):
		return "holds ',', ';' or '${'"
	case id == rewrite.Mark || strings.HasPrefix(id, rewrite.Mark+"/"):
		return "is the placer's own mark"
	}
	if strings.ContainsFunc(id, unicode.IsSpace) {
		return "holds a space"
	}
	return badText(id)
}

func badName(name string) string {
	switch {
	case name == "":
		return "is empty"
	case len(name) > attr.MaxName:
		return fmt.Sprintf("has %d bytes, more than %d", len(name), attr.MaxName)
	}
	return badText(name)
}

func badText(s string) string {
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsGraphic(r) }) {
		return "holds characters that cannot be printed"
	}
	return ""
}

// shortID is an id as operators know it from `nomad node status`.
func shortID(id string) string {
	return id[:min(8, len(id))]
}

// clamp is the amount that counts.
func clamp[N int64 | uint64](x N) int { return int(min(max(x, 0), maxAmount)) }
