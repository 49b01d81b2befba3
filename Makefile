# Copyright (c) The nomad-pal Authors
# SPDX-License-Identifier: MPL-2.0

SHELL       := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

BIN         := build/bin
VERSION     := $(shell release/version.sh)
STAMP       := github.com/nomad-pal/nomad-pal/internal/version
# We set the commit ourselves: in a linked worktree, .git is a file, and Go does not find the commit.
LDFLAGS     := -s -w -X $(STAMP).Number=$(VERSION) -X $(STAMP).commit=$(shell release/version.sh commit)
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
NESTED      := $(patsubst %/go.mod,%,$(shell git ls-files '*/go.mod'))
# Nested modules that lint vets: the modules with our own code, for the version of Nomad that the tests build anyway.
VETTED      := $(filter-out e2e/nomad% e2e/nacp,$(NESTED))
UNIT         = $(shell go list ./... | grep -v -e '/e2e$$' -e '/e2e/docker$$')

# go-nvml binds all functions of all NVML versions; without the flag, gcc warns about each deprecated function.
export CGO_CFLAGS := -O2 -g -Wno-deprecated-declarations

##@ Use

.PHONY: playground
playground: binaries ## Start a cluster that stays up until Ctrl-C: real Nomad, emulated GPUs, the placer and its page; prints commands to try
	$(BIN)/playground -nomad $$(cat build/nomad.path) -bin $(BIN)

.PHONY: demo
demo: binaries ## Run one job mix on real Nomad with emulated GPUs of measured variability: under plain Nomad, then under the placer; prints both side by side
	$(BIN)/demo -nomad $$(cat build/nomad.path) -bin $(BIN)

# binaries builds ours and Nomad's side by side: where both must be built, one compiles while the other links.
.PHONY: binaries
binaries:
	+@$(MAKE) --no-print-directory -j2 build nomad

.PHONY: build
build: ## Build the binaries into build/bin
	@echo "building binaries into $(BIN)"
	@mkdir -p $(BIN)
	go build -ldflags '$(LDFLAGS)' -o $(BIN)/ ./device-plugin/cmd/... ./placer/cmd/... ./bench/cmd/...

.PHONY: nomad
nomad: ## Find a Nomad for demo and tests: the Nomad on PATH if its version is supported, else build one into the user's cache, once
	@mkdir -p build
	@e2e/nomad/build.sh > build/nomad.path.tmp
	@tail -n 1 build/nomad.path.tmp > build/nomad.path && rm build/nomad.path.tmp

##@ Check

# GOTESTSUM runs a part of the tests: "$(call part,NAME) ARGS" runs go test ARGS. It prints what failed and what was
# skipped, and leaves the events for the summary of make test.
GOTESTSUM := $(CURDIR)/build/bin/gotestsum
part = $(GOTESTSUM) --format-hide-empty-pkg --jsonfile-timing-events $(CURDIR)/build/test/$(1).json \
  --post-run-command "$(CURDIR)/.ci/part $(1)" $(2) --
# Tests of real processes can fail because they get too little processor time. If at most three fail, each runs once more.
AGAIN = --format testname --rerun-fails=1 --rerun-fails-max-failures=3 --rerun-fails-report $(CURDIR)/build/test/$(1).again --packages .

.PHONY: gotestsum
gotestsum:
	@mkdir -p $(BIN) build/test
	@go build -o $(GOTESTSUM) gotest.tools/gotestsum

.PHONY: test
test: ## Run all tests that must pass before a merge: e2e, which mostly waits, in parallel with the checks, two checks at a time
	@rm -rf build/test
	+@failed=0; $(MAKE) --no-print-directory -j3 e2e checks || failed=$$?; .ci/summary $$failed race norace docker simulations rewrites browser research packing e2e

.PHONY: checks
checks: build nomad fault-points ## Run make test without the end-to-end tests
	+@$(MAKE) --no-print-directory fmt-check tidy-check race norace lint docker simulations rewrites browser research packing # the longest first

# make test runs a sample of these cases. After TEST_LONG_UNTIL, in seconds since 1970, no further case starts.
.PHONY: test-long
test-long: ## Run all cases of which make test runs a sample: every story and scenario on a real Nomad, all faults, all small worlds, ten million steps (about two hours)
	+@failed=0; $(MAKE) --no-print-directory -j1 training e2e-all scenarios-all faults-all partitions-short properties-all walks-all || failed=$$?; .ci/summary $$failed training e2e-all scenarios-all faults-all partitions-short properties-all walks-all

.PHONY: unit
unit: ## Run unit, property and golden tests without the race detector, for a quick check
	go test -shuffle=on $(UNIT)

# No vet here, because lint runs vet. With -p 4, packages whose tests wait run beside packages whose tests compute.
TESTS := -vet=off -shuffle=on -p 4 -timeout 2h

