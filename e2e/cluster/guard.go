// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// guard is a small process that outlives the owner of a cluster. It reads from a pipe that only the owner can write
// to. Close writes a word, and it ends. When instead the pipe just closes, the owner was killed or crashed, and the
// guard does what Close would have done. (A parent-death signal would not do: it reaches the agents, but not the
// executors and tasks, and it fires when merely the thread that started an agent ends.)
type guard struct {
	pipe io.WriteCloser
	cmd  *exec.Cmd
}

// guardScript gets the directory, the mark and whether to keep the directory. It is cleanUp in shell, for want of a
// Go program to run: a test binary can be made to act as one only by its author's help.
const guardScript = `
dir=$1 mark=$2 keep=$3
read -r word && [ "$word" = done ] && exit 0
ours() {
  grep -slzxF -e "$mark" /proc/[0-9]*/environ | sed 's|/proc/||; s|/environ||'
  for p in /proc/[0-9]*; do
    case $(readlink "$p/cwd" 2>/dev/null) in "$dir"/*) ;; *) continue ;; esac
    read -r stat 2>/dev/null <"$p/stat" || continue
    set -- ${stat##*) }
    [ "$5" = 0 ] && echo "${p#/proc/}"
  done
}
tries=0
while [ $tries -lt 200 ]; do
  pids=$(ours 2>/dev/null)
  [ -z "$pids" ] && break
  kill -9 $pids 2>/dev/null
  sleep 0.1
  tries=$((tries + 1))
done
while read -r _ at _; do
  case $at in "$dir"/*) echo "$at" ;; esac
done </proc/self/mounts | sort -r | while read -r at; do umount -l "$at"; done
for alloc in "$dir"/*/data/alloc/*-*-*-*-*; do
  id=${alloc##*/}
  for group in /sys/fs/cgroup/*/nomad/"$id".* /sys/fs/cgroup/*/nomad/*/"$id".* /sys/fs/cgroup/nomad.slice/*/"$id".*; do
    [ -d "$group" ] && rmdir "$group"
  done
done
[ "$keep" = true ] || rm -rf "$dir"
`

func startGuard(dir string, keep bool) (*guard, error) {
	cmd := exec.Command("/bin/sh", "-c", guardScript, "nomad-pal-cluster-guard", dir, mark(dir), fmt.Sprint(keep))
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // neither Ctrl-C nor a closed terminal reaches it
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start the guard: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the guard: %w", err)
	}
	return &guard{pipe: pipe, cmd: cmd}, nil
}

// release ends the guard without its doing anything, and waits for it.
func (g *guard) release() {
	_, _ = io.WriteString(g.pipe, "done\n") // when it is gone already there is nothing to tell it
	_ = g.pipe.Close()
	_ = g.cmd.Wait()
}
