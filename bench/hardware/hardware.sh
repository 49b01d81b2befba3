#!/usr/bin/env bash
# Copyright (c) The nomad-pal Authors
# SPDX-License-Identifier: MPL-2.0
#
# hardware.sh tries nomad-device-pal on this machine's GPUs: see README.txt beside it, or -h. Its
# arguments are those of the program `hardware`. It needs bash and the NVIDIA driver, no network and
# no Go.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# If the run lasts longer than this limit, it gets SIGTERM: its files then have the results so far.
limit=${LIMIT:-}
case " $*" in *" -budget"* | *" --budget"*) ;; *) limit=${limit:-9m} ;; esac
run=()
if [ -n "$limit" ] && type timeout >/dev/null 2>&1; then run=(timeout --foreground --kill-after=20s "$limit"); fi

# The first programs need a glibc as new as the one they were built with. The second ones run with any glibc, but have
# no NVML, so they read neither power nor clocks.
for programs in "$here" "$here/nocgo"; do
  if said=$({ "$programs/nomad-device-pal" version && "$programs/hardware" -h; } 2>&1); then exec "${run[@]}" "$programs/hardware" "$@"; fi
  echo "hardware: the programs in $programs do not run here: $(tail -n 1 <<<"$said")" >&2
done
exit 1
