# From a fresh clone, with Python 3.11+ and make: `make test`, `make demo`, `make bench`.

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BENCH ?= --json .bench/queries.json

.DEFAULT_GOAL := help
.PHONY: help setup chromium demo test lint bench soak clean

help:
	@echo "make setup   make .venv with Taut and its tools"
	@echo "make demo    show Taut at work"
	@echo "make test    lint, then run the tests"
	@echo "make lint    ruff and mypy"
	@echo "make bench   measure many queries, stock Spark against Taut (options: BENCH=...)"
	@echo "make soak    a million histories of distributor and lanes (SEEDS=..., FIRST=...)"
	@echo "make clean   remove everything make has made"

setup: $(READY)

# PYTHON=... chooses the interpreter; else python3.11, or a python3 that is new enough.
PYTHONS := $(or $(PYTHON),python3.11 python3)

$(READY): pyproject.toml constraints.txt
	@python=""; \
	for candidate in $(PYTHONS); do \
	  if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    python="$$candidate"; break; \
	  fi; \
	done; \
	if [ -z "$$python" ]; then \
	  echo "Taut needs Python 3.11 or newer, and found none (tried: $(PYTHONS))." >&2; \
	  echo "Install one, or name it: make setup PYTHON=/path/to/python3.11" >&2; \
	  exit 1; \
	fi; \
	echo "making $(VENV) with $$("$$python" --version)"; \
	"$$python" -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	@$(BIN)/python -c 'from taut.spark.java import find_java; find_java()' 2>/dev/null || { \
	  echo "no Java 17+ on this machine: installing one into $(VENV)"; \
	  $(BIN)/python -m pip install --quiet -c constraints.txt -e '.[java]'; \
	}
	@$(MAKE) --no-print-directory chromium
	@touch $@

# The page's tests need a browser; without one they are skipped, so nothing here is fatal.
chromium:
	@for name in chromium chromium-browser google-chrome google-chrome-stable; do \
	  if command -v $$name >/dev/null 2>&1; then exit 0; fi; \
	done; \
	if command -v apt-get >/dev/null 2>&1 && [ "$$(id -u)" = 0 ]; then \
	  echo "no Chromium on this machine: installing it for the tests of the live page"; \
	  { apt-get -qq update && \
	    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends chromium; \
	  } >/dev/null 2>&1 || echo "that failed: the page's tests in a browser will be skipped"; \
	else \
	  echo "no Chromium on this machine: the page's tests in a browser will be skipped"; \
	fi

demo: $(READY)
	$(BIN)/taut demo

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/pytest

bench: $(READY)
	@mkdir -p .bench
	$(BIN)/taut bench queries $(BENCH)

SEEDS ?= 1000000
FIRST ?= 0

soak: $(READY)
	$(BIN)/python -m tests.spark.source.simulated --seeds $(SEEDS) --first $(FIRST)

clean:
	rm -rf $(VENV) build dist .bench .artefacts .mypy_cache .pytest_cache .ruff_cache .hypothesis .benchmarks
	rm -rf spark-warehouse metastore_db derby.log artifacts
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
