#!/usr/bin/env bash
# Copyright (c) The nomad-pal Authors
# SPDX-License-Identifier: MPL-2.0
#
# test.sh VERSION OUT NOMAD tests the release that build.sh made in OUT, as root on Debian. It tests that a second build
# has the same bytes; the packages in a container with systemd, with a real Nomad; the binaries on an old C library and
# on arm64; and the image. NOMAD_PACK is the path of nomad-pack; without it, the pack is not run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version=$1 out=$(realpath "$2") nomad=$(realpath "$3")
work=$(mktemp -d /tmp/nomad-pal-release.XXXXXX)
trap 'rm -rf "$work"' EXIT
say() { echo "== $*"; }

[ "$(id -u)" = 0 ] || { echo "run this as root"; exit 1; }
[ -z "$(git status --porcelain --untracked-files=no)" ] || { echo "some changes are not committed"; exit 1; }
commit=$(git rev-parse HEAD)
(cd "$out" && sha256sum --quiet -c SHA256SUMS)

say "binaries: C library of Debian 11, arm64, versions"
stage=build/release/stage sysroot=build/release/sysroot
expect() { [ "$1" = "$2" ] || { echo "got $1, want $2"; exit 1; }; }
named() { awk 'NR == 1 {sub(/^v/, "", $2); print $2}'; }
expect "$($sysroot/amd64/lib/x86_64-linux-gnu/ld-2.31.so --library-path $sysroot/amd64/lib/x86_64-linux-gnu $stage/linux_amd64/nomad-device-pal -version | named)" "$version"
expect "$($stage/linux_amd64/nomad-pal version | named)" "$version"
expect "$(qemu-aarch64-static -L $sysroot/arm64 $stage/linux_arm64/nomad-device-pal -version | named)" "$version"
expect "$(qemu-aarch64-static $stage/linux_arm64/nomad-pal version | named)" "$version"
if ldd $stage/linux_amd64/nomad-pal 2>/dev/null; then echo "nomad-pal is not static"; exit 1; fi

say "image"
skopeo copy -q "oci-archive:$out/nomad-pal_$version.oci.tar" "oci:$work/image:test"
umoci unpack --image "$work/image:test" "$work/bundle"
expect "$(skopeo inspect --config "oci:$work/image:test" | grep -c '"User": "65532:65532"')" 1
expect "$(chroot --userspec=65532:65532 "$work/bundle/rootfs" /usr/bin/nomad-pal version | named)" "$version"
skopeo --override-arch=arm64 copy -q "oci-archive:$out/nomad-pal_$version.oci.tar" "oci:$work/image:arm"
expect "$(skopeo inspect --config "oci:$work/image:arm" | grep -c '"architecture": "arm64"')" 1

# An older release: the same binaries with another configuration file.
mkdir -p "$work/older/release" "$work/old"
cp -r LICENSE NOTICE CHANGELOG.md placer jobspecs "$work/older/"
cp -r release/scripts release/nomad-device-pal.hcl "$work/older/release/"
echo "# older" >> "$work/older/placer/deploy/systemd/nomad-pal.hcl"
cp go.mod go.sum "$work/older/"
build/release/pack -version 1.99.0 -root "$work/older" -stage $stage -out "$work/old"

if [ ! -e build/release/debian ]; then
  say "a Debian to install into"
  archive=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' | grep '/debian/$' | head -n 1) || true
  mmdebstrap --quiet --variant=minbase --include=systemd,systemd-sysv,rpm,procps bookworm build/release/debian.tmp ${archive:+"deb $archive bookworm main"}
  mv build/release/debian.tmp build/release/debian
fi
cat > "$work/test.service" <<UNIT
[Unit]
After=multi-user.target
[Service]
Type=oneshot
Environment=VERSION=$version FORMAT=%i
ExecStart=/test/installed.sh
ExecStopPost=/bin/sh -c 'systemctl exit \$EXIT_STATUS'
StandardOutput=append:/log
StandardError=inherit
UNIT
binds=(--bind-ro="$out:/new" --bind-ro="$work/old:/old" --bind-ro="$PWD/release:/test" --bind-ro="$nomad:/usr/local/bin/nomad"
  --bind-ro="$work/test.service:/etc/systemd/system/test@.service" --bind="$work/log:/log")
if [ -n "${NOMAD_PACK:-}" ]; then
  binds+=(--bind-ro="$(realpath "$NOMAD_PACK"):/usr/local/bin/nomad-pack")
else
  say "NOMAD_PACK is not set: the pack is not run"
fi
for format in deb rpm; do
  say "install, upgrade, roll back and remove: $format"
  failed=0
  : > "$work/log"
  systemd-nspawn --quiet --directory=build/release/debian --ephemeral --boot --private-network --register=no --keep-unit \
    --link-journal=no "${binds[@]}" \
    systemd.unit=test@$format.service systemd.show_status=no quiet < /dev/null > /dev/null 2>&1 || failed=$?
  sed 's/^/   /' "$work/log"
  expect "$failed" 0| sed 's/^/   /'
done


say "a second build, elsewhere and without a cache"
git clone -q . "$work/again"
git -C "$work/again" checkout -q "$commit"
GOCACHE=$work/cache "$work/again/release/build.sh" "$version" "$work/out"
diff "$out/SHA256SUMS" "$work/out/SHA256SUMS"
say "the release passed all tests"
