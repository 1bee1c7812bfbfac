# Every target sets itself up through .venv. Needs Python >= 3.11 and make.
PYTHON ?= $(firstword $(foreach name,python3 python3.13 python3.12 python3.11,\
	$(shell $(name) -c 'import sys; sys.version_info >= (3, 11) and print("$(name)")' 2>/dev/null)))
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.installed-demo
BENCH_STAMP := $(VENV)/.installed-bench
SPARK_STAMP := $(VENV)/.installed-spark
PIPELINE_STAMP := $(VENV)/.installed-pipeline
NEEDS_JAVA := command -v java >/dev/null || { echo "Java 17 or newer is needed (Debian: openjdk-17-jre-headless)" >&2; exit 1; }
PYTEST := $(BIN)/python -m pytest
COMMA := ,
# An installation is silent for minutes: what it is for, and how long it takes, is said before.
INSTALL = @echo "Installing into $(VENV), once: $(1)."; \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable
# Tests wait more than they compute: two cores have work for four.
WORKERS ?= 4
NEAR = $(wildcard tests/$(ROOM) tests/test_$(ROOM).py tests/test_$(ROOM)_*.py)

# Where the pages and examples are followed beside $(PYTHON): on the path, or where pyenv has them.
PYTHONS ?= 3.12 3.13
# What a reader types or copies, and what differs between versions of Python.
COPIED := tests/deploy tests/test_examples.py tests/contrib tests/test_inbox.py

.PHONY: help setup demo pipeline route-demo test slow quick pythons soak simulate fuzz schemathesis conformance floor supported-spec coverage mutants overload java test-peers test-spark lint types docs pictures bench bench-inbound bench-replay bench-floor bench-against bench-peers bench-calls bench-queue bench-network bench-source bench-spark bench-spark-replay clean

help:
	@echo "make demo           the main job, live: losses, duplicates, kill -9, and nothing lost"
	@echo "make route-demo     three nodes that hand messages on: one is killed, and nothing is lost"
	@echo "make pipeline       three nodes, and every job of Spark over their stores; JSON=1 MESSAGES= OUT=;"
	@echo "                    about two minutes; installs PySpark first (500 MB), needs Java"
	@echo "make test           the test suite; ARGS=--long adds what is slow"
	@echo "make quick          while you change something: the tests of one room, most in less than a minute; ROOM=events"
	@echo "make pythons        the how-to pages, the examples, the inbox on Python 3.12 and 3.13; PYTHONS="
	@echo "make soak           ten minutes of bad clients, kills and restarts; DURATION= SEED= PLANT= AUDIT=;"
	@echo "                    TARGET=queues: with programs that put and consume beside them; TARGET=routes: a minute of"
	@echo "                    five nodes in a line and a ring that are killed, and one restored from a backup"
	@echo "make simulate       100,000 schedules of processes, partners, crashes and an operator; SEED= SCHEDULES=;"
	@echo "                    PLANT=each: each planted mistake has to be found"
	@echo "make fuzz           mutated envelopes for a minute; TARGET=envelope: only what reads them; TARGET=stomp: frames; SECONDS= SEED= PLANT="
	@echo "make schemathesis   requests that the OpenAPI document of the queue server allows, and others, for a minute;"
	@echo "                    SECONDS= SEED=; installs schemathesis first"
	@echo "make conformance    which acceptance rows are covered by a test that ran; none may fall unsaid"
	@echo "make floor          what it covered has to be covered from now on"
	@echo "make supported-spec writes docs/reference/supported-spec.md from the acceptance rows and the markers"
	@echo "make coverage       sequence/ and envelope/ by branch, from their own tests: 98 percent at least"
	@echo "make mutants        deliberate faults, each caught by a test; installs PySpark (500 MB)"
	@echo "make overload       a minute at twice what the store can commit: 503, nothing lost"
	@echo "make bench          the rates and what they cost, on each server and against gSOAP"
	@echo "make bench-inbound  the figures of the inbound path"
	@echo "make bench-floor    the product against the least that a stored message costs in Python"
	@echo "make bench-replay   100,000 messages replayed against the second loop, a plan of a million; ARGS=--kill"
	@echo "make bench-against  this code against an older one, in pairs; COMMIT="
	@echo "make bench-peers    our server beside Apache CXF's, with its store and without, and gSOAP's; needs Maven and Java"
	@echo "make bench-queue    our queues beside a loop of plain SQL, other queues of Python's, RabbitMQ and PostgreSQL"
	@echo "make bench-network  the queue server over the network: beside a node with the store, and consumers that wait"
	@echo "make bench-source   the RM Source beside a bare loop, over a bad network, after an outage and a hop"
	@echo "make bench-spark    a store through Spark, against its JDBC reader or a plain cursor, and replay;"
	@echo "                    bench-spark-replay is the second alone: against the replay tool, and in parts"
	@echo "make bench-calls    Python calls and lines of code, against an older commit; COMMIT="
	@echo "make java           clients in Java, with their defaults"
	@echo "make test-peers     Apache CXF and Metro, as clients and servers, over a bad line, and STOMP; needs Maven, Java, npm"
	@echo "make test-spark     stores and exports in Spark; installs PySpark (500 MB), needs Java"
	@echo "make pictures       draws docs/pictures, the rooms among them, from ROOMS.md"
	@echo "make lint types docs"

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; name one with make PYTHON=/path/to/python" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(DEMO_STAMP): pyproject.toml | $(VENV)/bin/python
	$(call INSTALL,what the demo runs on$(COMMA) Spyne and uvicorn among it; about half a minute) '.[demo]'
	@touch $@

