// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

//go:build cgo && linux

package nvml

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
)

// answerWithin is the maximum time of the calls for one GPU in a scan. A call that hangs cannot be
// cancelled, so the GPU is not read again until the call returns.
const answerWithin = 5 * time.Second

// startWithin replaces answerWithin until the first GPU has been read. With persistence mode off,
// the driver starts the GPUs one after the other, and each takes some seconds. startWithin is
// shorter than the time that commands wait (see [gpu.DriverWithin]). Later scans must be shorter,
// because a scan of this length would count as hung.
const startWithin = 15 * time.Second

// slot is one physical GPU, with its NVML index. In scans, the slot's goroutine reads the GPU.
type slot struct {
	index   int
	reading chan found // delivers the outcome of the read that was begun; nil for none
	late    bool       // the read was begun in an earlier scan
	found   found      // the last read that identified the GPU
	known   bool
}

// found is the data from one read of a physical GPU.
type found struct {
	uuid     string
	devices  []gpu.Device
	handles  map[string]handle
	dev      nvml.Device
	init     int // the initialization of NVML that the handles belong to
	links    links
	warnings []string
	// signals apply to all devices of the GPU.
	signals  gpu.Signals
	division division
	fatal    gpu.Failure // the answer that said that the GPU is lost, or must be reset
	err      error
}

// Scan reads all GPUs, each in its own goroutine, so that a GPU that hangs delays no other.
func (b *Backend) Scan() (gpu.Inventory, error) {
	if err := b.connect(); err != nil {
		return gpu.Inventory{}, err
	}
	inv, err := b.scan()
	if errors.Is(err, errDriverGone) {
		b.Disconnect()
	}
	return inv, err
}

func (b *Backend) scan() (gpu.Inventory, error) {
	inv := gpu.Inventory{Boot: b.bootID(), DriverLoad: b.driverLoad()}
	count, err := b.system(&inv)
	if err != nil {
		return gpu.Inventory{}, err
	}
	if overruns(inv.DriverVersion) {
		inv.Warnings = append(inv.Warnings, fmt.Sprintf("driver %q has a bug that damages memory when it lists processes. So the plugin does not know which GPUs are idle, and measures no GPU (driver 535.98 works)", inv.DriverVersion))
	}
	fs, err := b.identified(&inv, b.readAll(count))
	if err != nil {
		return gpu.Inventory{}, err
	}
	compareLinks(fs)
	b.topology(fs)
	b.remember(fs)
	list(&inv, fs)
	if b.outdated() {
		for i := range inv.Devices {
			d := &inv.Devices[i]
			if !d.Signals.Lost && d.Unusable == "" {
				d.Unusable = gpu.LibraryReplaced
			}
		}
	}
	slices.Sort(inv.Warnings)
	return inv, nil
}

// identified returns the GPUs whose identity is known, including those that an earlier scan found.
// identified adds GPUs without a known identity to the inventory as hidden, with the reason.
func (b *Backend) identified(inv *gpu.Inventory, reads []found) ([]found, error) {
	var fs []found
	at := map[string]int{} // index in fs by UUID
	for _, f := range reads {
		if errors.Is(f.err, errDriverGone) {
			return nil, &gpu.Unavailable{What: "the NVIDIA driver went away", Err: f.err}
		}
		inv.Warnings = append(inv.Warnings, f.warnings...)
		unread := (*unreadable)(nil)
		if errors.As(f.err, &unread) {
			if f.uuid == "" {
				inv.Hidden = append(inv.Hidden, unread.Hidden)
				continue
			}
			inv.Warnings = append(inv.Warnings, unread.Error())
		}
		j, twice := at[f.uuid]
		if !twice {
			at[f.uuid] = len(fs)
			fs = append(fs, f)
			continue
		}
		// One GPU can be read twice, because the indexes change when another GPU falls off the bus.
		other := f.busID()
		if fs[j].err == nil && f.err == nil && (other == "" || other != fs[j].busID()) {
			fs[j] = fs[j].unusable(gpu.SameUUID)
			inv.Warnings = append(inv.Warnings, fmt.Sprintf("the GPUs at %s and %s both have the UUID %s, so no job can use either GPU", fs[j].busID(), other, f.uuid))
		}
	}
	seen := map[string]bool{}
	for uuid := range at {
		seen[uuid] = true
	}
	return append(fs, b.vanished(seen)...), nil
}

