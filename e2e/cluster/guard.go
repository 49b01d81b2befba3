// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/prometheus/procfs"

	guards "github.com/nomad-pal/nomad-pal/internal/guard"
)

// mark is the environment variable by which the guard finds a cluster's processes, whatever their
// session or process group. Executors, plugins and tasks outlive their client by design.
func mark(dir string) string { return markName + "=" + dir }

const markName = "NOMAD_PAL_TEST_CLUSTER"

// guard is a small process that outlives the owner of a cluster, and reads from a pipe to which
// only the owner can write. When the pipe closes, the guard cleans up. The pipe closes when Close
// is called, or when the owner is killed or crashes. A parent-death signal is not enough, because
// it reaches the agents, but not the executors and tasks. The kernel also sends this signal when
// only the thread that started an agent ends.
type guard struct{ *guards.Shell }

// guardScript is the guard's program. Its arguments are the directory, the mark, and whether to
// keep the directory. The program is a shell script, because a test binary can act as another
// program only if its TestMain supports that.
//
// The script kills the processes with the mark. Because a task may have dropped the mark, it also
// kills the processes that work in the directory without a terminal. (A process with a terminal is
// the shell of somebody who reads the logs.) It continues until no such process is left. The names
// of network namespaces begin with the directory's name. The devices in these namespaces disappear
// when the owner ends. A client that runs as root mounts two tmpfs for each allocation, and leaves
// its control groups behind.
const guardScript = `
dir=$1 mark=$2 keep=$3
trap '' PIPE # a dead owner does not listen
while read -r _; do :; done
ours() {
  {
    grep -slzxF -e "$mark" /proc/[0-9]*/environ
    find /proc/[0-9]*/cwd -maxdepth 0 \( -lname "$dir" -o -lname "$dir/*" \) | while read -r p; do
      read -r stat <"${p%/cwd}/stat" || continue
      set -- ${stat##*) }
      [ "$5" = 0 ] && echo "$p"
    done
  } | sed 's|/proc/\([0-9]*\)/.*|\1|'
}
tries=0
while pids=$(ours 2>/dev/null); [ -n "$pids" ]; do
  [ $((tries += 1)) -gt 400 ] && echo processes $pids do not end && break # only those stuck in the kernel
  kill -9 $pids 2>/dev/null
  sleep 0.05
done
while read -r _ at _; do
  case $at in "$dir"/*) echo "$at" ;; esac
done </proc/self/mounts | sort -r | while read -r at; do
  umount -l "$at" 2>/dev/null || ! grep -qF " $at " /proc/self/mounts || echo "$at stays mounted"
done
for alloc in "$dir"/*/data/alloc/*-*-*-*-*; do
  id=${alloc##*/}
  for group in /sys/fs/cgroup/*/nomad/"$id".* /sys/fs/cgroup/*/nomad/*/"$id".* /sys/fs/cgroup/nomad.slice/*/"$id".*; do
    [ -d "$group" ] && rmdir "$group" 2>/dev/null
  done
done
for ns in /run/netns/"${dir##*/}"-*; do
  [ -e "$ns" ] && ip netns del "${ns##*/}" 2>&1
done
[ "$keep" = true ] || rm -rf "$dir" 2>&1
exit 0
`

func startGuard(dir string, keep bool) (*guard, error) {
	sh, err := guards.StartShell(guardScript, "nomad-pal-cluster-guard", dir, mark(dir), fmt.Sprint(keep))
	if err != nil {
		return nil, fmt.Errorf("starting the guard: %w", err)
	}
	return &guard{sh}, nil
}

// clean tells the guard to clean up, and waits for it.
func (g *guard) clean() error {
	if err := g.End(); err != nil {
		return fmt.Errorf("cleaning up: %w", err)
	}
	if said := g.Said(); said != "" {
		return errors.New("cleaning up: " + strings.TrimSpace(said))
	}
	return nil
}

// PluginPIDs returns the ids of the processes of the named plugin that the agent itself started.
func (a *Agent) PluginPIDs(name string) ([]int, error) {
	all, err := procfs.AllProcs()
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, p := range all {
		args, _ := p.CmdLine() // empty if the process has ended
		if len(args) == 0 || args[0] != filepath.Join(a.Dir, "plugins", name) {
			continue
		}
		if stat, err := p.Stat(); err == nil && stat.PPID == a.PID() {
			pids = append(pids, p.PID)
		}
	}
	return pids, nil
}
