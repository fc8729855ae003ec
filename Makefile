# `make` shows the menu. Every target sets up what it needs: a fresh machine needs Python and make.

PYTHON ?= python3
BIN := .venv/bin
CODE := $(wildcard src tests bench examples)
OURS := PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python
PYTEST := $(OURS) -m pytest
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock'

.PHONY: help setup run test thorough check lint types imports bench docs fmt lock clean

help:
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-8s %s\n", $$1, $$2}' Makefile

setup: .venv/.ready ## make .venv from the lock files, and see to tmux and Node

run: setup ## show the board, with agents that only pretend (`bullpen` alone: your own)
	@$(BIN)/bullpen --demo

test: check ## everything: check, then the tests (ARGS='-k name' to choose)
	$(PYTEST) -n 2 --dist loadgroup $(ARGS) || $(OURS) scripts/again.py $$?

thorough: ## the same, with more programs and more examples: half an hour and more
	BULLPEN_THOROUGH=1 HYPOTHESIS_PROFILE=thorough PYTHONASYNCIODEBUG=1 $(MAKE) test ARGS="-o asyncio_debug=true $(ARGS)"

check: lint types imports ## everything but the tests, in seconds

lint: setup ## format, lint, spelling, dependencies
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/codespell
	$(BIN)/deptry src

types: setup ## mypy, strict, on all code
	$(BIN)/mypy $(CODE)

imports: setup ## the contracts between the rooms
	$(BIN)/lint-imports --no-logo

bench: setup ## measure, side by side with others (ARGS=--help for more)
	$(BIN)/python -m bench $(ARGS)

docs: setup ## run what the documents show
	$(PYTEST) tests/docs $(ARGS)

fmt: setup ## format, and mend what ruff can mend
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

lock: setup ## renew the lock files (ARGS=--upgrade for newer versions)
	$(LOCK) $(ARGS) -o requirements.lock pyproject.toml
	$(LOCK) $(ARGS) -o requirements-dev.lock --all-extras \
		--group build --group dev --group interop --group node pyproject.toml
	$(LOCK) $(ARGS) -o requirements-build.lock -c requirements-dev.lock --group build
	for each in a2a-0.3 synapse; do $(LOCK) $(ARGS) -o tests/interop/a2a/$$each.lock \
		tests/interop/a2a/$$each.in || exit; done

clean: ## remove all that the other targets made, .venv too
	rm -rf .venv .coverage .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find $(CODE) -name __pycache__ -prune -exec rm -rf {} +

# Renewed in place when one of these changes; otherwise left alone. Nothing unhashed is fetched:
# the build lock comes first, for the one package without a wheel and for our own editable install.
.venv/.ready: requirements-build.lock requirements-dev.lock pyproject.toml scripts/system.sh
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "bullpen needs" \
		"Python 3.11 or newer, and $(PYTHON) is not; try: make PYTHON=python3.12" >&2; exit 1; }
	@PYTHON=$(PYTHON) scripts/system.sh venv tmux
	@$(BIN)/python -c 'import pip' 2>/dev/null || $(PYTHON) -m venv --clear .venv
	$(PIP) --require-hashes --only-binary :all: -r requirements-build.lock
	$(PIP) --require-hashes --only-binary :all: --no-binary forbiddenfruit \
		--no-build-isolation --use-pep517 -r requirements-dev.lock
	$(PIP) --no-index --no-deps --no-build-isolation --editable .
	@scripts/system.sh node
	@touch $@
