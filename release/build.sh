#!/usr/bin/env bash
# Copyright (c) The nomad-pal Authors
# SPDX-License-Identifier: MPL-2.0
#
# build.sh VERSION OUT builds the binaries of a release and packs them into OUT.
#
# nomad-pal is static. nomad-device-pal loads NVML at run time through go-nvml, which needs cgo; oldlibc.sh builds it
# against an old C library.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version=$1 out=$2
oldest=$(sed -n 's/^const oldestGlibc = "\(.*\)"$/\1/p' release/packages.go)
stage=build/release/stage
epoch=$(git log -1 --format=%ct)
module=github.com/nomad-pal/nomad-pal/internal/version
commit=$(release/version.sh commit)

say() { echo "release: $*" >&2; }

# build builds the package $2 for architecture $1, through the command $3... if there is one. The binary must not depend
# on this machine: it contains no paths, and no VCS stamp, which Go leaves out in linked worktrees.
build() {
  say "$2 for $1"
  GOFLAGS='' CGO_CFLAGS='-O2 -g -Wno-deprecated-declarations' GOOS=linux GOARCH=$1 GOAMD64=v1 "${@:3}" go build -trimpath -buildvcs=false -tags timetzdata \
    -ldflags "-s -w -buildid= -X $module.Number=$version -X $module.commit=$commit" -o "$stage/linux_$1/" "$2"
}

rm -rf "$stage" "$out"
mkdir -p "$stage" "$out"
for arch in amd64 arm64; do
  CGO_ENABLED=0 build $arch ./placer/cmd/nomad-pal
  build $arch ./device-plugin/cmd/nomad-device-pal release/oldlibc.sh $arch
  needs=$(llvm-objdump -T "$stage/linux_$arch/nomad-device-pal" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -n 1)
  say "nomad-device-pal for $arch needs $needs"
  [ "$(printf '%s\n' "${needs#GLIBC_}" "$oldest" | sort -V | tail -n 1)" = "$oldest" ] || { say "the release promises glibc $oldest"; exit 1; }
done

(cd release && go build -o ../build/release/pack .)
build/release/pack -version "$version" -time "$epoch" -stage "$stage" -out "$out"

# archive packs the files or folders $3... of folder $2 into $1.tar.gz.
archive() {
  local name=$1 folder=$2
  shift 2
  tar -C "$folder" --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --format=ustar -cf - "$@" | gzip -9n > "$out/$name.tar.gz"
}
for arch in amd64 arm64; do
  for name in nomad-pal nomad-device-pal; do
    cp LICENSE NOTICE CHANGELOG.md "$stage/LICENSES.txt" "$stage/linux_$arch/"
    archive "${name}_${version}_linux_$arch" "$stage/linux_$arch" $name LICENSE NOTICE CHANGELOG.md LICENSES.txt
  done
done
cp -r packs/nomad-pal "$stage/nomad-pal"
sed -i "s/^  version     = .*/  version     = \"$version\"/" "$stage/nomad-pal/metadata.hcl"
archive "nomad-pal-pack_$version" "$stage" nomad-pal
(cd "$out" && sha256sum -- * > SHA256SUMS)
say "$(wc -l < "$out/SHA256SUMS") files in $out"
