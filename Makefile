# Every target sets itself up through .venv. Needs Python >= 3.11 and make.
PYTHON ?= $(firstword $(foreach name,python3 python3.13 python3.12 python3.11,\
	$(shell $(name) -c 'import sys; sys.version_info >= (3, 11) and print("$(name)")' 2>/dev/null)))
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.installed-demo
BENCH_STAMP := $(VENV)/.installed-bench
PYTEST := $(BIN)/python -m pytest
# Tests wait more than they compute: on two cores a third worker saves a quarter of the time.
WORKERS ?= 3

# Where the pages and examples are followed beside $(PYTHON): on the path, or where pyenv has them.
PYTHONS ?= 3.12 3.13
# What a reader types or copies, and what differs between versions of Python.
COPIED := tests/deploy tests/test_examples.py tests/contrib tests/test_inbox.py

.PHONY: help setup demo test pythons soak fuzz conformance floor mutants overload java lint types docs bench bench-inbound bench-floor bench-against bench-calls clean

help:
	@echo "make demo           the main job, live: losses, duplicates, kill -9, and nothing lost"
	@echo "make test           the test suite; ARGS=--long adds the tests that take minutes"
	@echo "make pythons        the how-to pages, the examples, the inbox on Python 3.12 and 3.13; PYTHONS="
	@echo "make soak           ten minutes of bad clients, kills and restarts; DURATION= SEED= PLANT="
	@echo "make fuzz           mutated envelopes for a minute; SECONDS= SEED= PLANT="
	@echo "make conformance    which acceptance rows are covered by a test that ran; none may fall unsaid"
	@echo "make floor          what it covered has to be covered from now on"
	@echo "make mutants        deliberate protocol faults, each caught by a test"
	@echo "make overload       a minute at twice what the store can commit: 503, nothing lost"
	@echo "make bench          the rates and what they cost, on each server and against gSOAP"
	@echo "make bench-inbound  the figures of the inbound path"
	@echo "make bench-floor    the product against the least that a stored message costs in Python"
	@echo "make bench-against  this code against an older one, in pairs; COMMIT="
	@echo "make bench-calls    Python calls and lines of code, against an older commit; COMMIT="
	@echo "make java           clients in Java, with their defaults"
	@echo "make lint types docs"

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; name one with make PYTHON=/path/to/python" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(DEMO_STAMP): pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[demo]'
	@touch $@

$(STAMP): pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@ $(DEMO_STAMP)

$(BENCH_STAMP): pyproject.toml | $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	@touch $@

setup: $(STAMP)

# JSON=1: the last line is one JSON object. KEEP=DIR: both databases stay there.
demo: $(DEMO_STAMP)
	@$(BIN)/wsrm-mq demo $(if $(JSON),--json) $(if $(KEEP),--keep "$(KEEP)") $(ARGS)

test: $(STAMP)
	@$(BIN)/python -m tests.run --workers $(WORKERS) $(ARGS)

pythons: $(addprefix pythons-,$(PYTHONS))

pythons-%:
	@python=$$(for one in python$* "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/$*.*/bin/python; do \
		"$$one" -c '' 2>/dev/null && echo "$$one" && break; done); \
	test -n "$$python" || { echo "Python $* is not found; name others with make pythons PYTHONS='3.12'" >&2; exit 1; }; \
	$(MAKE) test VENV=build/python$* PYTHON="$$python" ARGS="$(COPIED) $(ARGS)"

# DURATION=SECONDS, SEED=N, FRONT=gunicorn|serve; PLANT=loss|repeat|disorder|orphan puts a mistake into what is
# checked, and has to fail.
soak: $(STAMP)
	@$(BIN)/python -m tests.soak $(if $(DURATION),--duration $(DURATION)) $(if $(SEED),--seed $(SEED)) \
		$(if $(FRONT),--front $(FRONT)) $(if $(PLANT),--plant $(PLANT)) $(ARGS)

# SECONDS=, SEED=N; PLANT=raise|store|scan|verify makes a mistake of its own, and has to fail.
fuzz: $(STAMP)
	@$(BIN)/python -m tests.fuzz $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SEED),--seed $(SEED)) \
		$(if $(PLANT),--plant $(PLANT)) $(ARGS)

conformance: $(STAMP)
	@$(BIN)/python -m tests.run --workers $(WORKERS) --conformance -q $(ARGS)

# What the last `make conformance` covered may not be uncovered again unsaid.
floor: $(STAMP)
	@$(BIN)/python -m tests.acceptance.report --raise-floor build/acceptance.json

mutants: $(STAMP)
	@$(BIN)/python -m tests.mutants.run $(ARGS)

# SECONDS=: how long the overload lasts.
overload: $(STAMP)
	@OVERLOAD_SECONDS=$(or $(SECONDS),60) $(PYTEST) -q -s tests/scenarios/test_overload.py

java: $(STAMP)
	@$(PYTEST) -q --java --ci tests/java $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html

# Needs gcc and gSOAP (Debian: gcc gsoap libgsoap-dev). ARGS=--quick: everything once, small.
bench: $(BENCH_STAMP)
	@$(BIN)/python -m bench $(ARGS)

bench-inbound: $(BENCH_STAMP)
	@$(BIN)/python -m bench.inbound $(ARGS)

bench-floor: $(BENCH_STAMP)
	@$(BIN)/python -m bench --only h $(ARGS)

# COMMIT=: the older one. ARGS="--pairs 15 --connections 8 32".
bench-against: $(BENCH_STAMP)
	@$(BIN)/python -m bench.against $(COMMIT) $(ARGS)

# COMMIT=: the older one. ARGS="--most 30": which functions are called most.
bench-calls: $(STAMP)
	@$(BIN)/python -m bench.calls $(COMMIT) $(ARGS)

clean:
	rm -rf $(VENV) build dist docs/_build .pytest_cache .mypy_cache .ruff_cache
