# Each target makes the environment it needs, once, and says what it is doing.
#   make PYTHON=python3.12 venv     another interpreter
#   make demo ARGS="--seed 1"       options of `verl-ext demo`
#   make test-fast ARGS="-k gym"    options of pytest
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help venv demo doctor test test-fast test-long lint bench clean

PYTHON ?= python3
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
PYTEST := $(BIN)/python -m pytest
FAST := $(PYTEST) -n 2 -m 'not e2e and not long'

help:
	@echo 'make demo        train a small bug-fixing agent on this machine, with a table and a picture before and after'
	@echo 'make test        every test, end to end included (make test-fast: without the parts that need minutes)'
	@echo 'make test-long   the demo with three seeds, the comparisons of docs/results.md, ten thousand grades (ten hours)'
	@echo 'make lint        ruff'
	@echo 'make bench       the benchmarks'
	@echo 'make doctor      what is installed, registered and in force'
	@echo 'make clean       remove runs, outputs and caches (the environment stays)'

venv: $(STAMP)

$(STAMP): requirements/torch.lock requirements/cpu.lock pyproject.toml
	@PYTHON=$(PYTHON) VENV=$(VENV) scripts/make_venv.sh
	@touch $@

demo: $(STAMP)
	@echo '== demo: build tasks, build TinyAgent, evaluate, train, evaluate, report (interrupted, it resumes)'
	@$(BIN)/verl-ext demo $(ARGS)

doctor: $(STAMP)
	@$(BIN)/verl-ext doctor

test: $(STAMP)
	@echo '== test: everything but `long`: first what test-fast runs, then training runs, one at a time'
	@fast=0; runs=0; $(FAST) $(ARGS) || fast=$$?; ((fast != 2)) || exit 2; $(PYTEST) -m 'e2e and not long' $(ARGS) || runs=$$?; \
	  ((fast != 5)) || fast=$$runs; ((runs != 5)) || runs=$$fast; exit $$((fast | runs)) # 2: interrupted, 5: ARGS chose none

test-fast: $(STAMP)
	@echo '== test-fast: neither `e2e` nor `long`'
	@$(FAST) $(ARGS)

test-long: $(STAMP)
	@echo '== test-long: the demo with three seeds, the comparisons of docs/results.md, ten thousand grades (ten hours)'
	@$(PYTEST) -m long $(ARGS)

lint: $(STAMP)
	@echo '== lint: ruff check, ruff format --check'
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

bench: $(STAMP)
	@for file in tests/bench/bench_*.py; do echo "== bench: $$file"; $(BIN)/python "$$file"; done

clean:
	@echo '== clean: runs, outputs, caches'
	@rm -rf runs outputs build dist .pytest_cache .ruff_cache .hypothesis *.egg-info
	@find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
