# Copyright (c) The nomad-pal Authors
# SPDX-License-Identifier: MPL-2.0

##@ Simulator (bench/README.md)

.PHONY: sim-bench
sim-bench: ## Measure the speed of the simulator; with PAL_DATA also against the artifact
	cd research && go test -run xxx -bench 'Artifact|Faithful' -benchtime 5x ./artifact
	go test -run xxx -bench 'Preemption/jobs=10+/' -benchtime 1x ./sim

.PHONY: sim-million
sim-million: ## Measure the cost per job by numbers of jobs and GPUs, up to a million jobs on 100,000 GPUs (about 10 minutes, 2 GB)
	go test -run xxx -bench Jobs -benchtime 1x -timeout 120m ./sim

.PHONY: sim-nomad
sim-nomad: ## Compare Nomad's own scheduler with the recorded placements against which the simulator's model of plain Nomad is tested
	cd e2e/scheduler && go test -count=1 -tags hashicorpmetrics ./plain
	go test -count=1 -run NomadModel ./sim
