# All development commands. Each target sets up .venv first; only Python 3.11 or newer must be installed.

SHELL := /bin/bash
.DEFAULT_GOAL := help
BIN := .venv/bin
# Tests start hundreds of processes, and each starts half a second faster with cached bytecode.
unexport PYTHONDONTWRITEBYTECODE
CORE := windlass._model,windlass._policy
COVERAGE := .coverage.core
# Versions of Django that the integration is tested on, besides that of requirements/dev.lock.
DJANGO := 4.2 6.1
# Naming the files of these tests spares collecting all.
SYSTEM = $(shell grep -rl --include='test_*.py' 'mark\.system' tests)
SAMPLE = $(if $(filter full rest,$(WINDLASS_TESTS)),,and not full)
GATE := $(BIN)/python scripts/gate --no-header -q -n 3 --dist worksteal

# Print one line, then run a command; show its output only if it fails.
define step
@printf '  %-8s %s\n' '$(1)' '$(2)'; out=$$($(3) 2>&1) || { printf '%s\n' "$$out"; exit 1; }
endef

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## Create or update .venv from the lock file
	@scripts/setup

.PHONY: servers
servers: ## Install the servers and tools that tests and benchmarks need: Postgres 15, PgBouncer, Redis 7, Chromium, curl, jq, node, pdftoppm, promtool
	@scripts/servers

.PHONY: demo
demo: setup ## Run the demo
	@cd examples && ../$(BIN)/python -m demo

.PHONY: test
test: setup ## Run the gate: check, coverage of the core, all tests on a sample of stores and examples; within 10 minutes
	@$(BIN)/python scripts/parts test

.PHONY: test-rest
test-rest: setup ## Run what `make test` leaves out: every store and parameter, full numbers of examples, versions of Django; within 30 minutes
	@$(BIN)/python scripts/parts rest

.PHONY: test-all
test-all: setup ## Run `make test`, then `make test-rest`; this is what CI runs
	@$(BIN)/python scripts/parts test rest

.PHONY: pytest
pytest: setup ## Run all tests but those of real processes
	@$(GATE) $(if $(filter rest,$(WINDLASS_TESTS)),,--ignore=tests/unit) --ignore=tests/test_tidy.py -m 'not system and not chaos $(SAMPLE)'

.PHONY: system
system: setup ## Run the tests of real processes, kills and outages
	@$(GATE) -m 'system and not chaos $(SAMPLE)' $(SYSTEM)

.PHONY: pythons
pythons: setup ## Test the core, the loops and the embedded stores under every Python from 3.11 on
	@scripts/pythons

.PHONY: django
django: setup ## Test the integration with Django on its oldest and newest version, and run Django's own tests of task backends
	@$(BIN)/python scripts/django

.PHONY: check lint types layers tidy
check: lint types layers tidy ## Run the quick gate: lint, format, types, layers, house rules
lint: setup
	$(call step,ruff,lint,$(BIN)/ruff check)
	$(call step,ruff,format,$(BIN)/ruff format --check)
types: setup
	$(call step,mypy,types,$(BIN)/mypy)
layers: setup
	$(call step,sync,generated twins,$(BIN)/python scripts/sync --check)
	$(call step,imports,layers,$(BIN)/lint-imports)
tidy: setup
	$(call step,tidy,house rules,$(BIN)/pytest -q tests/test_tidy.py tests/test_exports.py tests/test_mistakes.py)

.PHONY: core
core: setup ## Run unit tests; every branch of _model and _policy must be covered
	$(call step,unit,the core,$(BIN)/coverage run --data-file=$(COVERAGE) --source=$(CORE) -m pytest -q tests/unit)
	$(call step,coverage,100 % of the core,$(BIN)/coverage report --data-file=$(COVERAGE) --fail-under=100)

.PHONY: format
format: setup ## Format the code and apply automatic fixes
	@$(BIN)/ruff check --fix-only --quiet
	@$(BIN)/ruff format --quiet

.PHONY: bench
bench: setup servers ## Run the benchmarks of windlass and its peers
	@$(BIN)/python -m benchmarks sqlite postgres growth fairness beside http handlers redis

.PHONY: model
model: setup ## Check the models of leases and of the replicated log; print how much was explored (WINDLASS_TESTS=full: more)
	@$(BIN)/python -m tests.model

.PHONY: chaos
chaos: setup ## Run random kills, outages and failovers for most of an hour; installs Patroni and etcd, too
	@scripts/servers chaos
	@$(BIN)/python scripts/chaos

.PHONY: chaos-short
chaos-short: setup servers ## Run a few of them, on every store: up to 10 minutes
	@$(BIN)/python scripts/chaos short

.PHONY: screenshots
screenshots: setup servers ## Take the screenshots of the docs from a real shop, in some minutes
	@$(BIN)/python scripts/screenshots

.PHONY: lock
lock: setup ## Pin the dependencies in pyproject.toml (UPGRADE=1 takes newer versions)
	@$(BIN)/uv pip compile pyproject.toml --quiet --extra cli --extra django --extra nats --extra postgres --extra redis --extra uvloop --extra http --extra remote --extra metrics --extra tracing --extra sentry --extra encryption --extra handlers --group dev \
	    --universal --python-version 3.11 --generate-hashes $(if $(UPGRADE),--upgrade) \
	    --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' \
	    --output-file requirements/dev.lock
	@$(BIN)/uv pip compile --quiet --group pyproject.toml:audit --universal --python-version 3.11 --generate-hashes $(if $(UPGRADE),--upgrade) \
	    --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' --output-file requirements/audit.lock
	@$(BIN)/uv pip compile --quiet --group pyproject.toml:docs --universal --python-version 3.11 --generate-hashes $(if $(UPGRADE),--upgrade) \
	    --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' --output-file requirements/docs.lock
	@for version in $(DJANGO); do \
	    $(BIN)/uv pip compile - --quiet --universal --python-version 3.12 --no-deps --generate-hashes $(if $(UPGRADE),--upgrade) \
	        --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' \
	        --output-file requirements/django-$$version.lock <<<"django==$$version.*" || exit 1; \
	done
	@$(BIN)/uv pip compile --quiet --group pyproject.toml:redis-peers --universal --python-version 3.11 --generate-hashes $(if $(UPGRADE),--upgrade) \
	    --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' --output-file requirements/redis-peers.lock

.PHONY: docs
docs: setup ## Build the docs site into build/site; fail on any warning or broken link
	@$(BIN)/python scripts/docs

.PHONY: audit
audit: setup ## Check the dependencies for known vulnerabilities and licences; write the bill of materials (OFFLINE=1: without advisories)
	@$(BIN)/python scripts/audit

.PHONY: clean
clean: ## Delete everything that can be rebuilt, including .venv
	@rm -rf .venv .venv.lock .venvs build dist .coverage* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find src tests benchmarks -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
