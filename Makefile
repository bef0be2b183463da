# The doors of the project. `make run` and `make test` prepare what they need themselves.

VENV := .venv
PY := $(VENV)/bin/python
PYTHON ?= $(shell command -v python3.11 || command -v python3)
DATA ?= data
ARGS ?=
PEERS ?=
SEEDS ?= 200
FRAMES ?= 1000000
MINUTES ?= 30

.DEFAULT_GOAL := help
.PHONY: help setup run test lint bench instructions faults simulate fuzz interop soak spark-on-pulsar compiled clean

help:
	@echo 'make run      start Magnetar standalone (DATA=dir ARGS="--http-port 0 ...")'
	@echo 'make test     all tests that a change must pass, with the time of each suite'
	@echo 'make lint     style, types, and which package may import which'
	@echo 'make bench    measures beside Apache Pulsar and writes docs/benchmarks.md (PEERS=redis,nats ARGS="--rounds 5")'
	@echo 'make instructions  counts instructions of codec, log and dispatch, and records them for this commit'
	@echo 'make faults   10,000 simulated power cuts instead of 200, 200 kills instead of 20'
	@echo 'make fuzz     FRAMES=1000000 generated and mutated frames against brokers'
	@echo 'make simulate 20,000 seeds of the whole broker with clients and faults instead of 300'
	@echo 'make interop  the Rust client (slow to build)'
	@echo 'make spark-on-pulsar  the tests of the Spark source against Apache Pulsar (ARGS="tests/spark/test_write.py")'
	@echo 'make soak     Spark in local clusters, pipelines at size, kills, other masters; power cuts with new seeds for MINUTES=30'
	@echo 'make setup    .venv with everything for development'

# --- the virtual environment ---------------------------------------------------------------------------------------

$(PY):
	@test -n "$(PYTHON)" || { echo 'magnetar needs Python 3.11 or newer; none was found'; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || { echo 'magnetar needs Python 3.11 or newer; set PYTHON=/path/to/python3.11'; exit 1; }
	@"$(PYTHON)" -m venv $(VENV)

$(VENV)/.to-run: pyproject.toml | $(PY)
	@echo 'installing Magnetar into $(VENV) ...'
	@$(PY) -m pip install --quiet --editable '.[compile,compression]'
	@touch $@

$(VENV)/.to-develop: pyproject.toml | $(PY)
	@echo 'installing Magnetar and its tools into $(VENV) ...'
	@$(PY) -m pip install --quiet --editable '.[dev]'
	@touch $(VENV)/.to-run $@

# Without a compiler this prints one line and the hot modules run as the same source, interpreted.
compiled:
	@$(PY) -m magnetar.hot build

setup: $(VENV)/.to-develop
	@$(MAKE) --no-print-directory compiled

# --- to use ----------------------------------------------------------------------------------------------------------

run: $(VENV)/.to-run
	@$(MAKE) --no-print-directory compiled
	@exec $(VENV)/bin/magnetar standalone --data-dir '$(DATA)' $(ARGS)

# --- to change -------------------------------------------------------------------------------------------------------

test: setup
	@PATH="$(CURDIR)/$(VENV)/bin:$$PATH" MAGNETAR_SEEDS=$(SEEDS) tools/suites unit faults simulation fuzz integration doors spark

lint: setup
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports --no-cache

bench: setup
	@$(PY) -m pip install --quiet --editable '.[dev,bench]'
	@PEERS='$(PEERS)' $(PY) -m bench $(ARGS)

instructions: setup
	@$(PY) -m bench.instructions --record

faults: setup
	@PATH="$(CURDIR)/$(VENV)/bin:$$PATH" MAGNETAR_SEEDS=10000 MAGNETAR_KILLS=200 tools/suites faults

fuzz: setup
	@PATH="$(CURDIR)/$(VENV)/bin:$$PATH" tools/fuzz --frames $(FRAMES)

simulate: setup
	@PATH="$(CURDIR)/$(VENV)/bin:$$PATH" tools/simulate --seeds 20000 $(ARGS)

interop: setup
	@MAGNETAR_INTEROP=1 $(PY) -m pytest -q --timeout 1200 -m interop tests/integration

soak: setup
	@PATH="$(CURDIR)/$(VENV)/bin:$$PATH" tools/soak $(MINUTES)

spark-on-pulsar: setup
	@$(PY) tools/spark_on_pulsar.py $(ARGS)

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
