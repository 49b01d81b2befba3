# Copyright (c) The nomad-pal Authors
# SPDX-License-Identifier: MPL-2.0

##@ Device plugin

# A conformance run of our own binary, or of the one that PLUGIN names.
PLUGIN ?=

.PHONY: conformance
conformance: ## Drive a device plugin binary through contract and faults: make conformance [PLUGIN=path]
	go test -count=1 ./device-plugin/conformance $(if $(PLUGIN),-args -plugin='$(abspath $(PLUGIN))')
