# Weir's targets. Only Go is needed, except where a target's line says otherwise.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

MAINS   := jobmanager taskmanager flinkctl
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

# Linters and generators run from the module that pins them.
TOOL := go tool -modfile=tools/go.mod

# The S3 server of the tests and of compose: a program, whose dependencies stay out of go.mod.
VERSITYGW := .tools/bin/versitygw

# What is compiled for the binaries, the linters, the tests and the programs of
# test/e2e is the same, and so is compiled once. Other flags are another build
# of every package, dependencies included.
export CGO_ENABLED := 0
export GOFLAGS := $(strip $(GOFLAGS) -trimpath)

# Packages with goroutines of their own, which is where the race detector finds something.
SHELL_PACKAGES := $(patsubst %,./%/...,$(wildcard \
	pkg/checkpointstore pkg/connector pkg/coordinator/driver pkg/jobmanager pkg/minicluster \
	pkg/objectstore pkg/runtime pkg/statebackend pkg/stream pkg/transport))

.PHONY: help
help: ## print this list
	@grep -hE '^[a-z][a-z0-9-]*:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /\1\t/' | awk -F'\t' '{printf "  make %-16s %s\n", $$1, $$2}'

# ---- build ----

.PHONY: build
build: $(MAINS:%=bin/%) ## static binaries in bin/

# Go decides what is out of date, and it takes no time when nothing is.
.PHONY: $(MAINS:%=bin/%)
$(MAINS:%=bin/%): bin/%:
	go build -ldflags '-s -w -X github.com/weirstream/weir/internal/version.stamp=$(VERSION)' -o $@ ./cmd/$*

.PHONY: proto
proto: ## generate Go from proto/ (compiler and plugins pinned in tools/go.mod)
	go run -C tools ./protogen

.PHONY: docs
docs: ## generate docs/CONFIG.md from pkg/config
	go test ./pkg/config -run TestReferenceIsCurrent -update

.PHONY: fmt
fmt: ## format all Go code
	gofmt -w $$(find . -name '*.go' -not -path './.*')

# ---- check ----

.PHONY: lint
lint: ## gofmt, go vet, staticcheck, exhaustive, revive
	@unformatted=$$(gofmt -l $$(find . -name '*.go' -not -path './.*')); \
	if [[ -n $$unformatted ]]; then echo "not formatted, run 'make fmt':"; echo "$$unformatted"; exit 1; fi
	go vet -tags e2e ./...
	go vet -C tools ./...
	$(TOOL) staticcheck -tags e2e ./...
	GOFLAGS="$${GOFLAGS:-} -tags=e2e" $(TOOL) exhaustive -check switch -typeonly '^github.com/weirstream/weir/' ./...
	$(TOOL) revive -config tools/revive.toml -formatter friendly ./...

.PHONY: test
test: ## all tests that need only Go
	go test -timeout 8m ./...

.PHONY: test-race
test-race: ## tests of the packages with goroutines under the race detector (needs a C compiler)
	CGO_ENABLED=1 go test -race -timeout 15m $(SHELL_PACKAGES)

SEEDS ?= 1000
SEED_BASE ?= 1

.PHONY: sim
sim: ## simulated clusters under faults: make sim SEEDS=1000 SEED_BASE=1, or PLANT=forgets-to-block
	go test ./internal/sim -run 'TestSim$$' -count=1 -v -timeout 60m -sim.seeds=$(SEEDS) -sim.base=$(SEED_BASE) -sim.plant=$(PLANT)

.PHONY: sim-plants
sim-plants: ## the bugs that can be planted in the simulator, for make sim PLANT=name
	@go test ./internal/sim -run TestPlantsAreDescribed -count=1 -v -sim.plants | grep -vE '^(=== |--- |PASS|ok )'

FRESH_BASE := $(shell date +%s)000

.PHONY: sim-fresh
sim-fresh: ## simulated clusters from seeds that nobody has run: 8 minutes, and at least 5000
	@echo "the first seed is $(FRESH_BASE): make sim SEEDS=5000 SEED_BASE=$(FRESH_BASE) runs the same"
	go test ./internal/sim -run 'TestSim$$' -count=1 -v -timeout 30m -sim.for=8m -sim.seeds=5000 -sim.base=$(FRESH_BASE)

.PHONY: test-e2e
test-e2e: build $(VERSITYGW) ## tests with real processes and a real S3 server
	@# Compiled before time counts: some tests bound how long a submission may take, its build included.
	@# List compiles as build does, and links nothing.
	go list -tags e2e -export -f '' ./examples/... ./test/programs/... ./internal/demo
	go test -tags e2e -count=1 -timeout 25m ./test/e2e/...

# ---- run ----

.PHONY: demo
demo: build ## kill -9 a TaskManager in the middle of a job; every flight is still counted once
	go run ./internal/demo

$(VERSITYGW):
	GOBIN=$(CURDIR)/$(@D) go install -ldflags '-s -w' github.com/versity/versitygw/cmd/versitygw@v1.8.0

# Compose 2 where it is installed, else 1. The classic builder needs no plugin.
COMPOSE = $(shell if docker compose version >/dev/null 2>&1; then echo docker compose; else echo docker-compose; fi) \
	--project-name weir --file deploy/docker-compose.yml
IMAGE_DIR := .tools/image
REQUIRE_DOCKER := docker info >/dev/null 2>&1 || { echo "there is no Docker engine: start one (service docker start) and try again" >&2; exit 1; }

.PHONY: images
images: build $(VERSITYGW) ## container images of the processes and of the S3 server
	@$(REQUIRE_DOCKER)
	mkdir -p $(IMAGE_DIR)
	go run ./deploy/imageroot $(IMAGE_DIR)
	cp bin/jobmanager bin/taskmanager $(VERSITYGW) deploy/config.yaml deploy/*.Dockerfile $(IMAGE_DIR)/
	DOCKER_BUILDKIT=0 COMPOSE_DOCKER_CLI_BUILD=0 $(COMPOSE) build

.PHONY: cluster-up
cluster-up: images ## a cluster in containers: JobManager, three TaskManagers, S3 server (needs Docker)
	$(COMPOSE) up --detach --no-build --scale taskmanager=3
	@echo "JobManager at 127.0.0.1:$${WEIR_JOBMANAGER_PORT:-6123}: bin/flinkctl taskmanagers"

.PHONY: cluster-down
cluster-down: ## stop it and remove its volumes
	@$(REQUIRE_DOCKER)
	@mkdir -p $(IMAGE_DIR) # Compose 1 wants the build context of every service, here too
	$(COMPOSE) down --volumes

.PHONY: cluster-e2e
cluster-e2e: images ## kill a TaskManager's container in the middle of a job (needs Docker)
	go run ./deploy/composecheck

# ---- measure ----

.PHONY: bench
bench: build ## all benchmarks against their baselines: RATIO, BASE and MEASURE lines
	go run ./internal/bench

bench-%: build ## one benchmark, as in: make bench-keyed_count_vs_map
	go run ./internal/bench $*
