#!/usr/bin/env bash
# Copyright (c) The nomad-pal Authors
# SPDX-License-Identifier: MPL-2.0
#
# hardware.sh tries nomad-device-pal on this machine's GPUs: see README.txt beside it, or -h. Its
# arguments are those of `nomad-device-pal hardware`. It needs bash and the NVIDIA driver, no
# network and no Go.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# If the run lasts longer than this limit, it gets SIGTERM: its files then have the results so far.
limit=${LIMIT:-}
case " $*" in *" -budget"* | *" --budget"*) ;; *) limit=${limit:-9m} ;; esac
run=()
if [ -n "$limit" ] && type timeout >/dev/null 2>&1; then run=(timeout --foreground --kill-after=20s "$limit"); fi

# The first binary needs a glibc as new as the one it was built with. The second runs with any glibc, but has no NVML,
# so it reads neither power nor clocks.
for binary in "$here/nomad-device-pal" "$here/nomad-device-pal-nocgo"; do
  if "$binary" version >/dev/null 2>&1; then exec "${run[@]}" "$binary" hardware "$@"; fi
  echo "hardware: $(basename "$binary") does not run here: $("$binary" version 2>&1 | head -n 1)" >&2
done
exit 1
