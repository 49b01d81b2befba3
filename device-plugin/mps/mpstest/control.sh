#!/bin/sh
# Copyright (c) The nomad-pal Authors
# SPDX-License-Identifier: MPL-2.0
#
# Imitates nvidia-cuda-mps-control as NVIDIA documents it: "Multi-Process Service", chapter
# "Legacy MPS v2 Interface" and appendix "Environment Variables" (docs.nvidia.com/deploy/mps), and
# nvidia-cuda-mps-control(1). The daemon writes its process id into nvidia-cuda-mps-control.pid in
# the pipe directory. After "quit" it ends as soon as its clients have ended. A pipe directory has
# at most one daemon. A daemon forgets its limits when it ends.
#
# The tests set the rest by files in the pipe directory: "servers" has a line "PID STATUS CLIENT…"
# for each server; if "broken" exists, a daemon ends as soon as it is started.
pipe=${CUDA_MPS_PIPE_DIRECTORY:-/tmp/nvidia-mps}
log=${CUDA_MPS_LOG_DIRECTORY:-/var/log/nvidia-mps}
pidfile=$pipe/nvidia-cuda-mps-control.pid

runs() { # the daemon's process exists and is not a zombie
  [ -s "$pidfile" ] && read -r _ _ state _ 2>/dev/null <"/proc/$(cat "$pidfile")/stat" && [ "$state" != Z ]
}

servers() { [ -f "$pipe/servers" ] && cat "$pipe/servers"; }

command() {
  case $1 in
  get_server_list) servers | while read -r pid _; do echo "$pid"; done ;;
  get_server_status) servers | while read -r pid status _; do [ "$pid" = "$2" ] && echo "$status"; done ;;
  get_client_list) servers | while read -r pid _ clients; do [ "$pid" = "$2" ] && printf '%s\n' $clients; done ;;
  set_default_active_thread_percentage) echo "$2" >"$pipe/threads" && echo "$2" ;;
  get_default_active_thread_percentage) cat "$pipe/threads" 2>/dev/null || echo 100.0 ;;
  set_default_device_pinned_mem_limit) echo "$2 $3" >"$pipe/memory" ;;
  quit)
    echo quit >"$pipe/control"
    while runs; do sleep 0.01; done
    ;;
  *) echo "Unknown command $1" ;;
  esac
}

case $1 in
-d)
  if runs; then
    echo "An instance of this daemon is already running"
    exit 1
  fi
  rm -f "$pipe/threads" "$pipe/memory" "$pidfile" "$pipe/control"
  mkfifo "$pipe/control" || exit 1
  echo "$CUDA_VISIBLE_DEVICES" >>"$log/control.log" || exit 1
  setsid "$0" daemon </dev/null >/dev/null 2>&1 &
  while ! [ -s "$pidfile" ]; do sleep 0.01; done
  ;;
daemon)
  echo $$ >"$pidfile"
  [ -f "$pipe/broken" ] && exit 1
  exec 3<>"$pipe/control"
  read -r _ <&3
  rm -f "$pidfile" "$pipe/control"
  ;;
"")
  if ! runs; then
    echo "Cannot find MPS control daemon process"
    exit 1
  fi
  while read -r line; do
    # shellcheck disable=SC2086
    command $line
  done
  ;;
*) exit 2 ;;
esac
