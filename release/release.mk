# Copyright (c) The nomad-pal Authors
# SPDX-License-Identifier: MPL-2.0

##@ Release

RELEASE := build/release/out

.PHONY: packing
packing: gotestsum ## Test the release tools (a separate module); needs no root
	cd release && $(call part,packing) ./...

# The tools that make release needs, checked before anything is built.
.PHONY: release-needs
release-needs:
	@release/needs.sh go git gcc clang ld.lld mmdebstrap llvm-objdump gzip tar

.PHONY: release
release: release-needs ## Build packages, archives, image, pack, bills of materials and checksums for linux amd64 and arm64 into build/release/out
	release/build.sh $(VERSION) $(RELEASE)

.PHONY: release-test-needs
release-test-needs:
	@release/needs.sh mmdebstrap systemd-nspawn rpm skopeo umoci qemu-aarch64-static

.PHONY: release-test
release-test: release-test-needs release nomad ## Test the release, as root on Debian: install, upgrade, roll back and remove it in a container with systemd; build it twice and compare the bytes (a quarter of an hour)
	release/test.sh $(VERSION) $(RELEASE) $$(cat build/nomad.path)
