// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

//go:build cgo && linux

package nvml

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
)

const (
	// eventsEvery is the time between checks of NVML's event queue. Checks happen at whole
	// multiples of this time, like the statistics, so that one wakeup serves both.
	//
	// A blocking call would deliver an event up to a second earlier, but Nomad's client sends
	// changes only every five seconds. The blocking call would also occupy a thread and keep the
	// driver open. In some versions of the library the blocking call polls, up to 100 times a
	// second.
	eventsEvery = time.Second
	// retryAfter is the pause after a failed wait or registration.
	retryAfter = time.Second
	// wholeGPU is the instance number in an event that concerns the whole GPU.
	wholeGPU = 0xFFFFFFFF
	// wanted lists the events that affect health.
	wanted = nvml.EventTypeXidCriticalError | nvml.EventTypeDoubleBitEccError | nvml.EventTypeGpuRecoveryAction |
		nvml.EventTypeGpuUnavailableError | nvml.EventTypeDramRetirementFailure | nvml.EventTypeFatalPoisonError
)

// Events delivers NVML events until ctx ends.
func (b *Backend) Events(ctx context.Context, out chan<- gpu.Event) {
	var w watch
	defer func() { b.free(&w) }()
	for ctx.Err() == nil {
		e, ok, pause := b.poll(&w)
		if ok {
			select {
			case out <- e:
			case <-ctx.Done():
			}
		}
		if pause > 0 {
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
		}
	}
}

// watch is one event set and the GPUs registered with it.
type watch struct {
	set   nvml.EventSet
	gpus  string // the UUIDs of the GPUs, joined
	init  int    // the initialization of NVML that the set belongs to
	inUse bool   // a hung call may still use the set, so the set is never freed
}

// poll takes the next event from the queue. ok reports whether there is an event to send, which may
// be an empty event that triggers a scan. pause is the time until the next poll.
func (b *Backend) poll(w *watch) (e gpu.Event, ok bool, pause time.Duration) {
	b.conn.RLock()
	defer b.conn.RUnlock()
	gpus := b.registered()
	if !b.up || len(gpus) == 0 || !b.symbols.has("nvmlEventSetCreate") || !b.symbols.has("nvmlEventSetWait_v2", "nvmlEventSetWait") {
		b.drop(w)
		return gpu.Event{}, false, retryAfter
	}
	if w.set == nil || w.gpus != joined(gpus) || w.init != b.inits {
		if !b.register(w, gpus) {
			return gpu.Event{}, false, retryAfter
		}
	}
	data, ret := w.set.Wait(0)
	switch ret {
	case nvml.SUCCESS:
		return b.event(data, gpus), true, 0
	case nvml.ERROR_TIMEOUT:
		return gpu.Event{}, false, gpu.UntilTick(time.Now(), b.eventsEvery)
	default: // a GPU is lost or the driver went away: trigger a scan, and wait before the next poll
		b.drop(w)
		return gpu.Event{}, true, retryAfter
	}
}

// registered returns the physical GPUs that answered in the latest scan.
func (b *Backend) registered() map[string]nvml.Device {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.physical)
}

func joined(gpus map[string]nvml.Device) string {
	return strings.Join(slices.Sorted(maps.Keys(gpus)), ",")
}

// register makes an event set for the GPUs. register leaves out GPUs that support no events, are
// lost or do not answer. Callers hold conn.
func (b *Backend) register(w *watch, gpus map[string]nvml.Device) bool {
	b.drop(w)
	set, ret := b.lib.EventSetCreate()
	if ret != nvml.SUCCESS {
		return false
	}
	taken := make(chan bool, len(gpus))
	for _, dev := range gpus {
		go func() { taken <- b.registerGPU(dev, set) }()
	}
	inTime, complete := collect(taken, len(gpus), b.within)
	any := slices.Contains(inTime, true)
	if complete && !any {
		set.Free()
		return false
	}
	// The next scan leaves out GPUs that hang, and a new set replaces this one. This set is not
	// freed, because a hung call may still use it.
	*w = watch{set: set, gpus: joined(gpus), init: b.inits, inUse: !complete}
	return any
}

// drop abandons and frees the event set. Otherwise each failed wait, up to one per second, would
// leak a set. drop does not free a set that NVML's shutdown has freed, or that a hung call may
// still use. Callers hold conn.
func (b *Backend) drop(w *watch) {
	if w.set != nil && !w.inUse && b.up && w.init == b.inits {
		w.set.Free()
	}
	w.set = nil
}

// registerGPU registers one GPU's events with the set.
func (b *Backend) registerGPU(dev nvml.Device, set nvml.EventSet) bool {
	r := &reader{sym: b.symbols}
	mask, ok := value(r, "nvmlDeviceGetSupportedEventTypes", dev.GetSupportedEventTypes)
	if !ok || mask&wanted == 0 || !b.symbols.has("nvmlDeviceRegisterEvents") {
		return false
	}
	return dev.RegisterEvents(mask&wanted, set) == nvml.SUCCESS
}

// event translates an NVML event into an event of the plugin. An event without an Xid only triggers
// a scan, which reads what changed.
func (b *Backend) event(data nvml.EventData, gpus map[string]nvml.Device) gpu.Event {
	id := ""
	for uuid, dev := range gpus {
		if dev == data.Device {
			id = uuid
		}
	}
	if id == "" && b.symbols.has("nvmlDeviceGetUUID") && data.Device != nil {
		id, _ = data.Device.GetUUID()
	}
	e := gpu.Event{GPU: id}
	if data.EventType == nvml.EventTypeXidCriticalError {
		e.Xid = int(data.EventData)
	}
	if data.EventType == nvml.EventTypeDoubleBitEccError {
		e.Xid = 48
	}
	if data.GpuInstanceId != wholeGPU {
		e.GPU = b.instance(id, int(data.GpuInstanceId), data.ComputeInstanceId)
	}
	return e
}

// instance returns the UUID of the MIG instance with these ids, or of the whole GPU if there is no
// such instance.
func (b *Backend) instance(physical string, gi int, ci uint32) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := physical
	for id, h := range b.handles {
		if h.physical == physical && h.parent != nil && h.gi == gi && (ci == wholeGPU || h.ci == int(ci)) {
			found = id
		}
	}
	return found
}

// free drops the event set at the end of the event source.
func (b *Backend) free(w *watch) {
	b.conn.RLock()
	defer b.conn.RUnlock()
	b.drop(w)
}
