# Copyright (c) The nomad-pal Authors
# SPDX-License-Identifier: MPL-2.0

##@ Simulator (bench/README.md)

.PHONY: sim-parity
sim-parity: ## The faithful mode against the PAL artifact's own results, job by job and event by event (needs PAL_DATA)
	@[ -n "$${PAL_DATA:-}" ] || { echo "PAL_DATA is not set: it names the directory with the artifact's traces and results"; exit 1; }
	go test -count=1 -v -run 'Parity|WorkedExample|FaithfulCommand' ./sim ./sim/simulate | grep -E '^(---|ok|FAIL|\s+\S+_test)'

.PHONY: sim-policies
sim-policies: ## Every policy tried, over populations, loads, penalties and estimates; writes bench/results/{policies,gain}.json (needs PAL_DATA)
	go run ./bench/policies -o bench/results/policies.json -gain bench/results/gain.json
	go run ./bench/policies/table bench/results/policies.json bench/results/gain.json

.PHONY: sim-bench
sim-bench: ## Speed of the simulator and the queue; with PAL_DATA also against the artifact
	go test -run xxx -bench 'Artifact|Faithful' -benchtime 5x ./sim
	go test -run xxx -bench 'Calibration|Preemption/jobs=10+/' -benchtime 1x ./sim
	go test -run xxx -bench Decide -benchtime 5x ./pal/queue

.PHONY: sim-million
sim-million: ## Cost a job against jobs and GPUs, up to a million jobs on 100,000 GPUs (about 10 minutes, 2 GB); draws bench/results/speed.svg
	@mkdir -p build
	go test -run xxx -bench Jobs -benchtime 1x -timeout 120m ./sim | tee build/speed.txt
	go run ./bench/speedplot < build/speed.txt > bench/results/speed.svg

.PHONY: sim-nomad
sim-nomad: ## Nomad's own scheduler against the record that the simulator's model of plain Nomad is checked with
	cd e2e/scheduler && go test -count=1 -tags hashicorpmetrics ./plain
	go test -count=1 -run NomadModel ./sim

.PHONY: sim-traces
sim-traces: ## Every policy on every trace under PAL_DATA, by load and population; writes docs/results/sim-traces.{md,json} (hours; SIM_TRACES_ARGS='-only Sia')
	go run ./bench/simtraces -md docs/results/sim-traces.md -json docs/results/sim-traces.json $(SIM_TRACES_ARGS)

.PHONY: sim-traces-quick
sim-traces-quick: ## The same on a part of each trace, in minutes; writes docs/results/sim-traces-quick.{md,json}
	go run ./bench/simtraces -quick -md docs/results/sim-traces-quick.md -json docs/results/sim-traces-quick.json $(SIM_TRACES_ARGS)
