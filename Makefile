# Takeback. `make` alone lists what there is; everything works from a fresh clone with Python 3.11 and make.
.DEFAULT_GOAL := help
.PHONY: help setup run demo test check bench faults conformance verify schemas screenshots format requirements

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
DATA ?= data
ARGS ?=
# Most tests wait for servers: twice as many workers as there are usually cores keep those busy.
JOBS ?= 4
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Tests start dozens of processes: what is compiled once need not be compiled in each of them.
unexport PYTHONDONTWRITEBYTECODE

help: ## Say what each target does
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: .venv/.takeback ## Make .venv with the `takeback` command in it; at once when nothing changed

run: setup ## Start everything with embedded servers on data/ (DATA=…); prints where to look and which tokens to use
	$(BIN)/takeback serve --data $(DATA) $(ARGS)

demo: setup ## Play both stories against the running stack, or one started for the time being
	$(BIN)/takeback demo --data $(DATA) $(ARGS)

test: setup .venv/.otterwiki .venv/.realservers ## Run the tests, against real servers that they start themselves
	$(BIN)/pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

check: setup verify ## Format, lint, types, layers, and generated files
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: setup ## Measure against floors taken in the same run
	$(BIN)/python -m tests.bench $(ARGS)

faults: setup ## Kill the recorder twenty times at every point where it could hurt
	TAKEBACK_FAULT_ROUNDS=20 $(BIN)/pytest -m faults --timeout=1800 $(ARGS)

conformance: setup .venv/.realservers ## Try every way back of the shipped manifests at their real servers
	$(BIN)/python -m tests.real_servers $(ARGS)

verify: setup ## See that generated files (schemas, AsyncAPI, OpenAPI) are what the code says
	$(BIN)/python -m takeback.schemas --check

schemas: setup ## Write schemas/ anew from the code
	$(BIN)/python -m takeback.schemas --write

screenshots: setup ## Take the pictures in docs/screens/ anew, in Chromium
	TAKEBACK_SCREENSHOTS=docs/screens $(BIN)/pytest -q tests/browser/test_pages.py $(ARGS)

format: setup ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

requirements: setup ## Resolve pyproject.toml into the hashed requirements files
	$(COMPILE) --all-build-deps --output-file=requirements.txt pyproject.toml
	$(COMPILE) --all-build-deps --extra=embedded --extra=dev --constraint=requirements.txt --output-file=requirements-dev.txt pyproject.toml
	$(COMPILE) --output-file=examples/browser/otterwiki.txt examples/browser/otterwiki.in
	$(COMPILE) --output-file=tests/real_servers/requirements.txt tests/real_servers/requirements.in

# Hashes of the public index's files, and no host's name: the files are the same wherever they come from.
COMPILE := CUSTOM_COMPILE_COMMAND="make requirements" $(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe \
	--strip-extras --no-emit-index-url --no-emit-find-links --no-emit-trusted-host

.venv/.requirements: requirements-dev.txt
	@$(PYTHON) -c 'import sys; sys.exit("Takeback needs Python 3.11; $(PYTHON) is " + sys.version.split()[0] + ". Name one: make PYTHON=/path/to/python3.11" if sys.version_info[:2] != (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	@echo "Installing what Takeback needs into .venv: this takes some minutes, once."
	$(BIN)/pip install --quiet --require-hashes -r requirements-dev.txt
	@touch $@

.venv/.takeback: .venv/.requirements pyproject.toml
	$(BIN)/pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

# The wiki of examples/browser is somebody else's application: it pins its libraries, and gets them where they are alone.
.venv/.otterwiki: examples/browser/otterwiki.txt | .venv/.requirements
	$(PYTHON) -m venv --clear .venv/otterwiki
	.venv/otterwiki/bin/pip install --quiet --require-hashes -r examples/browser/otterwiki.txt
	@touch $@

# The tool servers of the shipped manifests, likewise. One asks for an extra that is resolved already, hence --no-deps.
.venv/.realservers: tests/real_servers/requirements.txt | .venv/.requirements
	$(PYTHON) -m venv --clear .venv/real-servers
	.venv/real-servers/bin/pip install --quiet --no-deps --require-hashes -r tests/real_servers/requirements.txt
	@touch $@
