# Weir's targets. Only Go is needed, except where a target's line says otherwise.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

.PHONY: help
help: ## print this list
	@grep -hE '^[a-z][a-z0-9-]*:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /\1\t/' | awk -F'\t' '{printf "  make %-16s %s\n", $$1, $$2}'

.PHONY: proto
proto: ## generate Go from proto/ (compiler and plugins pinned in tools/go.mod)
	go run -C tools ./protogen
