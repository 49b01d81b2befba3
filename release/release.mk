# Copyright (c) The nomad-pal Authors
# SPDX-License-Identifier: MPL-2.0

##@ Release

RELEASE := build/release/out

.PHONY: packing
packing: gotestsum ## Test the release tools (a separate module); needs no root
	cd release && $(call part,packing) ./...

.PHONY: release
release: ## Build packages, archives, image, pack, bills of materials and checksums for linux amd64 and arm64 into build/release/out
	release/build.sh $(VERSION) $(RELEASE)

.PHONY: release-test
release-test: release nomad ## Test the release, as root on Debian: install, upgrade, roll back and remove it in a container with systemd; build it twice and compare the bytes (a quarter of an hour)
	release/test.sh $(VERSION) $(RELEASE) $$(cat build/nomad.path)