$(STAMP): pyproject.toml | $(VENV)/bin/python
	$(call INSTALL,what the tests need$(COMMA) every server among it; one to three minutes$(COMMA) as uWSGI is compiled) '.[dev]'
	@touch $@ $(DEMO_STAMP)

$(BENCH_STAMP): pyproject.toml | $(STAMP)
	$(call INSTALL,the servers that are measured; a minute or two) '.[bench]'
	@touch $@

$(SPARK_STAMP): pyproject.toml | $(STAMP)
	$(call INSTALL,PySpark$(COMMA) 500 MB; a minute or more) '.[spark]'
	@touch $@ $(PIPELINE_STAMP)

$(PIPELINE_STAMP): pyproject.toml | $(VENV)/bin/python
	@$(NEEDS_JAVA)
	$(call INSTALL,PySpark$(COMMA) 500 MB$(COMMA) and what the demo runs on; a minute or more) '.[demo,spark]'
	@touch $@ $(DEMO_STAMP)

setup: $(STAMP)

# JSON=1: the last line is one JSON object. KEEP=DIR: both databases stay there.
demo: $(DEMO_STAMP)
	@$(BIN)/wsrm-mq demo $(if $(JSON),--json) $(if $(KEEP),--keep "$(KEEP)") $(ARGS)

route-demo: $(DEMO_STAMP)
	@$(BIN)/python examples/store_and_forward/run.py $(OUT)

# JSON=1: the last line is one JSON object. MESSAGES=: to each of the three nodes. OUT=: where everything of it lies.
pipeline: $(PIPELINE_STAMP)
	@$(NEEDS_JAVA)
	@$(if $(OUT),,rm -rf build/pipeline)
	@$(BIN)/python -W ignore examples/pipeline/run.py $(or $(OUT),build/pipeline) \
		$(if $(MESSAGES),--messages $(MESSAGES)) $(if $(JSON),--json)

test: $(STAMP)
	@echo "Running the test suite on $(WORKERS) workers: some eight minutes on two cores. make quick takes less than one."
	@$(BIN)/python -m tests.run --workers $(WORKERS) $(ARGS)

# Which tests are slow: `make test` leaves them to --long where others show the same rows.
slow: $(STAMP)
	@$(BIN)/python -m tests.run --workers $(WORKERS) --long --durations=0 --durations-min=0.5 $(ARGS) | tee build/slow.log
	@$(BIN)/python -m tests.slow < build/slow.log

# ROOM=: a module or directory of wsrm_mq, whose tests have its name.
ROOM ?= sequence
quick: $(STAMP)
	@test -n "$(NEAR)" || { echo "No tests are named $(ROOM). A room is a module or directory of wsrm_mq: make quick ROOM=events" >&2; exit 2; }
	@$(BIN)/ruff check --quiet wsrm_mq tests
	@$(PYTEST) -q -m "not timed" -n $(WORKERS) tests/test_imports.py $(NEAR) $(ARGS)

pythons: $(addprefix pythons-,$(PYTHONS))

pythons-%:
	@python=$$(for one in python$* "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/$*.*/bin/python; do \
		"$$one" -c '' 2>/dev/null && echo "$$one" && break; done); \
	test -n "$$python" || { echo "Python $* is not found; name others with make pythons PYTHONS='3.12'" >&2; exit 1; }; \
	$(MAKE) test VENV=build/python$* PYTHON="$$python" ARGS="$(COPIED) $(ARGS)"

# DURATION=SECONDS, SEED=N, FRONT=gunicorn|serve, TARGET=queues: programs that put and consume beside the service;
# TARGET=routes: five nodes, 10,000 messages with DURATION=300; PLANT=loss|repeat|disorder|orphan puts a mistake into what is
# checked, and has to fail. AUDIT=1: Spark audits the stores at the end, which needs Java.
soak: $(if $(AUDIT),$(SPARK_STAMP),$(STAMP))
	@$(BIN)/python -m tests.soak $(if $(AUDIT),--audit) $(if $(DURATION),--duration $(DURATION)) $(if $(SEED),--seed $(SEED)) \
		$(if $(FRONT),--front $(FRONT)) $(if $(TARGET),--target $(TARGET)) $(if $(PLANT),--plant $(PLANT)) $(ARGS)

# SEED=N: number of the first schedule. SCHEDULES=N. PLANT=: a mistake of tests/simulator/faults.toml, to be found
# within 20,000 schedules; PLANT=each: each of them, and it fails where one is not found.
simulate: $(STAMP)
	@$(BIN)/python -m tests.simulator $(if $(SEED),--seed $(SEED)) $(if $(SCHEDULES),--schedules $(SCHEDULES)) \
		$(if $(PLANT),--plant "$(PLANT)") $(ARGS)

# SECONDS=, SEED=N, TARGET=service|envelope|stomp; PLANT=raise|store|scan|verify, the name of a reader, or cut|written
# (stomp) makes a mistake of its own, and has to fail.
fuzz: $(STAMP)
	@$(BIN)/python -m tests.fuzz $(if $(TARGET),--target $(TARGET)) $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SEED),--seed $(SEED)) \
		$(if $(PLANT),--plant $(PLANT)) $(ARGS)

