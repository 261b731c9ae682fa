# `make demo` and `make test` do all their own set-up: a private .venv with the pinned versions of constraints.txt.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready

# Small networks lose up to 39x to thread start-up; one thread for each library unless a test says otherwise.
export OMP_NUM_THREADS ?= 1
export MKL_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1

# Compiled modules are kept, also where the environment says otherwise, and beside the tree: without them each of the many
# processes of a test session compiles all that it imports, which takes two thirds of the time of its start.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX ?= $(abspath $(VENV))/pycache

# uv does not read pip's settings: pass on a local wheel folder; without one ask for PyTorch's CPU builds.
ifneq ($(PIP_FIND_LINKS),)
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
else
export UV_TORCH_BACKEND ?= cpu
endif

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-long test-clusters lint types imports js journeys clean

help:  ## show the targets
	@grep -hE '^[a-z%-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z%-]+):.*## /  make \1\t/' | expand -t 24

setup: $(STAMP)  ## make .venv with the pinned versions

$(STAMP): pyproject.toml constraints.txt
	@echo '== set-up: $(VENV) (about a minute the first time)'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv 2>/dev/null \
	    || $(BIN)/python -m pip install --disable-pip-version-check uv
	$(BIN)/uv pip install --python $(BIN)/python --constraint constraints.txt --group dev --editable '.[all]'
	@touch $@

demo: setup  ## see what Operant does, in a minute
	@$(BIN)/python examples/demo.py

lint: setup
	@echo '== ruff'
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: setup
	@echo '== mypy'
	@$(BIN)/mypy

imports: setup
	@echo '== import-linter'
	@$(BIN)/lint-imports

# The page needs no node; where there is one, its JavaScript is checked by the types in its comments, and linted.
js: NODE_TOOLS := typescript@5.9.3 @biomejs/biome@2.6.6
js:  ## types and lint of the page's JavaScript, where node is installed
	@echo '== tsc and biome'
	@if ! command -v npm >/dev/null; then echo 'not checked: there is no node'; \
	elif echo '$(NODE_TOOLS)' | cmp -s - node_modules/.pinned || { \
	    npm install --silent --no-save --no-package-lock --no-audit --no-fund $(NODE_TOOLS) \
	    && echo '$(NODE_TOOLS)' > node_modules/.pinned; }; \
	then node_modules/.bin/tsc && node_modules/.bin/biome lint --error-on-warnings; \
	else echo 'not checked: npm could not install $(NODE_TOOLS)'; fi

test: setup lint  ## lint, types, one-way imports, tests (under 10 minutes on 2 quiet cores)
	@$(MAKE) --no-print-directory -j 2 pytest types imports js

# Three workers for two cores: a third of the time a test waits for a process, a clock or a browser. Modules go to workers
# in the order of the collection, the dearest first (tests/conftest.py), so that no worker ends long before the others.
pytest: setup
	@echo '== pytest'
	@$(BIN)/python -m pytest -n 3 --dist loadscope --no-loadscope-reorder -m 'not long'

test-long: setup  ## the full fault counts and load tests, and new examples for the properties
	@echo '== pytest, properties on new examples'
	@HYPOTHESIS_PROFILE=exploring $(BIN)/python -m pytest -n 2 -m 'hypothesis and not long'
	@echo '== pytest, long'
	@$(BIN)/python -m pytest -m long --timeout 1800

test-clusters: setup  ## the sites on real clusters: Kubernetes, built once by tests/system/k8s/build.sh
	@$(BIN)/python -m pytest -m clusters --timeout 1800

bench-%: setup  ## a benchmark against its peers, which get a venv of their own: bench-tracking, bench-parallel, …
	@$(BIN)/python benchmarks/$*.py

journeys: setup  ## files and switches between files on the three ways through the source
	@$(BIN)/python benchmarks/journeys.py

clean:
	rm -rf $(VENV) .venv-* node_modules build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .fuzz
