// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measure

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/pal/attr"
)

// use describes what uses a GPU, or is zero for an unused GPU.
type use struct {
	busy bool   // by is only the driver's utilization
	by   string // what uses the GPU according to the driver, for display
}

// uses returns what uses the GPUs with the given ids, according to the driver. The parameter all
// lists every GPU of the node. A GPU without a reported use can still be allocated to a task that
// does not use it yet.
func (r Runner) uses(all []gpu.Device, ids []string) map[string]use {
	var samples map[string]gpu.Sample
	if r.Sample != nil {
		samples = r.Sample(ids)
	}
	var pids map[string][]int
	if r.Processes != nil {
		pids = r.Processes(ids)
	}
	system := map[string]bool{}
	for _, d := range all {
		system[d.ID] = d.SystemMemory
	}
	out := make(map[string]use, len(ids))
	for _, id := range ids {
		out[id] = busyBy(samples[id], system[id])
		found, known := pids[id]
		switch {
		case len(found) > 0:
			out[id] = use{by: describeProcess(r.procDir(), found[0])}
		case r.Processes != nil && !known:
			out[id] = use{by: "the driver does not report which processes compute on it"}
		}
	}
	return out
}

func (r Runner) procDir() string { return cmp.Or(r.proc, "/proc") }

// intruders returns, for each measured GPU, the foreign process that computes on it.
func (r Runner) intruders(ids []string) map[string]string {
	out := map[string]string{}
	if r.Processes == nil {
		return out
	}
	for id, pids := range r.Processes(ids) {
		for _, pid := range pids {
			if parent, ok := parentOf(r.procDir(), pid); ok && parent != os.Getpid() {
				out[id] = describeProcess(r.procDir(), pid)
			}
		}
	}
	return out
}

// parentOf returns the parent of a process. ok is false if the process has ended or is not visible.
func parentOf(proc string, pid int) (parent int, ok bool) {
	stat, _ := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "stat")) // without a process, there are no fields
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])        // the fields after the name
	if len(fields) < 2 {
		return 0, false
	}
	parent, err := strconv.Atoi(string(fields[1]))
	return parent, err == nil
}

// describeProcess names a process for display. The process chooses its name, so the text can be
// anything.
func describeProcess(proc string, pid int) string {
	name, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "comm"))
	if err != nil { // the process has ended, or runs in another container
		return fmt.Sprintf("process %d", pid)
	}
	return fmt.Sprintf("process %d, %s", pid, gpu.Printable(string(bytes.TrimSpace(name))))
}

// idleMemoryMiB is the allocated memory up to which a GPU counts as idle, because some drivers
// reserve memory for themselves.
const idleMemoryMiB = 1024

// busyBy returns what seems to use a GPU, according to its telemetry. systemMemory means that the
// system can keep pages in the GPU's memory, so used memory proves nothing.
func busyBy(s gpu.Sample, systemMemory bool) use {
	used := s.AllocatedMiB()
	switch {
	case used != nil && *used > idleMemoryMiB && !systemMemory:
		return use{by: fmt.Sprintf("%d MiB of its memory", *used)}
	case s.GPUPercent != nil && *s.GPUPercent > 0:
		return use{by: fmt.Sprintf("utilization %d %%", *s.GPUPercent), busy: true}
	}
	return use{}
}

// tasks inspects every process for the tickets of reservations. The result has an entry for each
// ticket whose task has a process. The value is true if a process requests a measurement. Only root
// can read the processes of other users.
func (r Runner) tasks(tickets map[string]string) map[string]bool {
	shown := map[string]bool{}
	entries, _ := os.ReadDir(r.procDir()) // without /proc, no task is visible
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		env := environment(r.procDir(), pid)
		ticket := env[attr.EnvReservation]
		for _, t := range tickets {
			if t == ticket && ticket != "" {
				shown[ticket] = shown[ticket] || env[attr.EnvMeasure] != ""
			}
		}
	}
	return shown
}

// environment returns the variables of a process that matter here. If a name occurs several times,
// the last one counts.
func environment(proc string, pid int) map[string]string {
	data, _ := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "environ")) // the process may have ended
	env := map[string]string{}
	for v := range bytes.SplitSeq(data, []byte{0}) {
		key, value, _ := bytes.Cut(v, []byte("="))
		switch string(key) {
		case attr.EnvReservation, attr.EnvMeasure:
			env[string(key)] = string(value)
		}
	}
	return env
}

// Utilization counts as use only if all of looksAtLoad readings, loadPause apart, are above 0. The
// start of NVML, or a GPU that wakes up, can raise the first reading.
const (
	looksAtLoad = 4
	loadPause   = time.Second
)

// InUse reports what is using the GPUs with the given ids. Unused GPUs are left out. The parameter
// all lists every GPU of the node.
func (r Runner) InUse(all []gpu.Device, ids []string) map[string]string {
	uses := r.uses(all, ids)
	for range looksAtLoad - 1 {
		loaded := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !uses[id].busy })
		if len(loaded) == 0 {
			break
		}
		time.Sleep(loadPause)
		maps.Copy(uses, r.uses(all, loaded))
	}
	out := map[string]string{}
	for id, u := range uses {
		if u.by != "" {
			out[id] = u.by
		}
	}
	return out
}
