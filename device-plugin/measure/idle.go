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
	"time"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/pal/attr"
)

// use describes what uses a GPU, or is zero for an unused GPU.
type use struct {
	task bool   // a task holds the GPU, even if the task does not use it
	busy bool   // by is only the driver's utilization
	by   string // what uses the GPU according to the driver, for display
}

func (u use) String() string {
	if u.by == "" && u.task {
		return "a task holds it"
	}
	return u.by
}

// uses returns what uses the GPUs with the given ids. The parameter all lists every GPU of the
// node. A GPU without a reported use can still be allocated to a task that does not use it yet.
// tickets contains the reservations, by GPU. shown contains the tickets whose task has a process
// (see claims.shown). Without tickets, uses does not read the machine's processes if the driver
// already reports a use of each GPU.
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
		switch found, known := pids[id]; {
		case len(found) > 0:
			u = use{by: describeProcess(proc, found[0])}
		case r.Processes != nil && !known:
			u = use{by: "the driver does not report which processes compute on it"}
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

// intruders returns, for each measured GPU, the task that holds the GPU, or the foreign process
// that computes on it.
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

// visibleDevices is the variable that Nomad's device plugins set for a task. The NVIDIA runtime
// reads the variable. If the runtime generates the container's devices itself (jit-cdi, the default
// since version 1.18), the task sees the value "void".
const visibleDevices = "NVIDIA_VISIBLE_DEVICES"

// claims is the result of inspecting processes: the GPUs that tasks hold.
type claims struct {
	given map[string]bool // GPUs that some process got
	// shown has an entry for each ticket whose task has a process. The value is true if a process
	// requests a measurement.
	shown map[string]bool
}

// claimsOf inspects every process. Only root can read the processes of other users. claimsOf skips
// processes that it cannot read, and processes of the task or container to which this process
// belongs. A process that requests a measurement does not count as a user of its GPU if its ticket
// proves that it holds the GPU.
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
		contained(dir, env[visibleDevices], all, found)
		c.add(env, found, tickets)
	}
	return c
}

// add adds the claims of one process.
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

// environment returns the variables of a process that matter here. If a name occurs several times,
// the last one counts. ok is false if the process cannot be read.
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

// ownTask is the task or container that this process runs in. This process may measure the
// GPUs of its own task.
type ownTask struct {
	proc      string
	line      map[int]bool    // this process and its ancestors
	lists     map[string]bool // GPU lists of these processes
	namespace string          // mount namespace of this process
}

func findOwnTask(proc string) ownTask {
	pid := os.Getpid()
	if self, err := os.Readlink(filepath.Join(proc, "self")); err == nil {
		if n, err := strconv.Atoi(self); err == nil { // as numbered in this /proc
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

// includes reports whether a process with this GPU list belongs to the task. A shell opened in the
// container is not our ancestor, but has the same mounts and list. Equal mounts alone prove
// nothing, because tasks without a container share the node's mounts.
func (o ownTask) includes(pid int, list string) bool {
	return o.line[pid] || o.lists[list] && o.namespace != "" && mountsOf(o.proc, pid) == o.namespace
}

// mountsOf returns the mount namespace of a process; "" if it cannot be read.
func mountsOf(proc string, pid int) string {
	name, _ := os.Readlink(filepath.Join(proc, strconv.Itoa(pid), "ns/mnt"))
	return name
}

// hasDevices reports whether a process can see the driver's device files.
func hasDevices(process string) bool {
	_, err := os.Stat(filepath.Join(process, "root/dev/nvidiactl"))
	return err == nil
}

// contained adds the GPUs whose device files a process has in its own root directory, as in a
// container. A process that has the files of all GPUs, if there are several, adds none, because its
// container may only watch GPUs, like dcgm-exporter. If there is one GPU, a container holds it if
// NVIDIA's runtime gave it the file ("void"); other containers are privileged. A process with the
// host's root directory adds no GPUs.
func contained(process, list string, all []gpu.Device, found map[string]bool) {
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
		if d.MIG.Profile != "" || d.Place.Minor < 0 {
			continue
		}
		whole++
		if _, err := os.Stat(filepath.Join(process, fmt.Sprintf("root/dev/nvidia%d", d.Place.Minor))); err == nil {
			has = append(has, d.ID)
		}
	}
	for _, id := range has {
		if len(has) < whole || whole == 1 && list == "void" {
			found[id] = true
		}
	}
}

// given adds the GPUs that a value of NVIDIA_VISIBLE_DEVICES names: by UUID, by the start of a
// UUID, or by number. A number counts only if real() returns true. "all" adds no GPUs, because CUDA
// images, and containers that only watch GPUs, also set "all". Other checks detect a container that
// computes.
func given(list string, all []gpu.Device, real func() bool, found map[string]bool) {
	byBus := slices.SortedFunc(slices.Values(all), func(a, b gpu.Device) int { return cmp.Compare(a.Place.BusID, b.Place.BusID) })
	for word := range strings.SplitSeq(list, ",") {
		if word = strings.TrimSpace(word); word == "" || word == "none" || word == "void" {
			continue
		}
		whole, _, _ := strings.Cut(word, ":") // 0:1 means MIG instance 1 of GPU 0
		n, err := strconv.Atoi(whole)
		for i, d := range byBus {
			switch {
			case err == nil && (n == i || n == d.Place.Minor):
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

// Utilization counts as use only if all of looksAtLoad readings, loadPause apart, are above 0. The
// start of NVML, or a GPU that wakes up, can raise the first reading.
const (
	looksAtLoad = 4
	loadPause   = time.Second
)

// InUse reports what is using the GPUs with the given ids. Unused GPUs are left out. The parameter
// all lists every GPU of the node.
func (r Runner) InUse(all []gpu.Device, ids []string) map[string]string {
	uses, _ := r.uses(all, ids, nil)
	for range looksAtLoad - 1 {
		loaded := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !uses[id].busy })
		if len(loaded) == 0 {
			break
		}
		time.Sleep(loadPause)
		again, _ := r.uses(all, loaded, nil)
		maps.Copy(uses, again)
	}
	out := map[string]string{}
	for id, u := range uses {
		if why := u.String(); why != "" {
			out[id] = why
		}
	}
	return out
}
