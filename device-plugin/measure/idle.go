// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measure

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
)

// use is what uses a GPU: nothing, when both fields are empty.
type use struct {
	task     bool   // a task was given it, whether it uses it or not
	computes bool   // a process does
	by       string // what the driver says of it, for people
}

func (u use) String() string {
	if u.by == "" && u.task {
		return "a task was given it"
	}
	return u.by
}

// uses finds out what uses the GPUs of these ids, out of all that the node has.
// Where the driver knows of no use, it reads the environment of every process of the
// machine: ask only when a GPU is about to be measured.
func (r Runner) uses(all []gpu.Device, ids []string) map[string]use {
	var samples map[string]gpu.Sample
	if r.Sample != nil {
		samples = r.Sample(ids)
	}
	var pids map[string][]int
	if r.Processes != nil {
		pids = r.Processes(ids)
	}
	proc := cmp.Or(r.proc, "/proc")
	out := make(map[string]use, len(ids))
	quiet, system := false, map[string]bool{}
	for _, d := range all {
		system[d.ID] = d.SystemMemory
	}
	for _, id := range ids {
		u := use{by: busyBy(samples[id], system[id])}
		switch found, told := pids[id]; {
		case len(found) > 0:
			u.by, u.computes = describeProcess(proc, found[0]), true
		case r.Processes != nil && !told:
			u.by = "the driver does not say what computes on it"
		}
		out[id], quiet = u, quiet || u.by == ""
	}
	if !quiet {
		return out
	}
	tasks := visibleTo(proc, all)
	for _, id := range ids {
		u := out[id]
		u.task = tasks[id]
		out[id] = u
	}
	return out
}

// intruders says what has begun to use GPUs that are being measured: a task that was given
// one, or a process that computes there and is no child of ours.
func (r Runner) intruders(all []gpu.Device, ids []string) map[string]string {
	proc := cmp.Or(r.proc, "/proc")
	tasks := visibleTo(proc, all)
	var pids map[string][]int
	if r.Processes != nil {
		pids = r.Processes(ids)
	}
	out := map[string]string{}
	for _, id := range ids {
		if tasks[id] {
			out[id] = use{task: true}.String()
		}
		for _, pid := range pids[id] {
			if parent, ok := parentOf(proc, pid); ok && parent != os.Getpid() {
				out[id] = describeProcess(proc, pid)
			}
		}
	}
	return out
}

// parentOf is the parent of a process; ok is false for one that has gone, or that cannot
// be seen from here.
func parentOf(proc string, pid int) (parent int, ok bool) {
	stat, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, false
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]) // behind its name
	if len(fields) < 2 {
		return 0, false
	}
	parent, err = strconv.Atoi(string(fields[1]))
	return parent, err == nil
}

// describeProcess names a process for people. Its name is whatever it likes.
func describeProcess(proc string, pid int) string {
	name, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "comm"))
	if err != nil { // gone, or in a container that we are outside of
		return fmt.Sprintf("process %d", pid)
	}
	return fmt.Sprintf("process %d, %s", pid, gpu.Printable(string(bytes.TrimSpace(name))))
}

// idleMemoryMiB is what may be allocated on an idle GPU; some drivers count what they
// keep for themselves.
const idleMemoryMiB = 1024

// busyBy says by what a GPU seems to be in use, "" when it seems idle. Where the system
// has pages in its memory, how much is used says nothing.
func busyBy(s gpu.Sample, systemMemory bool) string {
	used := s.AllocatedMiB()
	switch {
	case s.GPUPercent != nil && *s.GPUPercent > 0:
		return fmt.Sprintf("utilisation %d %%", *s.GPUPercent)
	case used != nil && *used > idleMemoryMiB && !systemMemory:
		return fmt.Sprintf("%d MiB of its memory", *used)
	}
	return ""
}

// visibleDevices is the variable that Nomad's device plugins give a task, and
// that the NVIDIA runtime reads.
const visibleDevices = "NVIDIA_VISIBLE_DEVICES="