# SECONDS=, SEED=N.
schemathesis: $(STAMP)
	@$(BIN)/python -c 'import schemathesis' 2>/dev/null || $(BIN)/python -m pip install --quiet 'schemathesis>=4.32,<5'
	@$(BIN)/python -m tests.fuzz.api $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SEED),--seed $(SEED)) $(ARGS)

conformance: $(STAMP)
	@$(BIN)/python -m tests.run --workers $(WORKERS) --conformance -q $(ARGS)

# What the last `make conformance` covered may not be uncovered again unsaid.
floor: $(STAMP)
	@$(BIN)/python -m tests.acceptance.report --raise-floor build/acceptance.json

supported-spec: $(STAMP)
	@$(BIN)/python -m tests.acceptance.supported

coverage: $(STAMP)
	@mkdir -p build
	@$(BIN)/python -m coverage run -m pytest -q --ci tests/sequence tests/envelope $(ARGS)
	@$(BIN)/python -m coverage report

mutants: $(SPARK_STAMP)
	@$(BIN)/python -m tests.mutants.run --workers $(WORKERS) $(ARGS)

# SECONDS=: how long the overload lasts.
overload: $(STAMP)
	@OVERLOAD_SECONDS=$(or $(SECONDS),60) $(PYTEST) -q -s tests/scenarios/test_overload.py

java: $(STAMP)
	@$(PYTEST) -q --java --ci tests/java $(ARGS)

# Needs Maven and a JDK, 17 or newer (Debian: maven openjdk-17-jdk-headless).
test-peers: $(STAMP)
	@$(BIN)/python -m tests.run --workers $(WORKERS) -q --peers --ci -m live tests/interop $(ARGS)

# Needs Java 17 or newer (Debian: openjdk-17-jre-headless).
test-spark: $(SPARK_STAMP)
	@$(NEEDS_JAVA)
	@$(BIN)/python -m tests.run --workers 0 -q --spark --ci --timeout 400 tests/spark $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

docs: $(STAMP)
	$(call INSTALL,Sphinx; half a minute) '.[docs]'
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html

pictures: $(STAMP)
	@$(BIN)/python docs/pictures/draw.py

# Needs gcc and gSOAP (Debian: gcc gsoap libgsoap-dev). ARGS=--quick: everything once, small.
bench: $(BENCH_STAMP)
	@$(BIN)/python -m bench $(ARGS)

bench-inbound: $(BENCH_STAMP)
	@$(BIN)/python -m bench.inbound $(ARGS)

bench-replay: $(BENCH_STAMP)
	@$(BIN)/python -m bench.replay $(ARGS)

bench-floor: $(BENCH_STAMP)
	@$(BIN)/python -m bench --only h $(ARGS)

# COMMIT=: the older one. ARGS="--pairs 15 --connections 8 32".
bench-against: $(BENCH_STAMP)
	@$(BIN)/python -m bench.against $(COMMIT) $(ARGS)

# Needs gSOAP as above, Maven and a JDK. ARGS="--rounds 9 --warm 60 --connections 1 8".
bench-peers: $(BENCH_STAMP)
	@$(BIN)/python -m bench.peers $(ARGS)

# COMMIT=: the older one. ARGS="--most 30": which functions are called most.
bench-calls: $(STAMP)
	@$(BIN)/python -m bench.calls $(COMMIT) $(ARGS)

# RabbitMQ and PostgreSQL are left out where they are not installed (Debian: rabbitmq-server postgresql). ARGS=--quick.
bench-queue: $(BENCH_STAMP)
	@$(BIN)/python -m bench.queue $(ARGS)

# ARGS="--only idle", --quick.
bench-network: $(STAMP)
	@$(BIN)/python -m bench.network $(ARGS)

bench-source: $(STAMP)
	@$(BIN)/python -m bench.source $(ARGS)

# ARGS="--rows 1000000": how many messages.
bench-spark: $(SPARK_STAMP)
	@$(BIN)/python -m bench.spark $(ARGS)
	@$(BIN)/python -m bench.spark_replay

# ARGS="--messages 100000 --rounds 5".
bench-spark-replay: $(SPARK_STAMP)
	@$(BIN)/python -m bench.spark_replay $(ARGS)

clean:
	rm -rf $(VENV) build dist docs/_build .pytest_cache .mypy_cache .ruff_cache
