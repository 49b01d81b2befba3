// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/pal/attr"
)

// allGPUs is the word for all GPUs in the key gpus.
const allGPUs = "*"

// checkSharing checks the sharing blocks without knowing the GPUs.
func checkSharing(blocks []SharingConfig) error {
	named := map[string]int{}
	for i, b := range blocks {
		at := func(key, format string, args ...any) error {
			return fmt.Errorf("sharing block %d: config key %q: %s", i+1, "sharing."+key, fmt.Sprintf(format, args...))
		}
		if err := b.check(at); err != nil {
			return err
		}
		if len(b.GPUs) == 0 {
			return at("gpus", "the list is empty: name UUIDs, indexes or models, or %q for all", allGPUs)
		}
		for _, name := range b.GPUs {
			other, twice := named[name]
			switch {
			case twice:
				return at("gpus", "%q is already in sharing block %d, but a GPU can be in only one block", name, other)
			case name == allGPUs && i > 0, named[allGPUs] > 0:
				return at("gpus", "a block with %q covers all GPUs, so no other block is allowed", allGPUs)
			case b.Mode == MPS && strings.HasPrefix(name, "MIG-"):
				return at("gpus", "MPS cannot share MIG instance %q; mode = %q can share it", name, TimeSlicing)
			}
			named[name] = i + 1
		}
	}
	return nil
}

// mostReplicas is the maximum number of parts of a GPU.
const mostReplicas = 100

// mostMPS is the maximum number of clients of one GPU's MPS server, according to NVIDIA's manual.
// Up to CUDA 13.0 the maximum is 48. A task needs one client per process.
const mostMPS = 60

// check checks the keys of a block that do not select GPUs.
func (b SharingConfig) check(at func(key, format string, args ...any) error) error {
	switch {
	case b.Mode != TimeSlicing && b.Mode != MPS:
		return at("mode", "%q is not one of %s, %s", b.Mode, TimeSlicing, MPS)
	case b.Replicas < 2:
		return at("replicas", "%d is below 2", b.Replicas)
	case b.Replicas > mostReplicas:
		return at("replicas", "%d is above %d", b.Replicas, mostReplicas)
	case b.Threads < 0 || b.Threads > 100:
		return at("threads", "%d is not between 0 and 100", b.Threads)
	case b.Mode != MPS && b.Threads > 0:
		return at("threads", "this key needs mode = %q, because mode %s does not limit tasks", MPS, b.Mode)
	case b.Mode == MPS && b.Replicas > mostMPS:
		return at("replicas", "%d is above %d, the number of clients that an MPS server accepts", b.Replicas, mostMPS)
	case !strings.HasPrefix(b.PipeDirectory, "/"):
		return at("pipe_directory", "%q is not an absolute path", b.PipeDirectory)
	}
	return nil
}

// form tells how a GPU is published: in parts, or whole (the zero value).
type form struct {
	Mode     Sharing
	Replicas int
	Suffix   string // distinguishes the groups of one model with different forms
}

func (f form) shared() bool { return f.Replicas > 1 }

// instances returns the ids of the instances that a device of this form has in Nomad.
func (f form) instances(id string) []string {
	if !f.shared() {
		return []string{id}
	}
	out := make([]string, f.Replicas)
	for n := range out {
		out[n] = attr.PartID(id, n)
	}
	return out
}

// group returns the type and name of the device group for devices of this form and model.
func (f form) group(model string) (kind, name string) {
	if !f.shared() {
		return attr.Type, model
	}
	return attr.SharedType, model + attr.SharedSuffix + f.Suffix
}

// share sets the forms of the view's devices. complete means that the driver listed all devices.
// Callers hold mu.
func (p *Plugin) share(complete bool) {
	plan := planSharing(p.cfg.Sharing, p.view.inv.Devices, complete)
	for _, problem := range plan.problems {
		p.said.warn(problem)
	}
	p.sharedBy, p.view.forms = plan.blocks, plan.forms
}

