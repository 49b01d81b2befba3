# Copyright (c) The nomad-pal Authors
# SPDX-License-Identifier: MPL-2.0

##@ Device plugin

# conformance tests our own binary, or the one that PLUGIN names.
PLUGIN ?=

.PHONY: conformance
conformance: ## Test whether a device plugin binary keeps Nomad's contract, also under faults: make conformance [PLUGIN=path]
	go test -count=1 ./device-plugin/conformance $(if $(PLUGIN),-args -plugin='$(abspath $(PLUGIN))')
