# Copyright (c) The nomad-pal Authors
# SPDX-License-Identifier: MPL-2.0

##@ Research: the PAL artifact repeated, and studies (research/README.md)

STUDIES := build/studies

.PHONY: research
research: gotestsum ## Test research/, a separate module that no released program links
	@echo "tests of the research module"
	cd research && $(call part,research) -vet=off -shuffle=on ./...

# The studies are built in research/ and run from the root: paths in flags are relative to the root.
.PHONY: studies
studies:
	@mkdir -p $(STUDIES) build/results
	cd research && go build -o $(CURDIR)/$(STUDIES)/ ./...

# These recipes need the artifact's data.
PAL_DATA_SET = @[ -n "$${PAL_DATA:-}" ] || { echo "PAL_DATA is not set; set it to the directory with the artifact's traces, measurements and results"; exit 1; }

.PHONY: sim-parity
sim-parity: ## Compare our reimplementation of the artifact's simulator with the artifact's own results, job by job and event by event (needs PAL_DATA)
	$(PAL_DATA_SET)
	cd research && go test -count=1 -v -run 'Parity|WorkedExample|FaithfulCommand' ./artifact ./faithful | grep -E '^(---|ok|FAIL|\s+\S+_test)'

.PHONY: sim-rounds
sim-rounds: studies ## Simulate the default queue in the artifact's own simulator, and compare it with PAL under FIFO, workloads 1-4 (needs PAL_DATA; a minute)
	$(PAL_DATA_SET)
	$(STUDIES)/faithful -compare -order adaptive -trace "$$(printf "$$PAL_DATA/sia_workload_%s.csv," 1 2 3)$$PAL_DATA/sia_workload_4.csv"

.PHONY: sim-policies
sim-policies: studies ## Simulate all policies, over populations, loads, penalties and estimates; writes bench/results/{policies,gain}.json (needs PAL_DATA)
	$(STUDIES)/policies -o bench/results/policies.json -gain bench/results/gain.json
	$(STUDIES)/table bench/results/policies.json bench/results/gain.json

# The version of the queue that runs the traces: date and commit of the queue's last change.
QUEUE_OF = $(shell git log -1 --format='%cs %h' -- pal sim placer/model)

.PHONY: sim-users
sim-users: studies ## Simulate what users gain from estimates and checkpoints, on parts of the traces and on generated ones; writes build/results/sim-users.md and docs/results/sim-users.csv (minutes; SIM_USERS_ARGS="-against FILE" compares with another queue's build/sim-users.json)
	$(STUDIES)/simtraces -users -json build/sim-users.json -md build/results/sim-users.md -csv docs/results/sim-users.csv $(SIM_USERS_ARGS)

.PHONY: sim-placement
sim-placement: studies ## Simulate placement policies in pairs, under the same queue: what choosing GPUs by speed is worth; writes build/results/placement.md and docs/results/placement.csv (ten minutes; with PAL_DATA also Philly's jobs and the PAL paper's 32 GPUs; SIM_PLACEMENT_ARGS="-only 'sia on longhorn' -share 0.1": some cells, with a tenth of the pairs)
	$(STUDIES)/simplacement -md build/results/placement.md $(SIM_PLACEMENT_ARGS)
	cp build/results/placement.csv docs/results/

.PHONY: sim-traces
sim-traces: studies ## Simulate every policy on every trace under PAL_DATA, by load and population; writes build/results/sim-traces.md and docs/results/sim-traces.{csv,json} (hours; continues an interrupted run of the same queue; SIM_TRACES_ARGS="-only Sia -again '^ours'": only Sia's traces, and only our policies again)
	$(STUDIES)/simtraces -runs build/sim-traces-$(lastword $(QUEUE_OF)).jsonl -version "$(QUEUE_OF)" -md build/results/sim-traces.md -csv docs/results/sim-traces.csv -json docs/results/sim-traces.json $(SIM_TRACES_ARGS)

.PHONY: sim-traces-quick
sim-traces-quick: studies ## Simulate every policy on a part of each trace, in minutes; writes build/results/sim-traces-quick.md and docs/results/sim-traces-quick.{csv,json}
	$(STUDIES)/simtraces -quick -version "$(QUEUE_OF)" -md build/results/sim-traces-quick.md -csv docs/results/sim-traces-quick.csv -json docs/results/sim-traces-quick.json $(SIM_TRACES_ARGS)
