# Copyright (c) The nomad-pal Authors
# SPDX-License-Identifier: MPL-2.0

##@ Proof on a real Nomad

.PHONY: replay
replay: build nomad $(BIN)/rank-driver ## Run workloads on real clusters under plain Nomad, Slurm (apt-get install slurm-wlm munge libfaketime; skipped without) and the placer: 66 runs, over an hour (REPLAY_ARGS='-resume', or '-jobs 60 -repetitions 1 -outliers 1' for 8 minutes); writes bench/results/replay.json and, with the raw runs, replay-runs.json.gz
	$(BIN)/replay -nomad $$(cat build/nomad.path) -bin $(BIN) $(REPLAY_ARGS)

.PHONY: replay-placement
replay-placement: build nomad $(BIN)/rank-driver ## Run ten workloads on real clusters with GPUs chosen by speed, and packed, under the same queue: 60 runs, an hour; writes bench/results/replay-placement.json
	$(BIN)/replay -nomad $$(cat build/nomad.path) -bin $(BIN) -json bench/results/replay-placement.json -repetitions 10 -modes pal-packed,pal-default $(REPLAY_ARGS)

.PHONY: replay-overload
replay-overload: build nomad $(BIN)/rank-driver ## Run an overloaded hour on real clusters, under plain Nomad, under the placer with overdue gangs before all others (an earlier default), and under the default: 6 runs, 25 minutes; writes bench/results/replay-overload.json
	$(BIN)/replay -nomad $$(cat build/nomad.path) -bin $(BIN) -json bench/results/replay-overload.json -outliers 1 -repetitions 1 -parallel 2 \
	  -jobs 60 -overload 4 -max-wait 1h -modes nomad-binpack-retry30m,nomad-binpack-retry10m,pal-overdue-first,pal-default $(REPLAY_ARGS)

.PHONY: replay-slurm
replay-slurm: build nomad $(BIN)/rank-driver ## Run one workload of replay under Slurm with backfill (apt-get install slurm-wlm munge libfaketime), plain Nomad and the placer: 6 runs, 20 minutes; writes bench/results/replay-slurm.json
	$(BIN)/replay -nomad $$(cat build/nomad.path) -bin $(BIN) -json bench/results/replay-slurm.json -outliers 1 -repetitions 1 -parallel 2 \
	  -modes nomad-binpack-retry30m,nomad-binpack-retry10m,slurm-backfill,slurm-backfill-guesses,pal-default $(REPLAY_ARGS)

.PHONY: replay-models
replay-models: build nomad $(BIN)/rank-driver ## Run jobs on two GPU models, with speeds as Gavel measured them, on real clusters: under plain Nomad and under the placer, also with a constraint of each job to its fastest model, and under the placer with speeds; 5 runs, up to 40 minutes; writes bench/results/replay-models.json
	$(BIN)/replay -nomad $$(cat build/nomad.path) -bin $(BIN) -json bench/results/replay-models.json -models -outliers 0 -repetitions 1 -parallel 1 -nodes 8 \
	  -jobs 60 -modes nomad-model-any,nomad-model-fastest,pal-model-any,pal-model-fastest,pal-model-speed $(REPLAY_ARGS)

.PHONY: replay-foresee
replay-foresee: build ## Print what the simulator predicts for the runs of make replay, over ten seeds (seconds)
	$(BIN)/replay -foresee -repetitions 10

.PHONY: replay-report
replay-report: ## Draw bench/results/replay-runs.json.gz as a page with plots (build/replay.html) and as SVG (build/plots)
	go run ./bench/cmd/replay -from bench/results/replay.json -html build/replay.html -svg build/plots

.PHONY: scale
scale: build nomad $(BIN)/simnodes $(BIN)/rank-driver ## Measure a real server with 100 to 10,000 simulated nodes, with 16 real clients, and with 16 nodes of Slurm if it is installed (apt-get install slurm-wlm munge; SCALE_ARGS='-nodes 100'); writes bench/results/scale.json
	$(BIN)/scale -nomad $$(cat build/nomad.path) -bin $(BIN) $(SCALE_ARGS)

.PHONY: scale-report
scale-report: ## Draw bench/results/scale.json as a page with plots (build/scale.html) and as SVG (build/plots)
	go run ./bench/cmd/scale -from bench/results/scale.json -html build/scale.html -svg build/plots

.PHONY: soak
soak: build nomad ## Run two hours of traffic with churn on a real cluster, and check for drift and leaks (SOAK_ARGS='-duration 8m -look 15s -churn 40s'); writes bench/results/soak.json
	$(BIN)/soak -nomad $$(cat build/nomad.path) -bin $(BIN) $(SOAK_ARGS)

.PHONY: $(BIN)/rank-driver
$(BIN)/rank-driver:
	@mkdir -p $(BIN)
	cd bench/rankdriver && go build -tags hashicorpmetrics -o $(CURDIR)/$(BIN)/rank-driver .

.PHONY: $(BIN)/simnodes
$(BIN)/simnodes:
	@mkdir -p $(BIN)
	cd bench/simnodes && go build -o $(CURDIR)/$(BIN)/simnodes .
