# Copyright (c) The nomad-pal Authors
# SPDX-License-Identifier: MPL-2.0

# Measuring: NVIDIA's assembler checks the kernels, if it is available.
.PHONY: ptxas
ptxas: ## Find ptxas for the tests of the kernels: the one on PATH, else Debian's, unpacked into the user's cache
	@mkdir -p build
	@device-plugin/measure/ptxas.sh > build/ptxas.path.tmp
	@tail -n 1 build/ptxas.path.tmp > build/ptxas.path && rm build/ptxas.path.tmp

.PHONY: measure-gpu
measure-gpu: build ## Measure this machine's GPUs twice and keep the reports, to see how well results repeat and how rates compare with the physical limits
	$(BIN)/nomad-device-pal measure -out=build/measure-1.json
	$(BIN)/nomad-device-pal measure -out=build/measure-2.json
