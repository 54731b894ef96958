PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip install --quiet --disable-pip-version-check --no-input
READY := $(VENV)/ready
DEMO_READY := $(VENV)/demo-ready
BENCHES := $(filter-out __init__ load side_by_side controller,$(basename $(notdir $(wildcard benchmarks/*.py))))
ROUNDS ?= 30
RECORDS ?= 100000
LIVES ?= 10
SECONDS ?= 60
VIOLATIONS ?= 1
FIRST ?= 1
SEEDS ?= 1000
MOST ?= 300
SEQUENCES ?= 10000
SAMPLE ?= 1
AFTER ?= 0
SCHEDULES ?= 300
WORKERS ?= 4

.DEFAULT_GOAL := help

help:  ## list the daily words
	@grep -hE '^[a-z][a-z-]*:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-18s %s\n", $$1, $$2}'

$(READY): requirements.lock pyproject.toml
	@echo "setting up $(VENV) from requirements.lock (some minutes at first: Spark is large)"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) --require-hashes -r requirements.lock
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

$(DEMO_READY): $(READY) requirements-demo.lock
	@echo "installing the demo's rows"
	@$(PIP) --require-hashes --no-deps --no-build-isolation -r requirements-demo.lock
	@touch $@

setup: $(READY)  ## make .venv from the locked versions

demo: $(DEMO_READY)  ## three nodes, 336,776 flights, two interruptions, Spark counts; data stays in demo-data
	@$(PY) -m klamm.cli.demo.run demo-data

cluster: $(READY)  ## ZooKeeper and three nodes for daily use, until Ctrl-C; data stays in klamm-data
	@$(PY) -m klamm up --nodes 3

check: $(READY)  ## lint: ruff, mypy strict, floors
	$(PY) -m ruff check src tests benchmarks
	$(PY) -m ruff format --check src tests benchmarks
	$(PY) -m mypy
	$(VENV)/bin/lint-imports

unit: $(READY)  ## the quick tests: no network, no processes
	$(PY) -m pytest tests/unit

test: check  ## lint, unit tests, tests against real ZooKeeper, real clients and Apache Kafka
	$(PY) -m pytest -n $(WORKERS) --dist loadgroup

clients: $(READY)  ## every client with every codec, RECORDS=100000 each, compared byte by byte
	$(PY) -m pytest tests/clients/test_codecs.py --records $(RECORDS)

clients-of-kafka: $(READY)  ## the same tests against Apache Kafka's own brokers: is the harness right?
	$(PY) -m pytest tests/clients/test_codecs.py --brokers apache

judge: $(READY)  ## every script, then LIVES=10 generated ones, before Apache Kafka's controller and ours
	$(PY) -m tests.differential.judge --record
	$(PY) -m tests.differential.judge --lives $(LIVES) --seed $(FIRST)

sim: $(READY)  ## simulated clusters under faults on all cores for SECONDS=60, from seed FIRST=1, until VIOLATIONS=1 broke
	@$(PY) -m klamm.sim --seconds $(SECONDS) --first $(FIRST) --violations $(VIOLATIONS)

scenarios: $(READY)  ## write the transcripts of tests/scenarios anew: what an operator sees of a cluster in trouble
	@$(PY) -m tests.scenarios.record
	@git --no-pager diff --stat tests/scenarios/transcripts

steps: $(READY)  ## break every scripted operation at each of its steps, in each way; SAMPLE=0.1 for a part of it, AFTER=5000 to go on
	@$(PY) -m klamm.sim.steps --sample $(SAMPLE) --after $(AFTER)

sim-coverage: $(READY)  ## branches of klamm/controller that SCHEDULES=300 simulated schedules and the operations, whole and broken, take
	@$(PY) -m tests.simulation.reach --schedules $(SCHEDULES) --first $(FIRST)

seed: $(READY)  ## replay seed N=... of the simulation, with its story
	@$(PY) -m klamm.sim --seed $(N)

shrink: $(READY)  ## make seed N=..., which breaks an invariant, as small as possible; prints a test
	@$(PY) -m klamm.sim --shrink $(N) --seconds $(SECONDS)

plants: $(READY)  ## plant mistakes in fresh clones: make sim has to find each in a minute and print a small test
	@$(PY) -m tests.simulation.plants --seconds $(SECONDS)

mutants: $(READY)  ## guards taken out one by one (or ONLY="13 28"), MOST=300 schedules each from three first seeds: is each seen? draws docs/mutants.md; goes on where it was broken off
	@$(PY) -m tests.simulation.mutation --most $(MOST) --record $(if $(ONLY),--only $(ONLY))

pages: $(READY)  ## draw docs/invariants.md from its table
	@$(PY) -m klamm.sim.invariants.page > docs/invariants.md

digests: $(READY)  ## SEEDS=1000 simulated twice, in two processes with different hash seeds: nothing may differ
	@PYTHONHASHSEED=1 $(PY) -m klamm.sim --digests $(SEEDS) > .digests-1 & first=$$!; \
	PYTHONHASHSEED=77 $(PY) -m klamm.sim --digests $(SEEDS) > .digests-77 && wait $$first
	@cmp .digests-1 .digests-77 && echo "$(SEEDS) seeds, the same digest each" && rm .digests-1 .digests-77

model: $(READY)  ## SEQUENCES=10000 of operations on the model ZooKeeper and on a real one, compared
	$(PY) -m pytest tests/contracts/sim --sequences $(SEQUENCES) --timeout 100000

campaign: $(READY)  ## ROUNDS=30 kills of nodes under load, then ZooKeeper outages and frozen nodes
	$(PY) -m tests.campaign.run --rounds $(ROUNDS) --others

mixed: $(READY)  ## klamm's controller over Apache Kafka's brokers at two protocol versions, controllership handed over 3 times each way
	$(PY) -m tests.campaign.mixed

coverage: $(READY)  ## branches that unit and contract tests reach
	$(PY) -m pytest --cov --cov-report=term-missing tests/unit tests/contracts

bench: $(READY)  ## beside Apache Kafka in one run, then the wire's and ZooKeeper's budgets
	$(PY) -m benchmarks.side_by_side
	@for bench in $(BENCHES); do echo "--- $$bench"; $(PY) -m benchmarks.$$bench; done

bench-controller: $(READY)  ## the controller beside Apache Kafka's, up to 200,000 partitions (some 25 minutes)
	$(PY) -m benchmarks.controller

bench-%: $(READY)
	$(PY) -m benchmarks.$*

clean:  ## remove what demo and cluster left, and the caches; not .venv
	rm -rf demo-data klamm-data spark-warehouse .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

.PHONY: mutants pages sim sim-coverage scenarios plants steps shrink seed digests model help setup demo cluster check unit test clients clients-of-kafka judge campaign mixed coverage bench bench-controller clean
