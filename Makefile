# Every target sets itself up through .venv. Needs Python >= 3.11 and make.
PYTHON ?= $(firstword $(foreach name,python3 python3.13 python3.12 python3.11,\
	$(shell $(name) -c 'import sys; sys.version_info >= (3, 11) and print("$(name)")' 2>/dev/null)))
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.installed-demo
BENCH_STAMP := $(VENV)/.installed-bench
PYTEST := $(BIN)/python -m pytest
COMPILED := build/compiled
# What compiled code is made from, and what has to lie beside it so that tests and bench run there.
PACKAGE := pyproject.toml $(shell find wsrm_mq -name '*.py')
BESIDE := tests bench docs examples wsdl pyproject.toml Makefile $(wildcard *.md)
# Tests wait more than they compute: on two cores a third worker saves a quarter of the time.
WORKERS ?= 3

.PHONY: help setup demo test compiled test-compiled soak conformance mutants overload lint types docs bench bench-inbound clean

help:
	@echo "make demo           the main job, live: losses, duplicates, kill -9, and nothing lost"
	@echo "make test           the test suite; ARGS=--long adds the tests that take minutes"
	@echo "make compiled       a wheel with the hot modules compiled, and a tree that runs them, below build/"
	@echo "make test-compiled  the test suite on that tree"
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

compiled: $(COMPILED)/.made

# In a copy: the hook leaves what it compiles beside the source, and that would be imported from here ever after.
build/wheel/.made: $(PACKAGE) | $(VENV)/bin/python
	@command -v gcc >/dev/null && $(BIN)/python -c 'import os, sys, sysconfig; \
		sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' \
		|| { echo "To compile, gcc and the headers of Python are needed (Debian: gcc libc6-dev python3-dev)." >&2; exit 1; }
	@rm -rf build/wheel && mkdir -p build/wheel/source
	@cp -R pyproject.toml README.md wsrm_mq build/wheel/source
	@echo "compiling: some minutes" >&2
	@HATCH_BUILD_HOOK_ENABLE_MYPYC=true $(BIN)/python -m pip wheel --quiet --disable-pip-version-check \
		--no-deps --wheel-dir build/wheel build/wheel/source
	@touch $@

$(COMPILED)/.made: build/wheel/.made $(shell find $(BESIDE) -type f -not -name '*.pyc' -not -path 'docs/_build/*')
	@rm -rf $(COMPILED) && mkdir -p $(COMPILED)
	@$(BIN)/python -m zipfile -e build/wheel/*.whl $(COMPILED)
	@cp -Rp $(BESIDE) $(COMPILED)  # with its times: a make there has nothing to install anew
	@touch $@

# Before the editable installation, which is the source, comes what PYTHONPATH names.
test-compiled: $(STAMP) compiled
	cd $(COMPILED) && PYTHONPATH=$$PWD $(CURDIR)/$(PYTEST) -n $(WORKERS) --dist loadgroup $(ARGS)

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
bench: $(BENCH_STAMP) compiled
	@$(BIN)/python -m bench $(ARGS)

bench-inbound: $(BENCH_STAMP) compiled
	@$(BIN)/python -m bench.inbound $(ARGS)

clean:
	rm -rf $(VENV) build dist docs/_build .pytest_cache .mypy_cache .ruff_cache *__mypyc.*.so
	find wsrm_mq -name '*.so' -delete
