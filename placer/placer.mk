# Copyright (c) The nomad-pal Authors
# SPDX-License-Identifier: MPL-2.0

##@ Placer and web page

# A placer with fault points, at which the end-to-end tests kill the placer.
.PHONY: fault-points
fault-points:
	@mkdir -p $(BIN)
	go build -tags faultpoints -o $(BIN)/nomad-pal-fault ./placer/cmd/nomad-pal

e2e e2e-all: fault-points

# A placer whose wall clock is ahead by NOMAD_PAL_CLOCK seconds (negative: behind). It is built with one line added to Go's time.Now.
.PHONY: shifted-clock
shifted-clock:
	@mkdir -p $(BIN) build/_clock
	@sed 's/^\tsec, nsec, mono := runtimeNow()$$/&\n\tsec += shift()/' $$(go env GOROOT)/src/time/time.go > build/_clock/time.go
	@grep -q 'sec += shift()' build/_clock/time.go || { echo "this Go's time.Now is not the one that placer/placer.mk expects"; exit 1; }
	@printf 'package time\n\nimport "syscall"\n\nfunc shift() (seconds int64) {\n\ttext, _ := syscall.Getenv("NOMAD_PAL_CLOCK")\n\tn, _ := atoi(text)\n\treturn int64(n)\n}\n' > build/_clock/shift.go
	@printf '{"Replace": {"%s/time.go": "build/_clock/time.go", "%s/shift.go": "build/_clock/shift.go"}}' $$(go env GOROOT)/src/time $$(go env GOROOT)/src/time > build/_clock/overlay.json
	go build -overlay build/_clock/overlay.json -o $(BIN)/nomad-pal-shifted ./placer/cmd/nomad-pal

.PHONY: monitoring
monitoring: ## Check the dashboard against Grafana's published types (npm), and its queries and the alert rules with Prometheus (promtool on PATH)
	@mkdir -p build/grafana
	npm install --silent --prefix build/grafana typescript@5 @grafana/schema@13.2.3
	@(echo "import type { Dashboard } from '@grafana/schema'; export const board: Dashboard ="; cat placer/deploy/monitoring/grafana.json) > build/grafana/board.ts
	cd build/grafana && npx tsc --noEmit --strict --skipLibCheck --moduleResolution bundler --module esnext board.ts
	@command -v promtool >/dev/null || { echo "promtool is not on PATH: Debian has it in the package prometheus"; exit 1; }
	go test -count=1 -run 'TestMonitoring|TestDashboard|TestPromtool' ./placer/agent

.PHONY: placer-bench
placer-bench: ## Measure speed and memory at 10,000 nodes of 8 GPUs: a decision, a queue of 1,000 jobs, cost by number of free GPUs; a restart with 10,000 jobs on 1,000 nodes (1-2 minutes)
	go test -run xxx -bench 'Decide/gangs=1(-models)?$$$$|Free' -benchtime 200x ./placer | grep -E '^Benchmark'
	go test -run xxx -bench 'Decide/gangs=1000|Event|Publish|Picture|Restart' -benchtime 5x ./placer | grep -E '^Benchmark'

.PHONY: chaos
chaos: build nomad fault-points ## Run 1,000 jobs on a real cluster under random faults (half an hour)
	PLACER_CHAOS_JOBS=$${PLACER_CHAOS_JOBS:-1000} E2E_BIN=$(CURDIR)/$(BIN) NOMAD_BIN=$$(cat build/nomad.path) \
		go test -count=1 -timeout 120m -v -run TestPlacerChaos ./e2e

.PHONY: partitions
partitions: build nomad shifted-clock ## Run 500 jobs on a real cluster whose hosts are cut off from each other, with 200 faults in all; writes docs/results/README.md; logs are in build/partitions (half an hour, as root)
	@mkdir -p build/partitions
	PARTITIONS_FAULTS=$${PARTITIONS_FAULTS:-200} PARTITIONS_JOBS=$${PARTITIONS_JOBS:-500} PARTITIONS_KEEP=$(CURDIR)/build/partitions PARTITIONS_REPORT=$(CURDIR)/docs/results/README.md \
		E2E_BIN=$(CURDIR)/$(BIN) NOMAD_BIN=$$(cat build/nomad.path) go test -count=1 -timeout 180m -v -run TestPlacerPartitions ./e2e

