# `make demo` and `make test` do all the set-up themselves: python3 >= 3.11 (with venv), make and git are enough.
# Another interpreter: make PYTHON=python3.12 test

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Renewed when the lock or the project changes; every other target waits for it.
READY := $(VENV)/.ready
SOURCES := acp_agent tests

.DEFAULT_GOAL := test
.DELETE_ON_ERROR:
.PHONY: demo test bench bench-compare bench-scale profile soak properties lock clean interop extension recording test-editors

demo: $(READY)
	@$(BIN)/acp-agent demo

# Compiled first, so that the hundreds of agents the tests start need not do it each for itself.
# basedpyright runs as pyright in strict mode. Its wheel carries the node it needs, so that a fresh machine
# downloads nothing while testing; pyright's own wheel fetches node when it first runs.
# pytest keeps what it makes of the tests' assertions. To make it takes each worker longer than all else it does first,
# so it is made while basedpyright, which uses one core, runs. If that fails, the tests say why.
test: $(READY)
	@$(BIN)/python -m compileall -q acp_agent
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/basedpyright & types=$$!; \
		PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -n 0 --collect-only -q >/dev/null 2>&1; wait $$types
	$(BIN)/lint-imports --no-cache
	PYTHONDONTWRITEBYTECODE= $(BIN)/pytest

bench: $(READY)
	@$(BIN)/python -m tests.bench $(ARGS)
	@$(BIN)/python -m tests.bench.frames
	@$(BIN)/python -m tests.bench.savings

# What this working tree gains over BASE, a revision, measured in turn: ROWS='start turn' names parts, ARGS='--rounds 40'.
bench-compare: $(READY)
	@$(BIN)/python -m tests.bench.compare $(ARGS) $(or $(BASE),$(error name a revision: make bench-compare BASE=main)) $(ROWS)

# What must not grow with a session, with the sessions that are kept, and with the files of a repository: some minutes.
bench-scale: $(READY)
	@$(BIN)/python -m tests.bench.scale $(ARGS)

# Where each millisecond and megabyte goes, by package: build/profile.md. ARGS='start turn' names parts.
profile: $(READY)
	@$(BIN)/python -m tests.bench.profile $(ARGS)

# Agents that are killed, cancelled, left, lied to and so on, thousands of times: a table of what broke, in half an hour.
soak: $(READY)
	@$(BIN)/python -m compileall -q acp_agent
	@$(BIN)/python -m tests.soak $(ARGS)

# All tests, with thousands of fresh examples for each property; takes its time.
properties: $(READY)
	HYPOTHESIS_PROFILE=soak ACP_AGENT_TEST_SPAWN=1 $(BIN)/pytest -m "soak or not soak" --timeout=3600

# All versions for every platform, with hashes, and nothing that says where they came from.
lock: $(READY)
	$(BIN)/uv pip compile --quiet --no-config --universal --python-version 3.11 --extra dev --generate-hashes \
		--no-header --no-annotate --no-emit-index-url --no-emit-find-links --upgrade pyproject.toml -o requirements.lock

# The extension for VS Code, built (node 20) and put into the package: from then on `pip install .` and a wheel carry it.
extension:
	cd editors/vscode && npm ci --no-audit --no-fund && npm run package
	cp editors/vscode/acp-agent.vsix acp_agent/cli/setup/

# Films `acp-agent run` with a scripted model for the README: docs/run.svg, and build/run.cast for asciinema's players.
recording: $(READY)
	@$(BIN)/python -m tests.recording

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +

# "ok", or what is wrong with the interpreter; empty when there is none.
CHECKED = $(shell $(PYTHON) -c 'import sys; from importlib.util import find_spec; new = sys.version_info >= (3, 11); \
	print("ok" if new and find_spec("ensurepip") else "%d.%d" % sys.version_info[:2] + " without venv" * new)' 2>/dev/null)
REFUSAL = acp-agent needs python3 3.11 or newer with venv, but $(PYTHON) is $(or $(CHECKED),not there): \
	name another with make PYTHON=... (Debian, Ubuntu: apt install python3-venv)

# "compat" puts the folder on the path; the default hooks the import system, which costs every start ten milliseconds.
$(READY): requirements.lock pyproject.toml
	@$(if $(filter ok,$(CHECKED)),,$(error $(REFUSAL)))echo "Setting up $(VENV) ..."
	@$(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation \
		--config-settings editable_mode=compat -e .
	@touch $@

# A client on the official TypeScript SDK through the whole protocol: node 20, and once `npm install --no-package-lock` in tests/interop.
interop: $(READY)
	$(BIN)/pytest -n0 -rs tests/e2e/test_sdk_tour.py

# Clients that others wrote drive the agent, and our extension its tour: ARGS='acpx toad' names some (tests/editors/README.md).
test-editors: $(READY)
	@$(BIN)/python -m tests.editors $(ARGS)
