#!/usr/bin/env bash
# Copyright (c) The nomad-pal Authors
# SPDX-License-Identifier: MPL-2.0
#
# ptxas.sh finds or fetches ptxas, NVIDIA's assembler, for the tests of the kernels.
#
# It takes, in this order: $PTXAS, a ptxas on PATH, one that an earlier run left in the cache, the one of Debian's
# non-free package nvidia-cuda-toolkit, fetched with apt from this machine's own Debian mirror. Nothing is installed:
# only the one program is unpacked, into ${XDG_CACHE_HOME:-$HOME/.cache}/nomad-pal. Progress goes to stderr. The last
# line on stdout is the program's absolute path. It is empty if there is no ptxas and none can be fetched, which is no error.
set -euo pipefail

version=12.4       # of CUDA, as in the Debian release below
release=trixie
package=nvidia-cuda-toolkit

say() { echo "ptxas: $*" >&2; }
works() { "$1" --version >/dev/null 2>&1; }
deliver() { say "using $1"; echo "$1"; exit 0; }
without() { say "not available here ($*): the tests do not assemble the kernels"; echo; exit 0; }

if [ -n "${PTXAS:-}" ]; then
  works "$PTXAS" || { say "PTXAS=$PTXAS does not run"; exit 1; }
  deliver "$(realpath -- "$PTXAS")"
fi
if on_path=$(command -v ptxas); then deliver "$(realpath -- "$on_path")"; fi
cache=${XDG_CACHE_HOME:-$HOME/.cache}/nomad-pal
program=$cache/ptxas-$version
if works "$program"; then deliver "$program"; fi

for tool in apt-get dpkg-deb tar; do command -v "$tool" >/dev/null || without "no $tool"; done
keys=/usr/share/keyrings/debian-archive-keyring.gpg
[ -r "$keys" ] || without "no keys of Debian's archive"
[ "$(dpkg --print-architecture)" = amd64 ] || without "the package is for amd64"
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null | grep -m1 '/debian/*$') || without "apt knows no Debian mirror"

mkdir -p "$cache"
work=$(mktemp -d "$cache/ptxas-XXXXXX")
trap 'rm -rf -- "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
echo "deb [signed-by=$keys] $mirror $release non-free" >"$work/sources.list"
apt() {
  apt-get -qq -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::State::lists="$work/lists" \
    -o Dir::Cache="$work/cache" -o Dir::State::status=/dev/null -o APT::Sandbox::User="$(id -un)" \
    -o Acquire::Languages=none -o Acquire::Retries=2 -o Acquire::http::Timeout=30 "$@" >&2
}
say "fetching $package (87 MB, once)"
cd "$work"
apt update || without "the index of $release/non-free cannot be fetched"
apt download "$package" || without "$package cannot be fetched"
dpkg-deb --fsys-tarfile "$package"_*.deb | tar -xO ./usr/bin/ptxas >ptxas || without "$package has no ptxas"
chmod +x ptxas
works "$work/ptxas" || without "the fetched ptxas does not run"
mv -f -- ptxas "$program"
deliver "$program"
