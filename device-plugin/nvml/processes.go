// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

//go:build cgo && linux

package nvml

import (
	"fmt"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Processes lists the processes that compute or draw on each GPU, including processes behind an MPS
// server.
// Processes leaves out GPUs that are lost, are still being read, do not answer in time, or refuse
// permission. If the driver cannot list processes, the result is empty.
func (b *Backend) Processes(ids []string) map[string][]int {
	type answer struct {
		id   string
		pids []int
		ok   bool
	}
	asked := b.listable(ids)
	answers := make(chan answer, len(asked))
	for id, dev := range asked {
		go func() {
			pids, ok := b.processesOf(dev)
			b.mu.Lock()
			delete(b.listing, id)
			b.mu.Unlock()
			answers <- answer{id, pids, ok}
		}()
	}
	out := map[string][]int{}
	inTime, _ := collect(answers, len(asked), answerWithin)
	for _, a := range inTime {
		if a.ok {
			out[a.id] = a.pids
		}
	}
	return out
}

// collect returns the results that arrive in time, and whether all n arrived.
func collect[T any](results <-chan T, n int, within time.Duration) (inTime []T, complete bool) {
	timeout := time.NewTimer(within)
	defer timeout.Stop()
	for range n {
		select {
		case r := <-results:
			inTime = append(inTime, r)
		case <-timeout.C:
			return inTime, false
		}
	}
	return inTime, true
}

// listable claims the GPUs whose processes no other call is listing.
func (b *Backend) listable(ids []string) map[string]nvml.Device {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := map[string]nvml.Device{}
	for _, id := range ids {
		if h, ok := b.handles[id]; ok && !b.listing[id] {
			b.listing[id] = true
			out[id] = h.dev
		}
	}
	return out
}

// overruns reports whether the driver is R535 before 535.98, whose
// nvmlDeviceGetComputeRunningProcesses_v3 writes 32 bytes per process; other versions write 24
// (XuehaiPan/nvitop#79). If the version is unknown, the result is true.
func overruns(driver string) bool {
	var major, minor int
	_, err := fmt.Sscanf(driver, "%d.%d", &major, &minor)
	return err != nil || major == 535 && minor < 98
}

// processesOf lists the processes of one GPU; ok is false if the GPU did not answer.
func (b *Backend) processesOf(dev nvml.Device) (pids []int, ok bool) {
	b.conn.RLock()
	defer b.conn.RUnlock()
	if !b.up || b.overruns {
		return nil, false
	}
	r := &reader{sym: b.symbols}
	for _, list := range []struct {
		function string
		ask      func() ([]nvml.ProcessInfo, nvml.Return)
	}{
		{"nvmlDeviceGetComputeRunningProcesses", dev.GetComputeRunningProcesses},
		{"nvmlDeviceGetMPSComputeRunningProcesses", dev.GetMPSComputeRunningProcesses},
		{"nvmlDeviceGetGraphicsRunningProcesses", dev.GetGraphicsRunningProcesses}, // such as Xorg
	} {
		f := list.function
		found, ret := answer(r, f+"_v3|"+f+"_v2|"+f, list.ask)
		switch ret {
		case nvml.SUCCESS, nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND:
		default:
			return nil, false
		}
		for _, p := range found {
			pids = append(pids, int(p.Pid))
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids), true
}
