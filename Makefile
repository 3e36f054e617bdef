# The two commands of the README are `make run` and `make test`. Both work on a bare machine that has
# only Python 3.11, 3.12 or 3.13: `make setup` makes .venv and installs exact versions into it.

PYTHON ?= python3
EXTRAS ?= dev,litellm,notebooks
WORKERS ?= 2

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# -qq: errors only.
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check
PYTEST := $(BIN)/python -m pytest -n $(WORKERS)

.DEFAULT_GOAL := help
.PHONY: help setup run test test-slow lint clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(STAMP) ## Make .venv and install everything (does nothing when it is up to date)

# A .venv without a working pip is one whose making was interrupted: it is made again.
$(STAMP): pyproject.toml constraints.txt
	@set -e; found=""; \
	if ! $(BIN)/python -m pip --version >/dev/null 2>&1; then \
	    for python in "$(PYTHON)" python3.11 python3.12 python3.13; do \
	        if "$$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; \
	        then found="$$python"; break; fi; \
	    done; \
	    if [ -z "$$found" ]; then \
	        echo "No Python 3.11 to 3.13 found; install one, or name it: make PYTHON=/path/to/python" >&2; exit 2; \
	    fi; \
	    echo "Making $(VENV) with $$("$$found" --version)"; \
	    "$$found" -m venv --clear $(VENV); \
	fi; \
	echo "Installing (the first time takes a few minutes)"; \
	$(PIP) install -c constraints.txt -e ".[$(EXTRAS)]"; \
	touch $@

run: setup ## Run a small experiment on the simulated model and print its table (no key, no network)
	$(BIN)/agentsys run +experiment=quickstart

test: setup lint ## Formatting, types and the fast tests
	$(PYTEST) -m "not slow and not live"

test-slow: setup ## The tests that take longer
	$(PYTEST) -m "slow and not live"

lint: setup ## Check formatting, lint and types; changes nothing
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

clean: ## Remove .venv, caches and builds; results stay
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
