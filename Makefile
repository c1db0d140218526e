# `make help` lists what there is.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.set-up
CODE := src tests $(patsubst %/,%,$(sort $(dir $(wildcard bench/*.py scripts/*.py))))
export WORKERS ?= auto
ARGS ?=

.PHONY: help setup run test test-mysql test-pooler lint types imports deps docs docs-check check bench chaos fuzz mutants lock format
.PHONY: servers clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | column -t -s '|' 2>/dev/null \
		|| sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1: \2/p' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv, up to date with requirements/ (nothing to do when it is)

$(STAMP): pyproject.toml requirements/base.txt requirements/dev.txt scripts/setup.sh
	@bash scripts/setup.sh
	@touch $@

run: setup ## start Campana here (ARGS="--port 8080")
	@exec $(VENV)/bin/campana up $(ARGS)

servers: ## the database servers that the tests start: install what is missing
	@bash scripts/install_servers.sh

test: setup servers ## all tests on every database (ARGS="tests/store -k claim")
	@$(PY) -m pytest -n $(WORKERS) --dist loadscope $(ARGS)

test-mysql: setup ## the store's tests on a real MySQL
	@bash scripts/test_mysql.sh $(ARGS)

lint: setup ## ruff: rules and format
	@$(VENV)/bin/ruff check $(CODE)
	@$(VENV)/bin/ruff format --check $(CODE)

format: setup ## ruff: put the format right, and what it can of the rules
	@$(VENV)/bin/ruff format $(CODE)
	@$(VENV)/bin/ruff check --fix $(CODE)

types: setup ## mypy, strict
	@$(VENV)/bin/mypy $(CODE)

imports: setup ## the rooms of the house
	@$(VENV)/bin/lint-imports --no-cache

deps: setup ## declared and imported packages agree
	@$(VENV)/bin/deptry .

docs: setup ## write the generated parts of docs/
	@$(PY) scripts/docs.py

docs-check: setup
	@if [ -f scripts/docs.py ]; then $(PY) scripts/docs.py --check; fi

test-pooler: setup ## the store's tests on PostgreSQL behind PgBouncer
	@bash scripts/install_servers.sh pgbouncer
	@$(PY) -m pytest -n $(WORKERS) --dist loadscope --databases pgbouncer tests/store --ignore tests/store/test_plans.py $(ARGS)

check: lint types imports deps docs-check test test-mysql test-pooler ## all that CI runs

bench: setup servers ## the benches (ARGS="create claim")
	@$(PY) -m bench $(ARGS)

chaos: setup servers ## kill servers and engines, and count
	@$(PY) -m tests.chaos $(ARGS)

fuzz: setup ## URLs, headers and answers by chance (ARGS="urls --seconds 600")
	@$(PY) -m tests.fuzz $(or $(ARGS),urls)

mutants: setup servers ## plant faults in a copy of the source, each of which a test must see (ARGS="--only fence-not-checked")
	@$(PY) -m tests.mutants $(ARGS)

lock: setup ## write requirements/*.txt anew (ARGS=--upgrade for newer versions)
	@bash scripts/lock.sh $(ARGS)

clean: ## remove .venv and everything made by tools
	@rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage
	@find src tests bench scripts -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
