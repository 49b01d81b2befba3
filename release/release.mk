# Copyright (c) The nomad-pal Authors
# SPDX-License-Identifier: MPL-2.0

##@ Release

RELEASE := build/release/out

.PHONY: packing
packing: suite ## Tests of what packs a release, a module of its own; without root
	$(SUITE) run packing -C release ./...

.PHONY: release
release: man ## Packages, archives, image, pack, bills of materials and checksums for linux amd64 and arm64, into build/release/out
	release/build.sh $(VERSION) $(RELEASE)

.PHONY: release-test
release-test: release nomad ## Tests of the release, as root on Debian: installed, upgraded, rolled back and removed in a container with systemd; built twice with the same bytes (a quarter of an hour)
	release/test.sh $(VERSION) $(RELEASE) $$(cat build/nomad.path)