.PHONY: simulate-faults
simulate-faults: ## Run random walks of the placer on an in-memory Nomad under faults, SIMULATE_STEPS (default 10 million) steps from seed SIMULATE_FROM on, and go through all small worlds; writes build/results/simulate-faults.md and docs/results/simulate-faults.csv (40 minutes on two cores)
	@mkdir -p build/results
	TEST_LONG=1 SIMULATE_STEPS=$${SIMULATE_STEPS:-10000000} SIMULATE_FROM=$${SIMULATE_FROM:-20000} SIMULATE_REPORT=$(CURDIR)/build/results/simulate-faults.md \
		go test -count=1 -timeout 0 -v -run 'TestWalk$$$$|TestAllSmallWorlds' ./placer/nomadtest/bed | grep -vE '^ *(=== |--- PASS)'
	cp build/results/simulate-faults.csv docs/results/

.PHONY: faults
faults: ## Fail each request of the placer in each way, on an in-memory Nomad, and try hostile jobs and nodes; writes build/results/{faults,hostile-jobs,hostile-nodes}.md and docs/results/hostile-{jobs,nodes}.csv (2 minutes)
	@mkdir -p build/results
	PAL_HOSTILE_REPORT=$(CURDIR)/build/results/hostile-jobs.md PAL_HOSTILE_NODES_REPORT=$(CURDIR)/build/results/hostile-nodes.md \
		go test -count=1 -run 'TestHostileJobs|TestHostileNodes' ./placer
	cp build/results/hostile-{jobs,nodes}.csv docs/results/
	TEST_LONG=1 PAL_FAULTS_REPORT=$(CURDIR)/build/results/faults.md go test -count=1 -timeout 20m -run TestEveryRequestFails ./placer

# Without Chromium or npm, the tests of the web page are skipped and log why. With BROWSER_REQUIRED=1, as in CI, the tests fail.
.PHONY: browser
browser: gotestsum build ## Test the web page in headless Chromium, on a stand-in for Nomad (apt-get install chromium npm)
	@echo "the web page in headless Chromium (a minute)"
	@if command -v npm >/dev/null; then mkdir -p build/browser && cp e2e/browser/package*.json build/browser && npm --prefix build/browser ci --no-audit --no-fund --silent; else echo "npm is not there: axe-core is not run"; fi
	cd e2e/browser && E2E_BIN=$(CURDIR)/$(BIN) $(call part,browser,$(call AGAIN,browser)) -count=1 -timeout 2h

.PHONY: page-bench
page-bench: build ## Measure the web page at 10,000 nodes of 8 GPUs: first draw, blocks, bytes, memory; writes build/results/page.md (4 minutes)
	@mkdir -p build/results
	cd e2e/browser && E2E_BIN=$(CURDIR)/$(BIN) PAGE_REPORT=$(CURDIR)/build/results/page.md go test -count=1 -v -timeout 20m -run TestPageFigures .

.PHONY: page-images
page-images: build ## Write pictures of the overview in several states of a cluster into build/img, and the one that the docs show into docs/img; the history in the pictures is invented (a minute; apt-get install chromium fonts-liberation)
	rm -rf build/img && mkdir -p build/img
	cd e2e/browser && FONTCONFIG_FILE=$(CURDIR)/e2e/browser/fonts.conf E2E_BIN=$(CURDIR)/$(BIN) PAGE_IMAGES=$(CURDIR)/build/img go test -count=1 -v -timeout 20m -run TestStatesOfClusters .
	cp build/img/state-full.webp docs/img/overview-1440-light.webp

.PHONY: history-bench
history-bench: ## Measure queries on a history of HISTORY_RUNS runs (default ten million: 5 GB below TMPDIR); writes build/results/history.md (half an hour)
	@mkdir -p build/results
	HISTORY_REPORT=$(CURDIR)/build/results/history.md go test -count=1 -v -timeout 0 -run 'TestFigures$$' ./placer/accounting

.PHONY: history-check
history-check: build nomad ## Compare the history with what machines really ran: on the in-memory Nomad a simulated day each with a database that is unavailable, on a full disk (as root), corrupt, or a PostgreSQL that stops (apt-get install postgresql); and on a real Nomad
	go test -count=1 -timeout 0 -v ./placer/accounting
	ACCOUNTS_SEEDS=$${ACCOUNTS_SEEDS:-30} ACCOUNTS_DAY=$${ACCOUNTS_DAY:-24h} GOGC=300 go test -count=1 -timeout 0 -v -run 'TestAccounts' ./placer/nomadtest/bed
	$(MAKE) e2e E2E_RUN='^TestPlacerLife/history'
