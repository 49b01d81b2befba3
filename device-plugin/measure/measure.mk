# Copyright (c) The nomad-pal Authors
# SPDX-License-Identifier: MPL-2.0

# Measuring: NVIDIA's assembler checks the kernels, if it is available.
.PHONY: ptxas
ptxas: ## Find ptxas for the tests of the kernels: the one on PATH, else Debian's, unpacked into the user's cache
	@mkdir -p build
	@device-plugin/measure/ptxas.sh > build/ptxas.path.tmp
	@tail -n 1 build/ptxas.path.tmp > build/ptxas.path && rm build/ptxas.path.tmp

# Measuring without a GPU: our fake CUDA driver replaces NVIDIA's.

FAKECUDA := build/fakecuda

.PHONY: measure-demo measure-gpu
measure-demo: build ## Run nomad-device-pal measure on four GPUs that a fake CUDA driver imitates, one of them slow
	@mkdir -p $(FAKECUDA)
	@printf 'gpus=4\nslow.2=2.5\nnoise=0.002\nscale=0.02\n' > $(FAKECUDA)/libcuda.so.1.settings
	$(BIN)/nomad-device-pal measure -cuda=$$(go run ./device-plugin/cuda/fakecuda/mkfakecuda $(CURDIR)/$(FAKECUDA)) \
	  -nvml=none -warmup=5s -out=$(FAKECUDA)/report.json

measure-gpu: build ## Measure this machine's GPUs twice and keep the reports, to see how well results repeat and how rates compare with the physical limits
	$(BIN)/nomad-device-pal measure -out=build/measure-1.json
	$(BIN)/nomad-device-pal measure -out=build/measure-2.json
