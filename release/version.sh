#!/usr/bin/env bash
# Copyright (c) The nomad-pal Authors
# SPDX-License-Identifier: MPL-2.0
#
# version.sh prints the version of this checkout, without the v. version.sh commit prints only the commit, with
# "+dirty" if files were changed.
#
# A clean checkout of a tag vX.Y.Z has the version X.Y.Z. Every other checkout has X.Y.Z-dev.COUNT+COMMIT, with ".dirty"
# if files were changed. X.Y.Z is then the next release: the version in internal/version, or the patch after the last
# tag if that is higher. COUNT is the number of commits since the last tag. Without git, the version is that in
# internal/version.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

number=$(sed -n 's/^var Number = "\(.*\)"$/\1/p' internal/version/version.go)
if ! commit=$(git rev-parse --short=12 HEAD 2>/dev/null); then
  [ "${1:-}" = commit ] || echo "$number"
  exit
fi
dirty=$([ -z "$(git status --porcelain --untracked-files=no)" ] || echo .dirty)
if [ "${1:-}" = commit ]; then
  echo "$commit${dirty/./+}"
  exit
fi

if [ -z "$dirty" ] && tag=$(git describe --tags --exact-match --match 'v[0-9]*' 2>/dev/null); then
  echo "${tag#v}"
  exit
fi
next=${number%-dev}
since=
if tag=$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null); then
  since=$tag..
  last=${tag#v}
  if [ "${last%-*}" = "$last" ]; then last=${last%.*}.$((${last##*.} + 1)); fi
  next=$(printf '%s\n' "$next" "${last%%-*}" | sort -V | tail -n 1)
fi
echo "$next-dev.$(git rev-list --count "${since}HEAD")+$commit$dirty"
