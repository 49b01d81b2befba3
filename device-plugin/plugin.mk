# Copyright (c) The nomad-pal Authors
# SPDX-License-Identifier: MPL-2.0

##@ Device plugin

# conformance tests our own binary, or the one that PLUGIN names.
PLUGIN ?=

.PHONY: conformance
conformance: ## Test whether a device plugin binary keeps Nomad's contract, also under faults: make conformance [PLUGIN=path]
	go test -count=1 ./device-plugin/conformance $(if $(PLUGIN),-args -plugin='$(abspath $(PLUGIN))')

.PHONY: wakeups
wakeups: ## Count how often an idle plugin wakes the processor, on nodes with 1 and 8 GPUs and two drivers: make wakeups [PLUGIN=path]
	go test -count=1 -v -run TestWakeupsAtRest ./device-plugin/conformance -args -rest 30s $(if $(PLUGIN),-plugin='$(abspath $(PLUGIN))')
