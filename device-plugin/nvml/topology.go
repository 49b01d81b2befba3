// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

//go:build cgo && linux

package nvml

import (
	"cmp"
	"slices"
	"strings"
	"time"

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

// topologyCache holds the numbers of islands and switches for one set of GPUs. The numbers change
// only if the set changes, and querying all pairs is slow. All pairs are queried again if a silent
// GPU answers again, or if a link is up for the first time.
type topologyCache struct {
	set    string
	asked  map[string]links // links of the GPUs that answered, by UUID
	sw     map[string]int   // PCIe switch by physical UUID
	island map[string]int
	p2p    map[string]string
}

// topology numbers NVLink islands and PCIe switches, in the order of the GPUs' UUIDs.
func (b *Backend) topology(fs []found) {
	fs = slices.SortedFunc(slices.Values(fs), func(a, b found) int { return cmp.Compare(a.uuid, b.uuid) })
	uuids := make([]string, len(fs))
	for i, f := range fs {
		uuids[i] = f.uuid
	}
	set := strings.Join(uuids, ",")
	b.mu.Lock()
	cache := b.pairs
	b.mu.Unlock()
	if cache.set != set || cache.lacks(fs) {
		cache = b.survey(set, fs, cache)
		b.mu.Lock()
		b.pairs = cache
		b.mu.Unlock()
	}
	for _, f := range fs {
		for i := range f.devices {
			d := &f.devices[i]
			d.PCIeSwitch, d.P2P = cache.sw[f.uuid], cache.p2p[f.uuid]
			if d.Parent != "" { // MIG instances have no NVLink
				d.Island, d.Links, d.P2P = -1, 0, "none"
				continue
			}
			d.Island = cache.island[f.uuid]
		}
	}
}

// lacks reports whether a GPU can now answer a question whose answer is not in the cache.
func (c topologyCache) lacks(fs []found) bool {
	for _, f := range fs {
		if !f.answers() {
			continue
		}
		l, asked := c.asked[f.uuid]
		if !asked || f.links.toSW && !l.toSW {
			return true
		}
		for bus := range f.links.toward {
			if !l.toward[bus] {
				return true
			}
		}
	}
	return false
}

// answers reports whether a GPU could be read.
func (f found) answers() bool { return f.dev != nil && f.err == nil }

// survey queries every pair of GPUs. While NVML does not answer, survey returns the switches of the
// last survey of the same GPUs.
func (b *Backend) survey(set string, fs []found, last topologyCache) topologyCache {
	byBus := map[string]int{}
	for i, f := range fs {
		if len(f.devices) > 0 {
			byBus[f.devices[0].BusID] = i
		}
	}
	islands := newUnion(len(fs))
	firstSW := -1
	for i, f := range fs {
		for bus := range f.links.toward {
			if j, ok := byBus[bus]; ok {
				islands.join(i, j)
			}
		}
		if f.links.toSW {
			if firstSW < 0 {
				firstSW = i
			}
			islands.join(firstSW, i)
		}
	}
	c := topologyCache{set: set, asked: map[string]links{}, sw: map[string]int{}, island: map[string]int{}, p2p: map[string]string{}}
	switches, known := b.switches(fs)
	if numberSets(switches, fs, c.sw); !known && set == last.set {
		c.sw = last.sw
	}
	numberSets(islands, fs, c.island)
	for i, f := range fs {
		if f.answers() && known {
			c.asked[f.uuid] = f.links
		}
		c.p2p[f.uuid] = "pcie"
		switch {
		case f.links.toSW:
			c.p2p[f.uuid] = "nvswitch"
		case islands.size(i) > 1:
			c.p2p[f.uuid] = "nvlink"
		case len(fs) == 1:
			c.p2p[f.uuid] = "none"
		}
	}
	return c
}

// pairsWithin is the maximum time of the calls for all pairs of GPUs in a scan. A later answer
// counts in the next scan.
const pairsWithin = time.Second

// pairing is a running query about all pairs of GPUs. The query has its own goroutine, because a
// call that hangs must not delay the scan.
type pairing struct {
	devs   []nvml.Device // nil for GPUs that did not answer
	answer chan union
}

// switches joins GPUs whose traffic does not cross the host bridge. If NVML has not answered in
// time, known is false, and no GPUs are joined.
func (b *Backend) switches(fs []found) (joined union, known bool) {
	devs := make([]nvml.Device, len(fs))
	for i, f := range fs {
		if f.answers() {
			devs[i] = f.dev
		}
	}
	wait := pairsWithin
	if b.pairing != nil {
		wait = time.Millisecond // not 0: select takes any ready case, and a late answer is to count
	} else {
		b.pairing = &pairing{devs, make(chan union, 1)}
		go b.pairing.ask(b)
	}
	select {
	case joined = <-b.pairing.answer:
	case <-time.After(wait):
		return newUnion(len(fs)), false
	}
	if was := b.pairing.devs; !slices.Equal(was, devs) { // a late answer about other GPUs
		b.pairing = nil
		return b.switches(fs)
	}
	b.pairing = nil
	return joined, true
}

// ask queries for each pair whether the traffic crosses the host bridge, and sends the answer.
func (p *pairing) ask(b *Backend) {
	u := newUnion(len(p.devs))
	defer func() { p.answer <- u }()
	b.conn.RLock()
	defer b.conn.RUnlock()
	if !b.up {
		return
	}
	for i, one := range p.devs {
		for j, other := range p.devs[:i] {
			if one == nil || other == nil {
				continue
			}
			r := &reader{sym: b.symbols}
			level, ok := value(r, "nvmlDeviceGetTopologyCommonAncestor", func() (nvml.GpuTopologyLevel, nvml.Return) {
				return one.GetTopologyCommonAncestor(other)
			})
			if ok && level <= nvml.TOPOLOGY_MULTIPLE {
				u.join(i, j)
			}
		}
	}
}

// numberSets numbers the sets with more than one member, in the order of their first members. If a
// set has only one member, the member gets -1.
func numberSets(u union, fs []found, out map[string]int) {
	numbers := map[int]int{}
	for i, f := range fs {
		root := u.find(i)
		if u.size(i) < 2 {
			out[f.uuid] = -1
			continue
		}
		if _, ok := numbers[root]; !ok {
			numbers[root] = len(numbers)
		}
		out[f.uuid] = numbers[root]
	}
}

// union is a partition of the integers from 0 to n-1 into sets.
type union []int

func newUnion(n int) union {
	u := make(union, n)
	for i := range u {
		u[i] = i
	}
	return u
}

func (u union) find(i int) int {
	for u[i] != i {
		i = u[i]
	}
	return i
}

func (u union) join(i, j int) { u[u.find(i)] = u.find(j) }

func (u union) size(i int) int {
	n := 0
	for j := range u {
		if u.find(j) == u.find(i) {
			n++
		}
	}
	return n
}
