.DEFAULT_GOAL := help
.SUFFIXES:

# The machine's default Python has its environment in .venv; `make test PYTHON=python3.13` has one beside it, .venv-3.13.
VENV := $(if $(PYTHON),.venv-$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null),.venv)
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
# The Python code that exists: a checkout need not have every folder.
CODE := $(wildcard src tests benchmarks examples scripts hatch_build.py)

PEERS := $(patsubst requirements/peers-%.in,.venv-%,$(wildcard requirements/peers-*.in))
NODE_PEERS := $(patsubst requirements/node-%.json,.node-%,$(wildcard requirements/node-*.json))

export PYTHON

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(VENV) ## Run the demo: jobs survive an outage
	@$(BIN)/reprieve demo

.PHONY: test
test: $(VENV) servers ## Run the tests, or some of them: make test TESTS=tests/core
	@$(PYTEST) -n 2 $(TESTS)

.PHONY: pythons
pythons: $(VENV) servers ## Run the tests on every installed Python
	@scripts/pythons $(BIN)/python

.PHONY: servers
servers: $(VENV) ## Install the servers that the tests start, where they are missing
	@$(BIN)/python -m tests.servers.install

.PHONY: check
check: $(VENV) ## Lint, check formats, types and layers, and cover every branch of the core
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy $(CODE)
	$(BIN)/lint-imports --no-logo --no-cache
	$(PYTEST) -n 2 tests/core --cov --cov-report=term

.PHONY: bench
bench: $(VENV) servers $(PEERS) $(NODE_PEERS) ## Run the benchmarks, with other systems beside ours
	@$(BIN)/python -m benchmarks

.PHONY: faults
faults: $(VENV) servers ## Run long fault histories, bounds on time, and the property tests with twenty times the examples
	@REPRIEVE_FAULTS=1 $(PYTEST) -n 2 -m "faults or hypothesis"

.PHONY: versions
versions: $(VENV) servers .venv-servers ## Run the tests of the Redis store on the oldest Redis, and on Valkey
	@scripts/versions $(BIN)/python

.PHONY: mutants
mutants: .venv-mutants ## Run mutation tests of the core
	@.venv-mutants/bin/python scripts/mutants.py

.PHONY: lock
lock: .venv-lock ## Pin the newest dependencies in requirements/
	@scripts/lock

.PHONY: format
format: $(VENV) ## Format the code and fix what can be fixed by rule
	@$(BIN)/ruff check --fix-only
	@$(BIN)/ruff format

.PHONY: clean
clean: ## Remove everything that make made
	@rm -rf .venv .venv-3.* .venv-lock .venv-mutants .venv-servers $(PEERS) $(NODE_PEERS) .coverage* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache dist mutants
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Phony: the script itself knows whether there is anything to do.
.PHONY: .venv $(VENV) .venv-lock .venv-mutants .venv-servers $(PEERS) $(NODE_PEERS)
$(sort .venv $(VENV)):
	@scripts/venv $@ requirements/dev.txt --editable
.venv-lock:
	@scripts/venv .venv-lock requirements/lock.txt
.venv-mutants:
	@scripts/venv .venv-mutants requirements/mutants.txt
.venv-servers:
	@scripts/venv .venv-servers requirements/servers.txt
$(PEERS): .venv-%:
	@scripts/venv $@ requirements/peers-$*.txt
$(NODE_PEERS): .node-%:
	@scripts/node $@ requirements/node-$*.json