# RACE are the packages with tests in which goroutines can share memory; SAMPLED are those of which race runs a sample, so
# norace runs them, too.
PACKAGES = $(filter-out ./e2e ./e2e/docker,$(patsubst $(CURDIR)%,.%,$(shell go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}' ./...)))
RACE     = $(filter $(PACKAGES),$(shell git grep -lE '^\s+go [a-z.]+\b[^ ]|\bchan[ <]|^(import)?\s*"(sync|sync/atomic|testing/synctest|net/http/httptest|golang.org/x/sync/errgroup)"' -- '*.go' | sed 's,^,./,;s,/[^/]*$$,,' | sort -u))
SAMPLED  = $(filter $(RACE),$(shell git grep -lE '"github.com/nomad-pal/nomad-pal/(internal/race|placer/nomadtest/bed)"' -- '*_test.go' | sed 's,^,./,;s,/[^/]*$$,,' | sort -u))

.PHONY: norace
norace: gotestsum
	@echo "unit, property and golden tests: packages whose goroutines share no memory, and all cases of tests of which race runs a sample"
	RAPID_CHECKS=30 $(call part,norace) $(TESTS) -skip '^($(WALKS))$$' $(filter-out $(RACE),$(PACKAGES)) $(SAMPLED)

.PHONY: race
race: gotestsum nomad ptxas ## Run unit, property and golden tests with the race detector, in packages whose goroutines share memory
	@echo "tests of packages whose goroutines share memory, with the race detector (a few minutes)"
	RAPID_CHECKS=10 PTXAS=$$(cat build/ptxas.path) NOMAD_BIN=$$(cat build/nomad.path) $(call part,race) -race $(TESTS) $(RACE)

WALKS := TestEveryRequestFails|TestWalk|TestNextSteps|TestAllSmallWorlds

.PHONY: simulations
simulations: gotestsum ## Run the placer on an in-memory Nomad: each request fails in every way, random walks, small worlds
	@echo "the placer on an in-memory Nomad under faults (a minute)"
	SIMULATE_STEPS=100000 $(call part,simulations) -vet=off -timeout 2h -run '^($(WALKS))$$' ./placer ./placer/nomadtest/bed

.PHONY: faults-all
faults-all: gotestsum
	TEST_LONG=1 $(call part,faults-all) -count=1 -timeout 4h -run 'TestEveryRequestFails|TestAllSmallWorlds|TestGivenUpThenRunAgain|TestReplay|TestFailureCountsOnce|TestValidRecordStays' ./placer ./placer/nomadtest/bed

.PHONY: properties-all
properties-all: gotestsum
	RAPID_CHECKS=200 GANG_EVENTS=2000000 $(call part,properties-all) -count=1 -timeout 4h ./pal/... ./placer/gang ./placer/ledger ./placer/cluster ./placer/rewrite ./placer/store ./device-plugin ./sim

.PHONY: walks-all
walks-all: gotestsum
	TEST_LONG=1 SIMULATE_STEPS=10000000 SIMULATE_FROM=20000 $(call part,walks-all) -count=1 -timeout 4h -run 'TestWalk$$' ./placer/nomadtest/bed

.PHONY: e2e-all
e2e-all: gotestsum build nomad
	cd e2e && TEST_LONG=1 E2E_BIN=$(CURDIR)/$(BIN) NOMAD_BIN=$$(cat $(CURDIR)/build/nomad.path) $(call part,e2e-all,$(call AGAIN,e2e-all)) -vet=off -count=1 -parallel 8 -timeout 2h -skip '^Test(Scenarios|PlacerPartitions|Training)$$'

.PHONY: training
training: gotestsum build nomad ## Train with a real PyTorch on real Nomad; kill ranks, nodes and the agent, and compare the last loss (needs python3-torch and openmpi-bin; without them the test is skipped, but fails in CI)
	@echo "trainings that are stopped (some minutes)"
	cd e2e && TEST_LONG=1 E2E_BIN=$(CURDIR)/$(BIN) NOMAD_BIN=$$(cat $(CURDIR)/build/nomad.path) $(call part,training,$(call AGAIN,training)) -vet=off -count=1 -timeout 1h -run '^TestTraining$$'

.PHONY: training-report
training-report: ## Run make training, and write what the stops cost into docs/results/README.md
	TRAINING_REPORT=$(CURDIR)/docs/results/README.md $(MAKE) --no-print-directory training

.PHONY: scenarios-all
scenarios-all: gotestsum build nomad
	cd e2e && TEST_LONG=1 E2E_BIN=$(CURDIR)/$(BIN) NOMAD_BIN=$$(cat $(CURDIR)/build/nomad.path) $(call part,scenarios-all,$(call AGAIN,scenarios-all)) -count=1 -parallel 8 -timeout 2h -run TestScenarios

.PHONY: partitions-short
partitions-short: gotestsum build nomad shifted-clock
	cd e2e && TEST_LONG=1 E2E_BIN=$(CURDIR)/$(BIN) NOMAD_BIN=$$(cat $(CURDIR)/build/nomad.path) $(call part,partitions-short,$(call AGAIN,partitions-short)) -count=1 -timeout 2h -run TestPlacerPartitions

.PHONY: rewrites
rewrites: gotestsum nomad ## Check every kind of rewrite, and the simulator's plain Nomad, against Nomad's own scheduler in process
	@echo "rewrites through Nomad's scheduler"
	cd e2e/scheduler && $(call part,rewrites) -tags hashicorpmetrics ./...

.PHONY: rewrites-1.10
rewrites-1.10: ## Check every kind of rewrite against the scheduler of Nomad 1.10 (the first build takes minutes)
	cd e2e/scheduler && go test -modfile=v1.10.mod -tags hashicorpmetrics,nomad1.10 .

# E2E_RUN selects end-to-end tests, as go test -run does.
E2E_RUN ?= .

.PHONY: e2e
e2e: gotestsum build nomad ## Run the end-to-end tests on real Nomad clusters
	@echo "end-to-end tests on real Nomad clusters (several minutes)"
	cd e2e && E2E_BIN=$(CURDIR)/$(BIN) NOMAD_BIN=$$(cat $(CURDIR)/build/nomad.path) $(call part,e2e,$(call AGAIN,e2e)) -vet=off -count=1 -parallel 8 -timeout 2h -run '$(E2E_RUN)'

.PHONY: docker
docker: gotestsum build nomad ## Run the jobs of jobspecs/ in containers (needs root and docker.io; without them the tests are skipped, but fail in CI)
	@echo "jobspecs in docker, on real Nomad"
	cd e2e/docker && E2E_BIN=$(CURDIR)/$(BIN) NOMAD_BIN=$$(cat $(CURDIR)/build/nomad.path) $(call part,docker,$(call AGAIN,docker)) -vet=off -count=1 -timeout 2h

.PHONY: lint
lint: ## Run go vet and staticcheck, also in nested modules
	go vet ./...
	go run $(STATICCHECK) ./...
	cd research && go run $(STATICCHECK) ./...
	for m in $(VETTED); do (cd $$m && go vet -tags hashicorpmetrics ./...); done

.PHONY: prose
prose: ## Print advice about wording: phrases that readers stumbled over, long sentences
	-@go test -tags prose ./internal/deps -run Prose

.PHONY: fmt
fmt: ## Run gofmt and go mod tidy
	gofmt -l -w $$(git ls-files '*.go')
	go mod tidy
	for m in $(NESTED); do (cd $$m && go mod tidy); done

.PHONY: fmt-check
fmt-check:
	@out=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$out" ]; then echo "gofmt would change:"; echo "$$out"; exit 1; fi

.PHONY: tidy-check
tidy-check:
	@echo "checking that go mod tidy changes nothing"
	@for m in . $(VETTED); do go -C $$m mod tidy -diff || { echo "go mod tidy would change go.mod or go.sum in $$m (make fmt)"; exit 1; }; done

.PHONY: bench
bench: ## Run the benchmarks of the core: decisions at 10,000 nodes
	go test -run xxx -bench . -benchtime 20x ./pal

# How long each fuzz target runs. Ordinary test runs also run each target, with its seeds and with the inputs that fuzzing found.
FUZZTIME ?= 1m

.PHONY: fuzz
fuzz: ## Run each fuzz target for FUZZTIME, by default a minute
	@for file in $$(git grep -l '^func Fuzz' -- '*_test.go'); do \
	  for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' $$file); do \
	    echo "$$(dirname $$file): $$target for $(FUZZTIME)"; \
	    go test ./$$(dirname $$file) -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) | grep -v '^fuzz: elapsed'; \
	  done; \
	done

##@ More

.PHONY: docs
docs: ## Write the generated pages of docs/ again: commands, configuration, metrics, states of a gang
	go test -count=1 ./placer/agent -run Reference -rewrite-reference
	go test -count=1 ./placer/cmd/nomad-pal ./device-plugin/cmd/nomad-device-pal -run TestCommandReference -rewrite-reference
	go test -count=1 ./placer/gang -run TestDrawing -rewrite-docs
	go test -count=1 ./device-plugin -run TestQuestionsReference -rewrite-reference

.PHONY: clean
clean: ## Remove build/
	rm -rf build

# The targets of make help; make help-all prints all.
HELP := playground demo build unit lint fmt test test-long e2e docs release clean help-all

.PHONY: help
help: ## Print the usual targets
	@awk -v names="$(HELP)" 'BEGIN {FS = ":.*## "; n = split(names, name, " ")} /^[a-z0-9-]+:.*## / {sub(/[;:(].*/, "", $$2); text[$$1] = $$2} \
	  END {for (i = 1; i <= n; i++) printf "  make %-12s %s\n", name[i], text[name[i]]}' $(MAKEFILE_LIST)

.PHONY: help-all
help-all: ## Print all targets
	@awk 'BEGIN {FS = ":.*##"} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-zA-Z0-9_.-]+:.*?##/ {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

-include release/release.mk sim/sim.mk research/research.mk bench/real.mk device-plugin/plugin.mk device-plugin/measure/measure.mk bench/hardware/hardware.mk placer/placer.mk
