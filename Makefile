# Headrace: `make demo` shows it, `make test` proves it. Both install what they need.
SHELL := /bin/bash
.DEFAULT_GOAL := help
# Where it is set, every process that a test starts compiles all that it imports, vLLM's 4,000 modules too.
unexport PYTHONDONTWRITEBYTECODE
py := .venv/bin/python
sources := operator sidecar engine_patches e2e charts conftest.py
packages := operator/src sidecar/engine/src sidecar/gateway/src engine_patches/src

.PHONY: help env demo demo-pool bench-demo down test unit lint types real cluster-tests generate bench bench-quick images

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

env: ## the Python environment, .venv
	@requirements/env.sh

demo bench-demo: export DEMO_STARTED := $(shell date +%s)
demo: env ## a real cluster, two services, bursts beyond their capacity, live switches through all policies
	@$(py) -m e2e.demo

demo-pool: env ## two services whose load changes, and a GPUPool that moves them (twenty minutes)
	@$(py) -m e2e.demo.load_shift

down: env ## stop the local cluster and leave the machine as it was
	@$(py) -m e2e.cluster down

test: unit real bench-quick cluster-tests ## everything: lint, types, real parts, a quick simulation, the whole cluster

unit: lint types ## lint, types and the fast tests (under a minute)
	$(py) -m pytest -q -n 2 --dist worksteal -m "not (apiserver or envoy or vllm or cluster)" --durations=15

lint: env
	@.venv/bin/ruff check $(sources)
	@.venv/bin/ruff format --check --quiet $(sources)
	@.venv/bin/lint-imports --no-logo

types: env
	@$(py) -m mypy $(packages) e2e

real: env ## tests on a real API server, a real Envoy and the real vLLM
	$(py) -m e2e.cluster binaries
	$(py) -m pytest -q -n 2 --dist loadfile -m "(apiserver or envoy or vllm) and not cluster" --durations=25

cluster-tests: env ## tests on the whole local cluster
	$(py) -m e2e.cluster up
	$(py) -m pytest -q -m cluster --durations=15

generate: env ## CRDs, chart files and reference tables from their single sources
	$(py) -m headrace_operator.api.crd
	$(py) -m headrace_gateway.xds.chart_files
	$(py) -m charts.generate
	$(py) -m charts.dashboards
	$(py) docs/generate.py

bench: env ## the figures in e2e/bench/results, simulated and measured (an hour; goes on where it was stopped)
	@$(py) -m e2e.bench

bench-demo: env ## the demo, and its times in e2e/bench/results
	@$(py) -m e2e.demo --keep

bench-quick: env ## a tiny version of the simulated benchmarks; keeps nothing
	@$(py) -m e2e.bench --quick

images: ## container images for a registry: make images REGISTRY=example.com/headrace TAG=0.1.0 (PUSH=no: only build)
	PUSH=$(PUSH) requirements/images.sh $(REGISTRY) $(TAG)
