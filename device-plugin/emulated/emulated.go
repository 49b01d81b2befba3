// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package emulated

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
)

// pollInterval is the time between two checks of the inventory file for changes.
const pollInterval = 200 * time.Millisecond

// Backend serves the GPUs of an inventory file.
type Backend struct {
	path string

	mu    sync.Mutex
	stamp stamp
	inv   *inventory // last valid one; nil before the first
	err   error      // error of the last read
	done  chan struct{}
	once  sync.Once
}

// stamp identifies a file's version. A stamp includes the size, because a file can change twice
// within the clock's resolution.
type stamp struct {
	mod  time.Time
	size int64
}

// Open returns the backend. The file need not exist yet.
func Open(path string) *Backend { return &Backend{path: path, done: make(chan struct{})} }

// Disconnect does nothing: there is no driver.
func (*Backend) Disconnect() {}

// Close ends scans that hang because a GPU has the fault hang-driver.
func (b *Backend) Close() { b.once.Do(func() { close(b.done) }) }

// Scan returns the inventory. If the file becomes unreadable or invalid, Scan returns the last
// valid inventory, with a warning. If there is no valid inventory yet, Scan reports that there is
// no driver.
func (b *Backend) Scan() (gpu.Inventory, error) {
	inv, err := b.load()
	for inv != nil && inv.hang {
		select {
		case <-b.done:
			return gpu.Inventory{}, &gpu.Unavailable{What: "closed"}
		case <-time.After(pollInterval):
			inv, err = b.load()
		}
	}
	if inv == nil {
		return gpu.Inventory{}, &gpu.Unavailable{What: "no usable inventory file", Err: err}
	}
	if inv.unavailable != "" {
		return gpu.Inventory{}, &gpu.Unavailable{What: inv.unavailable}
	}
	out := inv.devices
	out.Complete = true // whoever edits the file removes GPUs on purpose
	out.Devices = append([]gpu.Device(nil), inv.devices.Devices...)
	if err != nil {
		out.Warnings = []string{fmt.Sprintf("%v; the previous inventory stays in force", err)}
	}
	return out, nil
}

// load reads the file if it has changed.
func (b *Backend) load() (*inventory, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now, err := stampOf(b.path)
	if err != nil {
		b.stamp, b.err = stamp{}, fmt.Errorf("reading inventory: %w", err)
		return b.inv, b.err
	}
	if now == b.stamp {
		return b.inv, b.err
	}
	b.stamp = now
	inv, err := read(b.path)
	b.err = err
	if err == nil {
		b.inv = inv
	}
	return b.inv, b.err
}

func stampOf(path string) (stamp, error) {
	st, err := os.Stat(path)
	if err != nil {
		return stamp{}, err
	}
	return stamp{st.ModTime(), st.Size()}, nil
}

// Events sends an event for each change of the file, and for each new Xid in it, until ctx ends.
func (b *Backend) Events(ctx context.Context, out chan<- gpu.Event) {
	known := map[string]int{}
	last, _ := stampOf(b.path)
	b.announce(ctx, known, out)
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now, _ := stampOf(b.path)
		if now == last {
			continue
		}
		last = now
		b.announce(ctx, known, out)
		send(ctx, out, gpu.Event{})
	}
}

// announce sends an event for each Xid that differs from the last known Xid.
func (b *Backend) announce(ctx context.Context, known map[string]int, out chan<- gpu.Event) {
	inv, _ := b.load()
	if inv == nil {
		return
	}
	for _, d := range inv.devices.Devices {
		xid := inv.xids[d.ID]
		if xid != 0 && known[d.ID] != xid {
			send(ctx, out, gpu.Event{GPU: d.ID, Xid: xid})
		}
		known[d.ID] = xid
	}
}

func send(ctx context.Context, out chan<- gpu.Event, e gpu.Event) {
	select {
	case out <- e:
	case <-ctx.Done():
	}
}

// Sample returns readings from the fields in the file. Without these fields, a GPU has the readings
// of an idle GPU.
func (b *Backend) Sample(ids []string) map[string]gpu.Sample {
	inv, _ := b.load()
	out := make(map[string]gpu.Sample, len(ids))
	for _, id := range ids {
		if inv == nil {
			break
		}
		f, ok := inv.samples[id]
		fault := or(f.Fault, "")
		switch {
		case !ok || inv.hang:
		case fault == faultLost || fault == faultHang:
			out[id] = gpu.Sample{NoSampleReason: fault}
		default:
			out[id] = sample(f)
		}
	}
	return out
}

func sample(f fields) gpu.Sample {
	util := or(f.UtilPercent, 0)
	clock := or(f.CoresClockMHz, 1980)
	if util == 0 {
		clock = 345 // what an idle H200 shows
	}
	throttle := "none"
	switch or(f.Fault, "") {
	case faultThermal:
		throttle = gpu.ThrottleHWThermal
	case faultBrake:
		throttle = gpu.ThrottleBrake
	}
	return gpu.Sample{
		PowerW: new(or(f.PowerW, 75)), PowerLimitW: new(or(f.PowerLimitW, 700)),
		GPUPercent: new(util), MemoryPercent: new(util / 2), EncoderPercent: new(int64(0)), DecoderPercent: new(int64(0)),
		TemperatureC: new(or(f.TemperatureC, 30)), MemoryUsedMiB: new(int64(0)), MemoryTotalMiB: new(or(f.MemoryMiB, 143771)),
		BAR1UsedMiB: new(int64(1)), BAR1TotalMiB: new(or(f.BAR1MiB, 262144)),
		ECC: gpu.ECCErrors{L1: new(int64(0)), L2: new(int64(0)), Memory: new(int64(0))}, SMClockMHz: new(clock), Throttle: &throttle,
	}
}
