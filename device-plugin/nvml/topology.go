// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

//go:build cgo && linux

package nvml

import (
	"cmp"
	"maps"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// links describes the NVLinks of one GPU.
type links struct {
	active int
	toward map[string]bool // bus ids of the GPUs at the other end
	toSW   bool            // an NVSwitch is at the other end
	known  bool
}

// readLinks reads the state of all links. NVML's headers disagree about the number of links, so the
// first link without an answer ends the list.
func readLinks(r *reader, dev nvml.Device) links {
	l := links{toward: map[string]bool{}}
	for i := range nvml.NVLINK_MAX_LINKS {
		on, ret := answer(r, "nvmlDeviceGetNvLinkState", func() (nvml.EnableState, nvml.Return) { return dev.GetNvLinkState(i) })
		if ret != nvml.SUCCESS {
			break
		}
		l.known = true
		if on != nvml.FEATURE_ENABLED {
			continue
		}
		l.active++
		kind, ok := value(r, "nvmlDeviceGetNvLinkRemoteDeviceType", func() (nvml.IntNvLinkDeviceType, nvml.Return) {
			return dev.GetNvLinkRemoteDeviceType(i)
		})
		if ok && kind == nvml.NVLINK_DEVICE_TYPE_SWITCH {
			l.toSW = true
			continue
		}
		if pci, ok := value(r, "nvmlDeviceGetNvLinkRemotePciInfo_v2|nvmlDeviceGetNvLinkRemotePciInfo", func() (nvml.PciInfo, nvml.Return) {
			return dev.GetNvLinkRemotePciInfo(i)
		}); ok {
			l.toward[busID(pci)] = true
		}
	}
	return l
}

// compareLinks marks GPUs that have fewer links than others of the same model. If bridges join the
// cards, a card without links is not marked, because it has no bridge. The roster finds the links
// that a GPU has lost.
func compareLinks(fs []found) {
	most, switched := map[string]int{}, map[string]bool{}
	for _, f := range fs {
		if len(f.devices) > 0 && f.devices[0].Parent == "" {
			model := f.devices[0].Model
			most[model], switched[model] = max(most[model], f.links.active), switched[model] || f.links.toSW
		}
	}
	for _, f := range fs {
		for i := range f.devices {
			d := &f.devices[i]
			compared := f.links.active > 0 || switched[d.Model]
			if d.Parent == "" && f.links.known && compared && f.links.active < most[d.Model] {
				d.Signals.NVLinkDown = true
			}
		}
	}
}

// topology numbers the NVLink islands in the order of the GPUs' UUIDs. Links that are down now still
// count, because each change of a number would register the node again.
func (b *Backend) topology(fs []found) {
	fs = slices.SortedFunc(slices.Values(fs), func(a, b found) int { return cmp.Compare(a.uuid, b.uuid) })
	byBus := map[string]int{}
	for i, f := range fs {
		byBus[f.busID()] = i
	}
	set, firstSwitched := make([]int, len(fs)), -1
	for i := range set {
		set[i] = i
	}
	join := func(i, j int) {
		from, to := set[i], set[j]
		for k := range set {
			if set[k] == from {
				set[k] = to
			}
		}
	}
	for i, f := range fs {
		l := b.everLinked(f)
		for bus := range l.toward {
			if j, ok := byBus[bus]; ok {
				join(i, j)
			}
		}
		if l.toSW {
			if firstSwitched < 0 {
				firstSwitched = i
			}
			join(firstSwitched, i)
		}
	}
	numbers := islands(set)
	for i, f := range fs {
		for j := range f.devices {
			d := &f.devices[j]
			d.NVLink.Island = numbers[i]
			if d.Parent != "" { // MIG instances have no NVLink
				d.NVLink.Island, d.NVLink.Active = -1, 0
			}
		}
	}
}

// everLinked returns all links that a GPU has had in this process.
func (b *Backend) everLinked(f found) links {
	l, known := b.linked[f.uuid]
	if !known {
		l.toward = map[string]bool{}
	}
	maps.Copy(l.toward, f.links.toward)
	l.toSW = l.toSW || f.links.toSW
	b.linked[f.uuid] = l
	return l
}

// islands numbers the sets of joined GPUs that have more than one member, in the order of their first
// members. The members of smaller sets get -1. set has the same number for joined GPUs.
func islands(set []int) []int {
	out, number := make([]int, len(set)), map[int]int{}
	for i, s := range set {
		out[i] = -1
		if slices.Index(set, s) == i && slices.Contains(set[i+1:], s) {
			number[s] = len(number)
		}
		if n, ok := number[s]; ok {
			out[i] = n
		}
	}
	return out
}
