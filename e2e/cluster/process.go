// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// markName is the environment variable by which a cluster's processes are found, whatever session or process group
// they put themselves into: executors, plugins and tasks outlive their client by design.
const markName = "NOMAD_PAL_TEST_CLUSTER"

func mark(dir string) string { return markName + "=" + dir }

// processes lists the process ids that belong to the cluster in dir: those that carry its mark, and those that work
// in its directory (a task may have an environment of its own).
func processes(dir string) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if marked(pid, dir) || worksIn(pid, dir) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

func marked(pid int, dir string) bool {
	env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)) // gone, a zombie or not ours: not marked
	return slices.Contains(strings.Split(string(env), "\x00"), mark(dir))
}

// worksIn says whether a process without terminal works in the directory. One with a terminal is somebody's shell who
// looks at the logs.
func worksIn(pid int, dir string) bool {
	cwd, _ := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	return strings.HasPrefix(cwd+"/", dir+"/") && stat(pid, ttyField) == 0
}

// Fields of /proc/<pid>/stat, counted from 0 after the name.
const (
	parentField = 1
	ttyField    = 4
)

// stat is a field of a process's status, 0 when it is gone.
func stat(pid, field int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name stands in parentheses and may contain anything.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) <= field {
		return 0
	}
	n, _ := strconv.Atoi(fields[field])
	return n
}

// PluginPIDs lists the running processes of a client's plugin of that name, those that the agent started itself.
func (a *Agent) PluginPIDs(name string) ([]int, error) {
	all, err := processes(a.cluster.Dir)
	if err != nil {
		return nil, err
	}
	binary := filepath.Join(a.Dir, "plugins", name)
	var pids []int
	for _, pid := range all {
		cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		argv0, _, _ := strings.Cut(string(cmdline), "\x00")
		if argv0 == binary && stat(pid, parentField) == a.PID() {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// cleanUp kills the processes of the cluster in dir, agents first in effect, because killing goes on until nothing
// new appears; then it unmounts what the clients mounted and removes the directory, unless keep.
func cleanUp(dir string, keep bool) error {
	err := killAll(dir)
	err = errors.Join(err, unmountAll(dir))
	removeCgroups(dir)
	if keep {
		return err
	}
	return errors.Join(err, os.RemoveAll(dir))
}

func killAll(dir string) error {
	const patience = 20 * time.Second // only a process stuck in the kernel takes longer
	deadline := time.Now().Add(patience)
	for {
		pids, err := processes(dir)
		if err != nil || len(pids) == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("processes %v do not end", pids)
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone already; the next look tells
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// unmountAll unmounts everything below dir: a client running as root mounts two tmpfs for each allocation.
func unmountAll(dir string) error {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	var below []string
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[1], dir+"/") {
			below = append(below, fields[1])
		}
	}
	slices.Reverse(below) // the innermost comes last in the list
	var errs []error
	for _, m := range below {
		err := syscall.Unmount(m, syscall.MNT_DETACH)
		if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOENT) {
			continue // no mount any more: the guard or a dying client was faster
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("unmount %q: %w", m, err))
		}
	}
	return errors.Join(errs...)
}

// removeCgroups removes the control groups of the cluster's allocations, which a killed client leaves. The parent
// group stays: a Nomad that belongs to the machine has the same. What cannot be removed does no harm.
func removeCgroups(dir string) {
	allocs, _ := filepath.Glob(filepath.Join(dir, "*", "data", "alloc", "*-*-*-*-*"))
	for _, a := range allocs {
		id := filepath.Base(a)
		for _, pattern := range []string{"*/nomad/%s.*", "*/nomad/*/%s.*", "nomad.slice/*/%s.*"} {
			groups, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup", fmt.Sprintf(pattern, id)))
			for _, g := range groups {
				_ = os.Remove(g)
			}
		}
	}
}