// visibleTo says which of the GPUs a process of this machine was given: there is
// no call for the end of a reservation, and a task may leave its GPU idle for a
// while. Processes of others can be read by root only; what cannot be read is
// skipped. So are the processes of the task or container that this process is part of.
func visibleTo(proc string, all []gpu.Device) map[string]bool {
	found := map[string]bool{}
	entries, err := os.ReadDir(proc)
	if err != nil {
		return found
	}
	own := findOwnTask(proc)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		list, ok := visibleDevicesOf(proc, pid)
		if ok && !own.includes(pid, list) {
			given(list, all, func() bool { return hasDevices(filepath.Join(proc, e.Name())) }, found)
		}
	}
	return found
}

// visibleDevicesOf reads the variable in a process's environment; the last one counts. ok
// is false without it, and for a process that cannot be read.
func visibleDevicesOf(proc string, pid int) (list string, ok bool) {
	env, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "environ"))
	if err != nil {
		return "", false
	}
	for v := range bytes.SplitSeq(env, []byte{0}) {
		if value, found := strings.CutPrefix(string(v), visibleDevices); found {
			list, ok = value, true
		}
	}
	return list, ok
}

// ownTask is the task or container that this process runs in. What it was given, it may
// measure.
type ownTask struct {
	proc      string
	line      map[int]bool    // this process and its ancestors
	lists     map[string]bool // what they were given
	namespace string          // this process's mounts
}

func findOwnTask(proc string) ownTask {
	pid := os.Getpid()
	if self, err := os.Readlink(filepath.Join(proc, "self")); err == nil {
		if n, err := strconv.Atoi(self); err == nil { // as this /proc counts
			pid = n
		}
	}
	o := ownTask{proc: proc, line: map[int]bool{}, lists: map[string]bool{}, namespace: mountsOf(proc, pid)}
	for ok := true; ok && pid > 0 && !o.line[pid]; {
		o.line[pid] = true
		if list, given := visibleDevicesOf(proc, pid); given {
			o.lists[list] = true
		}
		pid, ok = parentOf(proc, pid)
	}
	return o
}

// includes reports whether a process that was given these GPUs belongs to the task. One
// beside this process's line, as a shell that was opened in the container, sees the same
// mounts and was given the same. Tasks without a container share the mounts of the node,
// so that the mounts alone are no sign.
func (o ownTask) includes(pid int, list string) bool {
	return o.line[pid] || o.lists[list] && o.namespace != "" && mountsOf(o.proc, pid) == o.namespace
}

// mountsOf names the mount namespace of a process; "" for one that cannot be read.
func mountsOf(proc string, pid int) string {
	name, _ := os.Readlink(filepath.Join(proc, strconv.Itoa(pid), "ns/mnt"))
	return name
}

// hasDevices reports whether a process sees the driver at all.
func hasDevices(process string) bool {
	_, err := os.Stat(filepath.Join(process, "root/dev/nvidiactl"))
	return err == nil
}

// given adds the GPUs that a value of the variable names: by UUID, or the start of one,
// or by number, which counts only where real is true. "all" names none: images made for
// CUDA carry it, and so do containers that only watch GPUs. Who computes shows otherwise.
func given(list string, all []gpu.Device, real func() bool, found map[string]bool) {
	byBus := slices.SortedFunc(slices.Values(all), func(a, b gpu.Device) int { return cmp.Compare(a.BusID, b.BusID) })
	for word := range strings.SplitSeq(list, ",") {
		if word = strings.TrimSpace(word); word == "" || word == "none" || word == "void" {
			continue
		}
		whole, _, _ := strings.Cut(word, ":") // 0:1 is a MIG instance of GPU 0
		n, err := strconv.Atoi(whole)
		for i, d := range byBus {
			switch {
			case err == nil && (n == i || n == d.Minor):
				if !found[d.ID] && real() {
					found[d.ID] = true
				}
			case strings.HasPrefix(word, "GPU-") && (strings.HasPrefix(d.ID, word) || strings.HasPrefix(d.Parent, word)),
				strings.HasPrefix(word, "MIG-") && strings.HasPrefix(d.ID, word):
				found[d.ID] = true
			}
		}
	}
}
