#!/usr/bin/env bash
# Copyright (c) The nomad-pal Authors
# SPDX-License-Identifier: MPL-2.0
#
# oldlibc.sh ARCH COMMAND... runs a command in which cgo builds for ARCH (amd64, arm64) against the C library of an old
# Debian, so that the result runs wherever glibc is 2.17 or newer. The library comes from the Debian archive that apt on
# this machine uses, else from Debian's own.
set -euo pipefail
suite=bullseye
arch=$1
shift
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/build/release/sysroot/$arch

say() { echo "release: $*" >&2; }
"$(dirname "${BASH_SOURCE[0]}")/needs.sh" clang ld.lld mmdebstrap
if [ ! -e "$root" ]; then
  archive=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' | grep '/debian/$' | head -n 1) || true
  say "C library of $suite for $arch"
  rm -rf "$root.tmp"
  mkdir -p "${root%/*}"
  mmdebstrap --quiet --variant=extract --architecture="$arch" --include=libc6-dev,libgcc-10-dev $suite "$root.tmp" \
    ${archive:+"deb $archive $suite main"} >&2
  # Absolute links lead out of the folder. Relative links stay valid if the checkout is moved or copied.
  find "$root.tmp" -type l -lname '/*' -printf '%p %l\n' | while read -r link target; do ln -sfnr "$root.tmp$target" "$link"; done
  mv "$root.tmp" "$root"
fi
case $arch in amd64) triple=x86_64-linux-gnu ;; arm64) triple=aarch64-linux-gnu ;; esac
CGO_ENABLED=1 CC="clang --target=$triple --sysroot=$root" CGO_LDFLAGS='-fuse-ld=lld -static-libgcc -Wl,--as-needed' exec "$@"
