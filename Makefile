# The two commands of the README are `make run` and `make test`. Both work on a bare machine that has
# only Python 3.11, 3.12 or 3.13: they make .venv and install exact versions into it, `make run` the package
# alone, the others what tests and docs need as well.

PYTHON ?= python3
# Exact versions; empty: the newest. `make test-lowest` and `make test-newest` set this and VENV.
CONSTRAINTS ?= constraints.txt
EXTRAS ?= dev,docs,litellm,mcp,middleware,notebooks,parquet
# On two cores three, not two: a test that waits leaves its core to another.
WORKERS ?= 3
# Of `make paper`: the folder of runs, and where tables and figures go.
LOGDIR ?= results/runs/paper
OUT ?= results/figures
# Of `make league`: recorded tool outputs (docs/guards.md).
TEXTS ?= ../shared/data/guards/texts.jsonl.gz
GUARDS ?= all

VENV := .venv
BIN := $(VENV)/bin
CORE := $(VENV)/.core
DEV := $(VENV)/.dev
DETECTORS := .venv-detectors
# -qq: errors only.
PINS := $(if $(CONSTRAINTS),-c $(CONSTRAINTS))
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check
# Tests start hundreds of processes. Each would compile our modules anew where the surroundings forbid Python
# to keep what it compiled, as those of many containers do.
# A worker keeps to its share of the files for as long as it has work: what the tests of a file share is made once.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help setup run paper notebooks pictures league docs bench browser test lane test-core test-lowest test-newest test-slow test-detectors lint clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(DEV) ## Make .venv and install everything (does nothing when it is up to date)

# A .venv without a working pip is one whose making was interrupted: it is made again.
define MAKE_VENV
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
	fi
endef

# $(1): what to install. uv takes a fraction of pip's time. It knows none of pip's settings: it is told of the
# certificates, and where it still finds no way (an index of one's own, say) pip does it.
define INSTALL
	@set -e; echo "Installing (the first time takes a while)"; \
	if command -v uv >/dev/null 2>&1; then \
	    export UV_SYSTEM_CERTS=1; \
	    if [ -n "$$PIP_CERT" ]; then export SSL_CERT_FILE="$${SSL_CERT_FILE:-$$PIP_CERT}"; fi; \
	    if uv pip install --quiet --python $(BIN)/python $(PINS) -e "$(1)"; then exit 0; fi; \
	    echo "uv could not; trying pip" >&2; \
	fi; \
	$(PIP) install --no-compile $(PINS) -e "$(1)"
endef

$(CORE): pyproject.toml $(CONSTRAINTS)
	$(MAKE_VENV)
	$(call INSTALL,.)
	@touch $@

$(DEV): pyproject.toml $(CONSTRAINTS)
	$(MAKE_VENV)
	$(call INSTALL,.[$(EXTRAS)])
	@touch $(CORE) $@

run: $(CORE) ## Run a small experiment on the simulated model and print its table (no key, no network)
	$(BIN)/agentsys run experiment=quickstart

paper: $(CORE) ## Every table and figure of the paper from the runs in LOGDIR=..., into OUT=...
	@set -e; export PATH="$(CURDIR)/$(BIN):$$PATH"; \
	for number in 1 2 3 4 5 6 7; do \
	    scripts/table$$number.sh "$(LOGDIR)" --format markdown --out "$(OUT)/table$$number.md"; \
	    scripts/table$$number.sh "$(LOGDIR)" --format latex --out "$(OUT)/table$$number.tex"; \
	    scripts/table$$number.sh "$(LOGDIR)" --format csv --out "$(OUT)/table$$number.csv"; \
	done; \
	for figure in scripts/figure*.sh; do "$$figure" "$(LOGDIR)" --out "$(OUT)"; done

# The notebooks stay as they are, without outputs. They run in their own folder, hence the absolute path.
# The pages ask nothing of the network.
notebooks: setup ## Run the notebooks top to bottom and leave them as pages in results/notebooks (AGENTSYS_RUNS=DIR: on runs of yours, else simulated ones)
	$(if $(AGENTSYS_RUNS),AGENTSYS_RUNS="$(abspath $(AGENTSYS_RUNS))" )$(BIN)/jupyter-nbconvert --execute --to html --log-level WARN \
		--HTMLExporter.mathjax_url= --HTMLExporter.require_js_url= --output-dir results/notebooks notebooks/*.ipynb

pictures: setup ## Draw the pictures of README and docs anew, with Chromium
	$(BIN)/python scripts/draw_pictures.py

league: setup ## Measure other people's guards, from the package index, and write docs/league.md anew (TEXTS=FILE, GUARDS="NAME ...")
	PATH="$(CURDIR)/$(BIN):$$PATH" scripts/league.sh "$(TEXTS)" docs/league.md $(GUARDS)

docs: setup ## Build the documentation as a site, offline, into site/; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: setup ## Measure speed and CPU beside AgentDojo's runner (QUICK=1: two minutes; WRITE=1: into perf/README.md; INSPECT=COMMAND: its port too)
	$(BIN)/python perf/bench.py $(if $(QUICK),--quick) $(if $(WRITE),--write) $(if $(INSPECT),--inspect $(INSPECT))

test: lint lane ## Formatting, types and the fast tests

# What runs in each of three environments: .venv with constraints.txt, and the two below.
lane: setup
	@$(BIN)/python -m pip --disable-pip-version-check freeze --exclude-editable | paste -sd ' ' | fold -s -w 160
	$(PYTEST) -m "not slow and not live"

test-core: setup ## The fast tests of the core and the paper's baselines, without agentsys_plugins/
	PYTHONDONTWRITEBYTECODE= scripts/test_core.sh $(BIN)/python -n $(WORKERS) --dist worksteal

test-lowest: ## The fast tests on the lowest versions that pyproject.toml allows, in .venv-lowest
	@$(MAKE) VENV=.venv-lowest CONSTRAINTS=constraints-lowest.txt lane

test-newest: ## The fast tests on the newest versions that pyproject.toml allows today, in .venv-newest
	@rm -rf .venv-newest
	@$(MAKE) VENV=.venv-newest CONSTRAINTS= lane

test-slow: setup ## The tests that take longer
	$(PYTEST) -m "slow and not live"

browser: setup ## Install what tests and pictures in a real browser need: Playwright, axe-core (and Debian's chromium)
	$(PIP) install playwright==1.65.2
	npm install --silent --prefix $(VENV)/axe axe-core@4.14.1

# The extra is kept out of .venv: torch alone is larger than all the rest of it.
test-detectors: $(DETECTORS)/.installed ## Install the extra `detectors` into .venv-detectors and run its tests
	$(DETECTORS)/bin/python -m pytest tests/baselines/test_detectors*.py -m "not live"

$(DETECTORS)/.installed: $(DEV) constraints-detectors.txt
	$(BIN)/python -m venv --clear $(DETECTORS)
	$(DETECTORS)/bin/python -m pip -qq --disable-pip-version-check install \
	    -c constraints.txt -c constraints-detectors.txt -e ".[dev,detectors]"
	touch $@

lint: setup ## Check formatting, lint, types and the pages' sentences; changes nothing
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy --config-file tests/mypy.ini
	$(BIN)/python scripts/prose.py

clean: ## Remove .venv, caches and builds; results stay
	rm -rf .venv .venv-lowest .venv-newest $(DETECTORS) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
