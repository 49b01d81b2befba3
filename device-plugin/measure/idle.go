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
	"strings"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/pal/attr"
)

// use is what uses a GPU: nothing, when it is zero.
type use struct {
	task bool   // a task was given it, whether it uses it or not
	busy bool   // by is the driver's utilisation alone
	by   string // what the driver says of it, for people
}

func (u use) String() string {
	if u.by == "" && u.task {
		return "a task was given it"
	}
	return u.by
}

// uses finds out what uses the GPUs of these ids, out of all that the node has. Nothing of it
// proves that a GPU is free: a task may hold one and not touch it for days. tickets are the
// reservations, by GPU, whose tasks are looked for; shown is the outcome. Without any,
// and if the driver knows of a use of each GPU, no process is looked at.
func (r Runner) uses(all []gpu.Device, ids []string, tickets map[string]string) (_ map[string]use, shown map[string]bool) {
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
	quiet, system := len(tickets) > 0, map[string]bool{}
	for _, d := range all {
		system[d.ID] = d.SystemMemory
	}
	for _, id := range ids {
		u := busyBy(samples[id], system[id])
		switch found, told := pids[id]; {
		case len(found) > 0:
			u = use{by: describeProcess(proc, found[0])}
		case r.Processes != nil && !told:
			u = use{by: "the driver does not say what computes on it"}
		}
		out[id], quiet = u, quiet || u.by == ""
	}
	if !quiet {
		return out, nil
	}
	c := claimsOf(proc, all, tickets)
	for _, id := range ids {
		u := out[id]
		u.task = c.given[id]
		out[id] = u
	}
	return out, c.shown
}

// intruders returns what has begun to use GPUs that are being measured: a task that was given
// one, or a process that computes there and is no child of ours.
func (r Runner) intruders(all []gpu.Device, ids []string, tickets map[string]string) map[string]string {
	proc := cmp.Or(r.proc, "/proc")
	tasks := claimsOf(proc, all, tickets).given
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

// parentOf is the parent of a process. ok is false if the process has ended or
// cannot be seen from here.
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

// busyBy says by what a GPU seems to be in use. Where the system has pages in its memory, how
// much is used says nothing.
func busyBy(s gpu.Sample, systemMemory bool) use {
	used := s.AllocatedMiB()
	switch {
	case used != nil && *used > idleMemoryMiB && !systemMemory:
		return use{by: fmt.Sprintf("%d MiB of its memory", *used)}
	case s.GPUPercent != nil && *s.GPUPercent > 0:
		return use{by: fmt.Sprintf("utilisation %d %%", *s.GPUPercent), busy: true}
	}
	return use{}
}

// visibleDevices is the variable that Nomad's device plugins give a task, and that the NVIDIA
// runtime reads. Where that runtime makes the container's devices itself (jit-cdi, the default
// from version 1.18 on), the task finds "void" in it.
const visibleDevices = "NVIDIA_VISIBLE_DEVICES"

// claims is what the processes of this machine show of whose its GPUs are.
type claims struct {
	given map[string]bool // GPUs that a process was given
	// shown are the reservations whose task has a process, by ticket, and whether that asks for
	// its GPU to be measured.
	shown map[string]bool
}

// claimsOf looks at every process. Those of others can be read by root only; what cannot be
// read is skipped, and so are the processes of the task or container that this process is part
// of. A process that asks for its GPU to be measured, and proves by the ticket of
// its reservation that the GPU is its own, is no use of it.
func claimsOf(proc string, all []gpu.Device, tickets map[string]string) claims {
	c := claims{given: map[string]bool{}, shown: map[string]bool{}}
	entries, err := os.ReadDir(proc)
	if err != nil {
		return c
	}
	own := findOwnTask(proc)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		env, ok := environment(proc, pid)
		if !ok || own.includes(pid, env[visibleDevices]) {
			continue
		}
		found, dir := map[string]bool{}, filepath.Join(proc, e.Name())
		given(env[visibleDevices], all, func() bool { return hasDevices(dir) }, found)
		contained(dir, all, found)
		c.add(env, found, tickets)
	}
	return c
}

// add takes what one process shows.
func (c claims) add(env map[string]string, found map[string]bool, tickets map[string]string) {
	ticket, asks := env[attr.EnvReservation], env[attr.EnvMeasure] != ""
	for id, t := range tickets {
		if ticket == "" || t != ticket {
			continue
		}
		c.shown[ticket] = c.shown[ticket] || asks
		if asks {
			delete(found, id)
		}
	}
	maps.Copy(c.given, found)
}

// environment is what matters here of a process's variables; of several with one name the last
// one counts. ok is false for a process that cannot be read.
func environment(proc string, pid int) (env map[string]string, ok bool) {
	data, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "environ"))
	if err != nil {
		return nil, false
	}
	env = map[string]string{}
	for v := range bytes.SplitSeq(data, []byte{0}) {
		switch key, value, _ := bytes.Cut(v, []byte("=")); string(key) {
		case visibleDevices, attr.EnvReservation, attr.EnvMeasure:
			env[string(key)] = string(value)
		}
	}
	return env, true
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
		if env, _ := environment(proc, pid); env[visibleDevices] != "" {
			o.lists[env[visibleDevices]] = true
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

// mountsOf names the mount namespace of a process; "" if it cannot be read.
func mountsOf(proc string, pid int) string {
	name, _ := os.Readlink(filepath.Join(proc, strconv.Itoa(pid), "ns/mnt"))
	return name
}

// hasDevices reports whether a process sees the driver at all.
func hasDevices(process string) bool {
	_, err := os.Stat(filepath.Join(process, "root/dev/nvidiactl"))
	return err == nil
}

// contained adds the GPUs whose device files a process has in a root of its own, as in a
// container. Who has those of all GPUs, and holds none of them otherwise, watches them, as
// dcgm-exporter does; so do host processes.
func contained(process string, all []gpu.Device, found map[string]bool) {
	root, err := os.Stat(filepath.Join(process, "root"))
	if err != nil {
		return
	}
	if host, err := os.Stat("/"); err == nil && os.SameFile(root, host) {
		return
	}
	var has []string
	whole := 0
	for _, d := range all {
		if d.MIGProfile != "" || d.Minor < 0 {
			continue
		}
		whole++
		if _, err := os.Stat(filepath.Join(process, fmt.Sprintf("root/dev/nvidia%d", d.Minor))); err == nil {
			has = append(has, d.ID)
		}
	}
	for _, id := range has {
		if len(has) < whole {
			found[id] = true
		}
	}
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