// busID returns the PCI address of the GPU; "" if unknown.
func (f found) busID() string { return f.devices[0].Place.BusID }

// unusable returns a copy of f in which all devices are unusable for this reason.
func (f found) unusable(why string) found {
	f.devices = slices.Clone(f.devices)
	for i := range f.devices {
		f.devices[i].Unusable = why
	}
	return f
}

// list adds the devices to the inventory.
func list(inv *gpu.Inventory, fs []found) {
	for _, f := range fs {
		inv.Devices = append(inv.Devices, f.devices...)
	}
	gpu.Sort(inv.Devices)
}

// system reads the driver's values and the number of GPUs.
func (b *Backend) system(inv *gpu.Inventory) (int, error) {
	b.conn.RLock()
	defer b.conn.RUnlock()
	if !b.up {
		return 0, &gpu.Unavailable{What: "NVML is shut down"}
	}
	r := &reader{sym: b.symbols}
	driver, _ := value(r, "nvmlSystemGetDriverVersion", b.lib.SystemGetDriverVersion)
	inv.DriverVersion = gpu.Printable(driver)
	if v, ok := value(r, "nvmlSystemGetCudaDriverVersion_v2|nvmlSystemGetCudaDriverVersion", b.lib.SystemGetCudaDriverVersion); ok {
		inv.CUDAMajor, inv.CUDAMinor = v/1000, v%1000/10
	}
	count, ret := answer(r, "nvmlDeviceGetCount_v2|nvmlDeviceGetCount", b.lib.DeviceGetCount)
	if gone(ret) {
		return 0, &gpu.Unavailable{What: "the NVIDIA driver went away", Err: fmt.Errorf("%w: %w", errDriverGone, code(ret)), Restart: ret == nvml.ERROR_LIB_RM_VERSION_MISMATCH}
	}
	if ret != nvml.SUCCESS {
		return 0, &gpu.Unavailable{What: "NVML does not report the number of GPUs", Err: code(ret)}
	}
	if count < 0 || count > mostGPUs {
		return 0, &gpu.Unavailable{What: fmt.Sprintf("NVML reports an impossible number of GPUs: %d", count)}
	}
	return count, nil
}

// readAll reads the GPUs with indexes below count, all at the same time.
func (b *Backend) readAll(count int) []found {
	b.mu.Lock()
	for len(b.slots) < count {
		b.slots = append(b.slots, &slot{index: len(b.slots)})
	}
	slots := b.slots[:count]
	within := b.within
	if len(b.known) == 0 {
		within = startWithin
	}
	b.mu.Unlock()
	for _, s := range slots {
		b.start(s)
	}
	timeout := time.NewTimer(within)
	defer timeout.Stop()
	out := make([]found, 0, count)
	expired := false
	for _, s := range slots {
		f, ok := b.await(s, timeout, &expired)
		if !ok {
			f = s.unanswered()
		}
		out = append(out, b.settle(s, f))
	}
	return out
}

// await waits for the read of one GPU until the time limit for all GPUs. await does not wait for
// GPUs that hang.
func (b *Backend) await(s *slot, timeout *time.Timer, expired *bool) (found, bool) {
	if *expired || s.late {
		select {
		case f := <-s.reading:
			s.reading = nil
			return f, true
		default:
			return found{}, false
		}
	}
	select {
	case f := <-s.reading:
		s.reading = nil
		return f, true
	case <-timeout.C:
		*expired = true
		return found{}, false
	}
}

// start reads one GPU in its own goroutine. start does nothing if an earlier read still runs, or
// has ended since the previous scan: an answer that comes too late for its scan counts in this one,
// so a GPU that is always slow does not count as hung.
func (b *Backend) start(s *slot) {
	if s.reading != nil {
		select {
		case f := <-s.reading:
			if b.current(f) {
				s.reading <- f
				return
			}
		default:
			s.late = true
			return
		}
	}
	reading := make(chan found, 1)
	s.reading, s.late = reading, false
	go func() { reading <- b.readConnected(s.index) }()
}

