#!/usr/bin/env bash
# Copyright (c) The nomad-pal Authors
# SPDX-License-Identifier: MPL-2.0
#
# needs.sh TOOL... ends with an error that names all missing programs and their Debian packages.
set -euo pipefail

declare -A package=([ld.lld]=lld [llvm-objdump]=llvm [rpmbuild]=rpm [systemd-nspawn]=systemd-container [qemu-aarch64-static]=qemu-user-static)
missing=() packages=()
for tool in "$@"; do
  command -v "$tool" >/dev/null || { missing+=("$tool"); packages+=("${package[$tool]:-$tool}"); }
done
[ ${#missing[@]} = 0 ] || { echo "missing: ${missing[*]}; apt-get install ${packages[*]}" >&2; exit 1; }
