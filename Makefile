# Everything there is to run. Each target first sees to .venv by itself: Python 3.11+ is all that must be there.

SHELL := /bin/bash
.DEFAULT_GOAL := help
BIN := .venv/bin
UV := uv==0.13.7
# Tests start hundreds of processes: each is up half a second sooner if what it imports is kept compiled.
unexport PYTHONDONTWRITEBYTECODE
CORE := src/windlass/_model/*,src/windlass/_policy/*
COVERAGE := .coverage.core

# Run a command in silence, after one line saying what it is; show what it printed only if it fails.
define step
@printf '  %-8s %s\n' '$(1)' '$(2)'; out=$$($(3) 2>&1) || { printf '%s\n' "$$out"; exit 1; }
endef

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## Create or mend .venv from the lock; nothing to do is the usual case
	@scripts/setup

.PHONY: servers
servers: ## Install what tests and benchmarks need besides: Postgres 15, PgBouncer, curl, jq, node, promtool
	@scripts/servers

.PHONY: demo
demo: setup ## Show windlass at work
	@$(BIN)/windlass demo

.PHONY: test
test: setup ## The whole gate: check, the core's coverage, every test on a sample of stores and examples
	@$(MAKE) --no-print-directory -j 2 servers check core
	@$(MAKE) --no-print-directory pytest

.PHONY: test-all
test-all: export WINDLASS_TESTS := full
test-all: test ## The same on every store, every server and with all examples

.PHONY: pytest
pytest: setup
	@printf '  %-8s %s\n' 'pytest' 'all but real processes'
	@$(BIN)/pytest --no-header -q -n 2 --dist worksteal --ignore=tests/unit --ignore=tests/test_tidy.py -m 'not system and not chaos'
	@printf '  %-8s %s\n' 'pytest' 'real processes, kills and cuts'
	@$(BIN)/pytest --no-header -q -n 2 --dist worksteal -m 'system and not chaos'

.PHONY: pythons
pythons: setup ## The core, the loops and the stores in memory and SQLite under every Python from 3.11 on
	@scripts/pythons

.PHONY: check lint types layers tidy
check: lint types layers tidy ## The quick gate: lint, format, types, layers, house rules
lint: setup
	$(call step,ruff,lint,$(BIN)/ruff check)
	$(call step,ruff,format,$(BIN)/ruff format --check)
types: setup
	$(call step,mypy,types,$(BIN)/mypy)
layers: setup
	$(call step,sync,generated twins,$(BIN)/python scripts/sync --check)
	$(call step,imports,layers,$(BIN)/lint-imports)
tidy: setup
	$(call step,tidy,house rules,$(BIN)/pytest -q tests/test_tidy.py tests/test_exports.py)

.PHONY: core
core: setup ## Unit tests, with every branch of _model and _policy covered
	$(call step,unit,the core,$(BIN)/coverage run --data-file=$(COVERAGE) -m pytest -q tests/unit)
	$(call step,coverage,100 % of the core,$(BIN)/coverage report --data-file=$(COVERAGE) --include='$(CORE)' --fail-under=100)

.PHONY: format
format: setup ## Put the code into shape, mending what ruff can
	@$(BIN)/ruff check --fix-only --quiet
	@$(BIN)/ruff format --quiet

.PHONY: bench
bench: setup servers ## Measure, beside peers
	@$(BIN)/python -m benchmarks sqlite postgres growth fairness beside http

.PHONY: chaos
chaos: setup servers ## Kill and cut at random; minutes, not seconds
	@$(BIN)/pytest -m chaos --timeout=0

.PHONY: lock
lock: ## Pin what pyproject.toml asks for (UPGRADE=1 to take newer versions)
	@tool=$$(mktemp -d) && trap 'rm -rf "$$tool"' EXIT \
	  && python3 -m venv "$$tool" && "$$tool/bin/pip" install -qq --disable-pip-version-check '$(UV)' \
	  && "$$tool/bin/uv" pip compile pyproject.toml --quiet --extra cli --extra postgres --extra uvloop --extra http --extra remote --extra metrics --extra tracing --group dev \
	    --universal --python-version 3.11 --generate-hashes $(if $(UPGRADE),--upgrade) \
	    --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' \
	    --output-file requirements/dev.lock

.PHONY: clean
clean: ## Delete what can be made again, .venv too
	@rm -rf .venv .venv.lock .venvs build dist .coverage* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find src tests benchmarks -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