// current reports whether a read belongs to the present initialization of NVML.
func (b *Backend) current(f found) bool {
	b.conn.RLock()
	defer b.conn.RUnlock()
	return f.init == b.inits
}

// readConnected reads one GPU unless the driver has gone away.
func (b *Backend) readConnected(index int) found {
	b.conn.RLock()
	defer b.conn.RUnlock()
	if !b.up {
		return found{err: errDriverGone}
	}
	f := b.readGPU(index)
	f.init = b.inits
	return f
}

// settle stores a good read, and fills the gaps of a bad read from the last good read.
func (b *Backend) settle(s *slot, f found) found {
	if f.err == nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		last, known := b.known[f.uuid]
		if known {
			f = f.completed(last)
		} else if f.signals.Lost {
			h := gpu.Hidden{Index: s.index, ID: f.uuid, Why: f.fatal.String(), Code: f.fatal.Code, Lost: true}
			return found{err: &unreadable{h, f.signals}}
		}
		s.found, s.known = f, true
		b.known[f.uuid] = f
		return f
	}
	var unread *unreadable
	if !s.known || !errors.As(f.err, &unread) {
		return f
	}
	last := s.found.withSignals(unread.signals)
	last.err, last.warnings = f.err, f.warnings
	return last
}

// completed fills the gaps of a read from the last good read. A GPU that is lost, or must be reset,
// does not return its properties, and MIG instances can be unreadable.
func (f found) completed(last found) found {
	switch {
	case f.signals.Lost || f.signals.ResetRequired:
		last.dev, last.warnings = f.dev, f.warnings
		return last.withSignals(f.signals)
	case f.division.unknown && (!f.division.on || last.devices[0].Parent != ""):
		f.devices, f.handles = last.withSignals(f.signals).devices, last.handles
	}
	return f
}

// unanswered returns the result for a GPU whose calls hang.
func (s *slot) unanswered() found {
	return found{err: &unreadable{gpu.Hidden{Index: s.index, Why: gpu.Silent}, gpu.Signals{Unanswered: true}}}
}

// unreadable describes a GPU that exists but cannot be read, with the reason.
type unreadable struct {
	gpu.Hidden
	signals gpu.Signals
}

func (u *unreadable) Error() string { return u.String() }

// withSignals returns f with these signals for all its devices.
func (f found) withSignals(s gpu.Signals) found {
	f.signals = s
	f.devices = slices.Clone(f.devices)
	for i := range f.devices {
		f.devices[i].Signals = s
	}
	for _, m := range f.division.instances { // failed questions of an instance concern only that instance
		i := slices.IndexFunc(f.devices, func(d gpu.Device) bool { return d.ID == m.device.ID })
		if i >= 0 && len(m.failed) > 0 {
			f.devices[i].Signals.Failed = slices.Concat(s.Failed, m.failed)
		}
	}
	return f
}

// vanished returns the GPUs that an earlier scan found but the driver no longer lists, because they
// fell off the bus. Until the plugin restarts, the inventory contains these GPUs as lost.
func (b *Backend) vanished(seen map[string]bool) []found {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []found
	for uuid, f := range b.known {
		if !seen[uuid] {
			f.dev = nil
			out = append(out, f.withSignals(gpu.Signals{Lost: true, Unlisted: true}))
		}
	}
	slices.SortFunc(out, func(a, b found) int { return cmp.Compare(a.uuid, b.uuid) })
	return out
}

// remember stores the handles of GPUs that answer, for samples and events.
func (b *Backend) remember(fs []found) {
	b.conn.RLock()
	defer b.conn.RUnlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.handles, b.physical = map[string]handle{}, map[string]nvml.Device{}
	for _, f := range fs {
		if f.dev == nil || f.init != b.inits || len(f.devices) > 0 && f.devices[0].Signals.Unanswered {
			continue
		}
		b.physical[f.uuid] = f.dev
		maps.Copy(b.handles, f.handles)
	}
}
