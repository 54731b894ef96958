PYTHON ?= python3
VENV := .venv
READY := $(VENV)/ready

.DEFAULT_GOAL := help

help:  ## list the daily words
	@grep -hE '^[a-z][a-z-]*:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1|\2/' | column -t -s '|'

$(READY): requirements.lock pyproject.toml
	@echo "setting up $(VENV) from requirements.lock"
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

setup: $(READY)  ## make .venv from the locked versions

check: $(READY)  ## lint: ruff, mypy strict, floors
	$(VENV)/bin/ruff check src tests benchmarks
	$(VENV)/bin/ruff format --check src tests benchmarks
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

test: check  ## lint, unit tests, tests against real ZooKeeper and real clients
	$(VENV)/bin/pytest

.PHONY: help setup check test
