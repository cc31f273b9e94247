SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
JOBS ?= $(shell nproc)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST := $(BIN)/pytest --numprocesses=$(JOBS) --dist=worksteal
# Tests against the published peers skip themselves where these are not built; here that is a failure.
WITH_PEERS := JOINPROTO_REQUIRE_PEERS=1

.PHONY: help
help: ## what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# -- set-up -----------------------------------------------------------------------------------

.PHONY: venv
venv: $(STAMP) ## the environment in .venv that everything here runs in

$(STAMP): pyproject.toml requirements/dev.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo 'make: $(PYTHON) is not Python 3.11 or newer; name one with PYTHON=...' >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	    { echo 'make: $(PYTHON) cannot make environments (Debian: apt-get install python3-venv)' >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: peers
peers: ## the published peers and their decoders, into ~/.cache/joinproto/peers (a minute each, once)
	interop/build_peers.sh
	interop/build_verdicts.sh

# Only an example runs on it, and PyTorch is large: Debian's is taken where it can be.
.PHONY: torch
torch: ## Debian's PyTorch, for the example that runs on it
	@/usr/bin/python3 -c 'import importlib.util as u, sys; sys.exit(u.find_spec("torch") is None)' 2>/dev/null || \
	    { apt-get update -qq && apt-get install -y -qq --no-install-recommends python3-torch >/dev/null; } || \
	    { echo 'make: install python3-torch as root (apt-get install python3-torch)' >&2; exit 1; }

# Only the page's tests want it; without it they are skipped, and say so.
.PHONY: browser
browser: ## Debian's Chromium, for the tests of the controller's page
	@command -v chromium >/dev/null || \
	    { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null 2>&1; } || \
	    echo 'make: no chromium (Debian: apt-get install chromium); the tests of the page are skipped' >&2

# Likewise: only the tests of specs/joinproto.lua want it.
.PHONY: tshark
tshark: ## Debian's tshark, for the tests of the Wireshark dissector
	@command -v tshark >/dev/null || \
	    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
	        apt-get install -y -qq --no-install-recommends tshark >/dev/null 2>&1; } || \
	    echo 'make: no tshark (Debian: apt-get install tshark); the tests of the dissector are skipped' >&2

# Likewise: the parser it makes from specs/joinproto.ksy is kept in the repository.
.PHONY: kaitai
kaitai: ## the compiler of Kaitai Struct, from npm
	@[ specs/kaitai/node_modules -nt specs/kaitai/package-lock.json ] || \
	    { npm ci --prefix specs/kaitai --silent --no-fund --no-audit && touch specs/kaitai/node_modules; } || \
	    echo 'make: no Kaitai Struct compiler (it needs npm); its parser is neither made nor compared' >&2

PIP_COMPILE := CUSTOM_COMPILE_COMMAND='make lock' $(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe \
    --strip-extras --no-emit-index-url --no-emit-find-links --no-emit-trusted-host $(LOCK_FLAGS)

.PHONY: lock
lock: venv ## requirements/*.lock anew; LOCK_FLAGS=--upgrade takes newer versions
	$(PIP_COMPILE) --extra testing --output-file requirements/dev.lock pyproject.toml requirements/dev.in
	$(PIP_COMPILE) --output-file requirements/fuzz.lock requirements/fuzz.in

# -- use --------------------------------------------------------------------------------------

.PHONY: demo
demo: venv ## a controller, agents and ranks on loopback; DEMO_FLAGS='--hosts 3 --ranks 2'
	$(BIN)/joinproto demo $(DEMO_FLAGS)

# -- checks -----------------------------------------------------------------------------------

.PHONY: lint
lint: venv ## ruff and mypy
	$(BIN)/ruff format --check --quiet
	$(BIN)/ruff check --quiet
	$(BIN)/mypy

.PHONY: format
format: venv ## lay the code out anew and apply ruff's safe fixes
	$(BIN)/ruff check --quiet --fix
	$(BIN)/ruff format --quiet

.PHONY: test
test: lint peers torch browser tshark kaitai ## lint, then every test but the long ones, with coverage
	$(WITH_PEERS) $(PYTEST) --cov --cov-report=term $(PYTEST_FLAGS)

# One after the other: most of them run a target, or two, on every processor there is.
.PHONY: test-long
test-long: venv peers ## the tests that take minutes
	$(WITH_PEERS) $(BIN)/pytest -m long --timeout=1200 $(PYTEST_FLAGS)

# The guards hold a test to 1 s, which this many examples are to take longer than.
.PHONY: soak
soak: venv ## the properties on many random examples, and the conformance suite 20 times
	$(PYTEST) -m 'not interop and not long' --hypothesis-profile=soak -p no:tests.guards --timeout=0 $(PYTEST_FLAGS)
	$(BIN)/python bench/_flakes.py

# Guided by coverage, in process; `joinproto fuzz` is for programs over TCP.
FUZZ_SECONDS ?= 60
FUZZ_TARGETS ?= $$($(BIN)/python fuzz/run.py --list)

.PHONY: fuzz
fuzz: venv ## every fuzz target for FUZZ_SECONDS (60); FUZZ_TARGETS='codec-4 pair' takes these alone
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/fuzz.lock
	for target in $(FUZZ_TARGETS); do $(BIN)/python fuzz/run.py $$target --seconds $(FUZZ_SECONDS); done

# -- made files and figures -------------------------------------------------------------------

# A machine is a module or a package of that name.
MACHINES := $(filter-out __%,$(notdir $(basename $(wildcard src/joinproto/machines/*))))

.PHONY: specs
specs: $(foreach suffix,mmd dot json,$(MACHINES:%=specs/machines/%.$(suffix))) specs/kaitai/joinproto.py ## what is made in specs: drawings from the machines' tables, a parser from the grammar, test vectors, what fuzzing begins with
	$(BIN)/python specs/draw.py
	$(BIN)/python specs/make_vectors.py
	$(BIN)/joinproto conform coverage > docs/coverage.md
	$(BIN)/python fuzz/make_corpus.py

# A table's drawing depends on more modules than its own; they are cheap, so they are always made.
.PHONY: FORCE
specs/machines/%.mmd: venv FORCE
	@mkdir -p $(@D)
	$(BIN)/joinproto machines $* --format mermaid > $@

specs/machines/%.dot: venv FORCE
	@mkdir -p $(@D)
	$(BIN)/joinproto machines $* --format dot > $@

specs/machines/%.json: venv FORCE
	@mkdir -p $(@D)
	$(BIN)/joinproto machines $* --format json > $@

specs/kaitai/joinproto.py: specs/joinproto.ksy specs/kaitai/compile.cjs specs/kaitai/package-lock.json | kaitai
	@[ ! -d specs/kaitai/node_modules ] || node specs/kaitai/compile.cjs python $< > $@

.PHONY: bench
bench: venv peers ## the measurements, each against its yardstick in the same run
	for script in bench/[!_]*.py; do $(BIN)/python "$$script"; done

.PHONY: clean
clean: ## everything that was made inside this folder
	rm -rf $(VENV) build dist specs/kaitai/node_modules htmlcov .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find src tests interop bench fuzz specs -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
