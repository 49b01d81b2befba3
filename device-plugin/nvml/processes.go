// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

//go:build cgo && linux

package nvml

import (
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Processes lists the processes that compute on each GPU, those behind a
// multi-process server too. A GPU that does not answer in time, or that is still
// being asked, is left out; so is one whose driver does not tell.
func (b *Backend) Processes(ids []string) map[string][]int {
	type answer struct {
		id   string
		pids []int
	}
	asked := b.listable(ids)
	answers := make(chan answer, len(asked))
	for id, dev := range asked {
		go func() {
			pids := b.processes(dev)
			b.mu.Lock()
			delete(b.listing, id)
			b.mu.Unlock()
			answers <- answer{id, pids}
		}()
	}
	timeout := time.NewTimer(answerWithin)
	defer timeout.Stop()
	out := map[string][]int{}
	for range asked {
		select {
		case a := <-answers:
			if len(a.pids) > 0 {
				out[a.id] = a.pids
			}
		case <-timeout.C:
			return out
		}
	}
	return out
}

// listable claims the GPUs that are not being asked already.
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

// processes asks one GPU.
func (b *Backend) processes(dev nvml.Device) []int {
	b.conn.RLock()
	defer b.conn.RUnlock()
	if !b.up {
		return nil
	}
	r := &reader{sym: b.symbols}
	var pids []int
	for _, list := range []struct {
		function string
		ask      func() ([]nvml.ProcessInfo, nvml.Return)
	}{
		{"nvmlDeviceGetComputeRunningProcesses", dev.GetComputeRunningProcesses},
		{"nvmlDeviceGetMPSComputeRunningProcesses", dev.GetMPSComputeRunningProcesses},
	} {
		f := list.function
		found, _ := value(r, f+"_v3|"+f+"_v2|"+f, list.ask)
		for _, p := range found {
			pids = append(pids, int(p.Pid))
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids)
}
