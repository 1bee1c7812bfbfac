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

.PHONY: help setup demo test soak conformance mutants overload lint types docs bench bench-inbound clean

help:
	@echo "make demo           the main job, live: losses, duplicates, kill -9, and nothing lost"
	@echo "make test           the test suite; ARGS=--long adds the tests that take minutes"
	@echo "make soak           ten minutes of bad clients, kills and restarts; DURATION= SEED= PLANT="
	@echo "make conformance    which acceptance rows are covered by a test that ran"
	@echo "make mutants        30 deliberate protocol faults, each caught by a test"
	@echo "make overload       a minute at twice what the store can commit: 503, nothing lost"
	@echo "make bench          the rates and what they cost, on each server and against gSOAP"
	@echo "make bench-inbound  the figures of the inbound path"
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
	$(PYTEST) -n $(WORKERS) --dist loadgroup $(ARGS)

# DURATION=SECONDS, SEED=N; PLANT=loss|repeat|disorder puts a mistake into what is checked, and has to fail.
soak: $(STAMP)
	@$(BIN)/python -m tests.soak $(if $(DURATION),--duration $(DURATION)) $(if $(SEED),--seed $(SEED)) \
		$(if $(PLANT),--plant $(PLANT)) $(ARGS)

conformance: $(STAMP)
	@$(PYTEST) -n $(WORKERS) --dist loadgroup -q --conformance $(ARGS)

mutants: $(STAMP)
	@$(BIN)/python -m tests.mutants.run $(ARGS)

# SECONDS=: how long the overload lasts.
overload: $(STAMP)
	@OVERLOAD_SECONDS=$(or $(SECONDS),60) $(PYTEST) -q -s tests/scenarios/test_overload.py

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

clean:
	rm -rf $(VENV) build dist docs/_build .pytest_cache .mypy_cache .ruff_cache
