#!/usr/bin/env bash
# Copyright (c) The nomad-pal Authors
# SPDX-License-Identifier: MPL-2.0
#
# build.sh [OUT] finds or builds a Nomad for the tests and the demo.
#
# It takes, in this order: $NOMAD_BIN, a `nomad` on PATH of a supported version, a binary that an earlier run
# built into the cache, a new build of the version that go.mod here pins. Progress goes to stderr. The last line on
# stdout is the binary's absolute path. With OUT, a symbolic link to it is left there.
#
# NOMAD_RELEASE=1.10 selects another release line than the newest: the module in v1.10 pins its version, and a nomad
# on PATH counts only if it is of that line.
#
# The cache is ${XDG_CACHE_HOME:-$HOME/.cache}/nomad-pal, outside the repository: a second checkout finds it.
# Nomad is built here and run as a separate program, so its BUSL license does not apply to our binaries.
set -euo pipefail

oldest=1.8.0 # the first release line we support
release=${NOMAD_RELEASE:-}

module_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [ -d "$module_dir/v$release" ]; then module_dir=$module_dir/v$release; fi

say() { echo "nomad: $*" >&2; }

# version_of prints the version of the nomad binary $1, without the v; empty when it does not answer.
version_of() { "$1" version 2>/dev/null | sed -n '1s/^Nomad v\([0-9][^ ]*\).*/\1/p' || true; }

# supported reports whether the version $1 is at least $oldest, and of the selected release line.
supported() {
  [ -n "$1" ] && [ "$(printf '%s\n%s\n' "$oldest" "${1%%[-+]*}" | sort -V | head -n1)" = "$oldest" ] || return 1
  case $1. in "${release:+$release.}"*) return 0 ;; esac
  return 1
}
wanted="${release:-$oldest or newer}"

# deliver ends the script with the binary $1, linked from $2 when given.
deliver() {
  local binary=$1 out=${2:-}
  if [ -n "$out" ] && [ "$(realpath -m -- "$out")" != "$(realpath -m -- "$binary")" ]; then
    mkdir -p "$(dirname -- "$out")"
    ln -sfn -- "$binary" "$out"
  fi
  echo "$binary"
  exit 0
}

out=${1:-}

if [ -n "${NOMAD_BIN:-}" ]; then
  found=$(version_of "$NOMAD_BIN")
  supported "$found" || { say "NOMAD_BIN=$NOMAD_BIN is version ${found:-unknown}, wanted is $wanted"; exit 1; }
  say "using $found from NOMAD_BIN"
  deliver "$(realpath -- "$NOMAD_BIN")" "$out"
fi

if on_path=$(command -v nomad); then
  found=$(version_of "$on_path")
  if supported "$found"; then
    say "using $found from PATH ($on_path)"
    deliver "$(realpath -- "$on_path")" "$out"
  fi
  say "ignoring $on_path: version ${found:-unknown}, wanted is $wanted"
fi

cd "$module_dir"
version=$(go list -m -f '{{.Version}}' github.com/hashicorp/nomad)
version=${version#v}
supported "$version" || { say "this repository cannot build Nomad $release: put a nomad of that release on PATH, or set NOMAD_BIN to its path"; exit 1; }
cache=${XDG_CACHE_HOME:-$HOME/.cache}/nomad-pal
binary=$cache/nomad-$version

cached() { [ -x "$binary" ] && [ "$(version_of "$binary")" = "$version" ]; }
if cached; then
  say "using $version from the cache ($binary)"
  deliver "$binary" "$out"
fi

mkdir -p "$cache"
if command -v flock >/dev/null; then # two builds at once would take twice as long and win nothing
  exec 9>"$cache/nomad-$version.lock"
  if ! flock -n 9; then
    say "another build of $version is running, waiting for it"
    flock 9
    if cached; then deliver "$binary" "$out"; fi
  fi
fi

work=$(mktemp -d "$cache/building-XXXXXX")
build_pid=
cleanup() {
  if [ -n "$build_pid" ]; then kill "$build_pid" 2>/dev/null || true; fi
  rm -rf -- "$work"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

say "building $version into $cache (once; about 10 minutes on 2 idle cores)"
start=$SECONDS
step() { say "$1, $((SECONDS - start)) s"; }

# Listing first: it downloads the modules that the build needs, and afterwards we know how many packages are not yet in
# Go's cache.
go list -deps -tags hashicorpmetrics -f '{{if .Stale}}{{.ImportPath}}{{end}}' github.com/hashicorp/nomad \
  >"$work/packages" 2>"$work/download.log" 9>&- &
build_pid=$!
tick() { # tick TEXT prints TEXT's output about every 10 s until the background process ends
  local next=$((SECONDS + 10))
  while kill -0 "$build_pid" 2>/dev/null; do
    sleep 0.5
    if [ "$SECONDS" -ge "$next" ]; then
      step "$("$1")"
      next=$((SECONDS + 10))
    fi
  done
}
downloading() { echo "downloading modules"; }
tick downloading
wait "$build_pid" || { cat "$work/download.log" >&2; say "downloading the modules of $version failed"; exit 1; }

total=$(grep -c . "$work/packages" || true)
step "modules are here, compiling $total packages"
# -v lists each package as it is compiled. No -trimpath: the nested test modules then share the compiled packages.
go build -v -tags hashicorpmetrics -ldflags '-s -w' -o "$work/nomad" github.com/hashicorp/nomad \
  >"$work/build.log" 2>&1 9>&- &
build_pid=$!
compiling() {
  local done
  done=$(wc -l <"$work/build.log")
  if [ "$done" -ge "$total" ]; then echo "100 % compiled, linking"; else echo "$((100 * done / total)) % compiled ($done of $total packages)"; fi
}
tick compiling
wait "$build_pid" || { tail -n 40 "$work/build.log" >&2; say "building $version failed"; exit 1; }
build_pid=

mv -f -- "$work/nomad" "$binary"
cached || { say "the built binary $binary does not report version $version"; exit 1; }
step "built $version"
deliver "$binary" "$out"