// SharingProblems lists the requests of the sharing blocks that the inventory does not meet, in one
// sentence each.
func SharingProblems(blocks []SharingConfig, inv gpu.Inventory) []string {
	return planSharing(blocks, inv.Devices, inv.Unidentified() == 0).problems
}

// leastMPS is Volta's major compute capability. On older GPUs, clients of MPS have no limits and
// share one address space.
const leastMPS = 7

// plan is the result of applying the sharing blocks to a node's devices.
type plan struct {
	forms  map[string]form // forms by device id, only for devices that are shared
	blocks map[string]int  // number of each device's block, from 0
	// problems are the requests of the blocks that cannot be met, one sentence each, in the order
	// of the blocks.
	problems []string
}

// planSharing finds the devices of each block. A device that two blocks name stays whole. complete
// means that the list has all devices, so a name that matches no device is a problem.
func planSharing(blocks []SharingConfig, ds []gpu.Device, complete bool) plan {
	p := plan{forms: map[string]form{}, blocks: map[string]int{}}
	problem := func(block int, format string, args ...any) {
		p.problems = append(p.problems, fmt.Sprintf("sharing block %d: config key %q: %s", block+1, "sharing.gpus", fmt.Sprintf(format, args...)))
	}
	twice := map[string]bool{}
	for i, b := range blocks {
		for _, name := range b.GPUs {
			known := false
			for _, d := range ds {
				if !names(name, d) {
					continue
				}
				known = true
				other, taken := p.blocks[d.ID]
				switch {
				case b.Mode == MPS && d.Parent != "":
					if name != allGPUs {
						problem(i, "MPS cannot share MIG instance %s (matched by %q), so the instance stays whole; mode = %q can share it", d.ID, name, TimeSlicing)
					}
				case b.Mode == MPS && d.Chip.ComputeMajor > 0 && d.Chip.ComputeMajor < leastMPS:
					problem(i, "MPS can limit tasks only from compute capability %d.0 on, but %s has %d.%d, so this GPU stays whole", leastMPS, d.ID, d.Chip.ComputeMajor, d.Chip.ComputeMinor)
				case taken && other != i:
					problem(i, "GPU %s (matched by %q) is in block %d as well, so the GPU stays whole until only one block matches it", d.ID, name, other+1)
					twice[d.ID] = true
				default:
					p.blocks[d.ID] = i
				}
			}
			if !known && complete && name != allGPUs {
				problem(i, "no GPU matches %q; the GPUs of this node, by index: %s", name, namesOf(ds))
			}
		}
	}
	for id := range twice {
		delete(p.blocks, id)
	}
	p.name(blocks, ds)
	return p
}

// name sets the form of each device. GPUs of one model with different forms are in different
// groups, because a group has only one set of attributes.
func (p *plan) name(blocks []SharingConfig, ds []gpu.Device) {
	ways := map[string][]form{} // by model, in the order of the blocks
	for i, b := range blocks {
		for _, d := range ds {
			if block, ok := p.blocks[d.ID]; !ok || block != i {
				continue
			}
			f := form{Mode: b.Mode, Replicas: b.Replicas}
			k := slices.IndexFunc(ways[d.Model], func(o form) bool { return o.Mode == f.Mode && o.Replicas == f.Replicas })
			if k < 0 {
				if len(ways[d.Model]) > 0 {
					f.Suffix = fmt.Sprint("-", i+1)
				}
				ways[d.Model] = append(ways[d.Model], f)
				k = len(ways[d.Model]) - 1
			}
			p.forms[d.ID] = ways[d.Model][k]
		}
	}
}

// names reports whether a word of the key gpus matches a device: the device's UUID, its GPU's UUID,
// index or model, or all.
func names(word string, d gpu.Device) bool {
	return word != "" && (word == allGPUs || d.Is(word) || word == d.Model || word == strconv.Itoa(d.Place.Index))
}

// namesOf lists devices for an error message.
func namesOf(ds []gpu.Device) string {
	var out []string
	for _, d := range ds {
		out = append(out, fmt.Sprintf("%d: %s (%s)", d.Place.Index, d.ID, modelOf(d)))
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, ", ")
}
