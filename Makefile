# The doors of the project. `make run` and `make test` prepare what they need themselves.

VENV := .venv
PY := $(VENV)/bin/python
PYTHON ?= $(shell command -v python3.11 || command -v python3)
PIP = PYTHON='$(PYTHON)' tools/pip
DATA ?= data
CLUSTER ?= cluster
ARGS ?=
PEERS ?=
SEEDS ?= 200
FRAMES ?= 1000000
MINUTES ?= 30
BASE ?= HEAD

.DEFAULT_GOAL := help
.PHONY: help setup run cluster cluster-down geo test check lint bench release instructions faults simulate fuzz interop soak spark-on-pulsar client-on-pulsar clean

help:
	@echo 'make run      start Magnetar standalone (DATA=dir ARGS="--http-port 0 ...")'
	@echo 'make cluster  start ZooKeeper, three bookies, three brokers and a proxy on this machine (CLUSTER=dir ARGS="--brokers 2")'
	@echo 'make cluster-down  end them, and remove what they kept (CLUSTER=dir)'
	@echo 'make geo      start three standalone brokers that replicate to each other, until Ctrl-C (ARGS="--http-ports 9080,9081,9082")'
	@echo 'make test     all tests that a change must pass, with the time of each suite'
	@echo 'make check    lint, types, and the unit tests that the change touches (BASE=commit: all since then)'
	@echo 'make lint     style, types, which package may import which, figures of the source with their bounds, generated code, and the words of the glossary'
	@echo 'make bench    measures beside Apache Pulsar and writes docs/measurements/benchmarks.md (PEERS=redis,nats ARGS="--rounds 5")'
	@echo 'make release  writes wheels with and without compiled modules, source distribution, chart, SBOM and checksums to dist/'
	@echo 'make instructions  counts instructions of codec, log and dispatch, and records them for this commit'
	@echo 'make faults   10,000 simulated power cuts instead of 200, 200 kills instead of 20'
	@echo 'make fuzz     FRAMES=1000000 generated and mutated frames against brokers'
	@echo 'make simulate 20,000 seeds of the whole broker with clients and faults instead of 150 (ARGS=--ledgers: of ledgers on bookies, ARGS=--brokers: of several brokers, ARGS=--geo: of clusters that replicate, ARGS=--shadows: of shadow topics)'
	@echo 'make interop  the Rust client (slow to build)'
	@echo 'make spark-on-pulsar  the tests of the Spark source against Apache Pulsar (ARGS="tests/spark/test_write.py")'
	@echo 'make client-on-pulsar  the tests of the client, also beside the Java client, against Apache Pulsar (ARGS="tests/integration/test_client_core.py")'
	@echo 'make soak     Spark in local clusters, pipelines at size, kills, other masters; 100 rounds of a cluster, brokers in trouble with 1,000 topics; hostile tenants; power cuts and simulations with new seeds for MINUTES=30'
	@echo 'make setup    .venv with everything for development'

# --- the virtual environment ---------------------------------------------------------------------------------------

$(PY):
	@test -n "$(PYTHON)" || { echo 'magnetar needs Python 3.11 or newer; none was found'; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || { echo 'magnetar needs Python 3.11 or newer; set PYTHON=/path/to/python3.11'; exit 1; }
	@"$(PYTHON)" -m venv --without-pip $(VENV)

# What compiles comes first; then the hot modules a broker runs are compiled while the rest is installed. Without
# a compiler that prints one line, and they run as the same source, interpreted.
$(VENV)/.to-run: pyproject.toml | $(PY)
	@echo 'installing Magnetar into $(VENV) ...'
	@$(PIP) install --quiet 'cython>=3.1,<4' 'setuptools>=77'
	@PYTHONPATH=src $(PY) -m magnetar.hot build --serving & compiling=$$!; \
	    $(PIP) install --quiet --no-build-isolation --editable '.[compile,compression]'; installed=$$?; \
	    wait $$compiling && exit $$installed
	@touch $@

$(VENV)/.to-develop: pyproject.toml $(VENV)/.to-run
	@echo 'installing the tools of development into $(VENV) ...'
	@PYTHONPATH=src $(PY) -m magnetar.hot build & compiling=$$!; \
	    $(PIP) install --quiet --no-compile --no-build-isolation --editable '.[dev]'; installed=$$?; \
	    wait $$compiling && exit $$installed
	@touch $@

# Python compiles what it imports, once; where PYTHONDONTWRITEBYTECODE is set, each process would do so again.
setup: $(VENV)/.to-develop
	@$(PY) -m magnetar.hot build
	@$(PY) -m compileall -q $(if $(PYTHONDONTWRITEBYTECODE),-j 0 src $(VENV)/lib,src)

# --- to use ----------------------------------------------------------------------------------------------------------

run: $(VENV)/.to-run
	@$(PY) -m magnetar.hot build --serving
	@exec $(VENV)/bin/magnetar standalone --data-dir '$(DATA)' $(ARGS)

# ZooKeeper and bookies are Apache's: Maven and a JDK are needed.
cluster: setup
	@$(PY) tools/cluster.py up '$(CLUSTER)' $(ARGS)

cluster-down: setup
	@$(PY) tools/cluster.py down '$(CLUSTER)'

# Nothing is left behind: the data is in a temporary folder.
geo: setup
	@exec $(PY) tools/geo.py $(ARGS)

# --- to change -------------------------------------------------------------------------------------------------------

test: setup
	@tools/packages_for_tests
	@PATH="$(CURDIR)/$(VENV)/bin:$$PATH" MAGNETAR_SEEDS=$(SEEDS) tools/suites unit BESIDE simulation+fuzz+spark+doors faults integration cluster

check: setup
	@PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(PY) tools/check.py $(BASE)

lint: setup
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports --no-cache
	@$(VENV)/bin/bandit --quiet --recursive src -ll
	@$(PY) tools/measure_source.py
	@$(PY) tools/generate_settings.py --check
	@$(PY) tools/copy_hot_functions.py --check
	@$(PY) tools/generate_statistics.py --check
	@$(PY) tools/generate_client.py --check
	@$(PY) tools/client_reference.py --check
	@$(PY) tools/check_words.py
	@PATH="$(CURDIR)/$(VENV)/bin:$$PATH" tools/audit

bench: setup
	@$(PIP) install --quiet --no-build-isolation --editable '.[dev,bench]'
	@PEERS='$(PEERS)' $(PY) -m bench $(ARGS)

release: setup
	@$(PY) tools/release.py $(ARGS)

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

client-on-pulsar: setup
	@$(PY) tools/client_on_pulsar.py $(ARGS)

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
