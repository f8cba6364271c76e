# `make demo` and `make test` need Python 3.11 or newer and nothing else; they set up .venv by themselves.
# `make e2e` needs Linux, root and Go 1.26 or newer besides, and says so where they are missing.
SHELL := /bin/bash
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
BASE := $(VENV)/.base
# Compiled modules are kept: without them every process that a test starts compiles all of Tonnage, 1 s of CPU each.
unexport PYTHONDONTWRITEBYTECODE
NAME ?= all
FUZZ_SECONDS ?= 60
LINTED := src tests benchmarks e2e scripts

.DEFAULT_GOAL := help
.PHONY: help demo image peers test check check-types check-imports check-lint check-format format bench bench-quick digests fuzz e2e e2e-build e2e-long clean

help: ## say what there is
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

$(STAMP): pyproject.toml scripts/venv.sh
	@VENV="$(VENV)" PYTHON="$(PYTHON)" scripts/venv.sh '.[dev]'
	@touch $@

# The demo needs nothing of what tests and lint need; where that is there already it is kept.
$(BASE): pyproject.toml scripts/venv.sh
	@VENV="$(VENV)" PYTHON="$(PYTHON)" scripts/venv.sh .
	@touch $@

demo: $(if $(wildcard $(STAMP)),$(STAMP),$(BASE)) ## the traffic surge, live, with a summary and an HTML report
	@$(BIN)/tonnage demo

image: $(STAMP) ## the controllers' image as out/tonnage-image.tar, from Debian's packages, without a registry; ARGS="--name REPOSITORY:TAG"
	@$(BIN)/python -m scripts.image $(ARGS)

peers: $(STAMP) ## install what tests and benchmarks compare with (300 MB); tests beside it are skipped without
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,peers]'

test: $(STAMP) ## all tests
	@$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not fuzz and not e2e" \
	  --ignore=tests/fuzz --ignore=tests/e2e $(ARGS)

# Side by side; what each prints stays together, and one that fails does not hide what the others have to say.
check: $(STAMP) ## lint, types, import contracts
	@$(MAKE) --no-print-directory --jobs=2 --keep-going --output-sync=target check-types check-imports check-lint check-format

check-types:
	$(BIN)/mypy

check-imports:
	$(BIN)/lint-imports
	$(BIN)/python -m scripts.rooms

check-lint:
	$(BIN)/ruff check $(LINTED)

check-format:
	$(BIN)/ruff format --check $(LINTED)

format: $(STAMP) ## format and fix what can be fixed
	$(BIN)/ruff format $(LINTED)
	$(BIN)/ruff check --fix $(LINTED)

bench: $(STAMP) ## benchmarks; NAME=main for one
	@$(BIN)/python -m benchmarks $(NAME) $(ARGS)

bench-quick: $(STAMP) ## every benchmark on less input; fails on a crash or a wrong result, never on a time
	@$(BIN)/python -m benchmarks all --quick

digests: $(STAMP) ## results of all examples, and of random placements, beside what is recorded; ARGS="--only traffic-surge"
	@$(BIN)/python scripts/digests.py $(ARGS)

fuzz: $(STAMP) ## random steps against the invariants, each test of that kind for FUZZ_SECONDS; deep seeds; properties in full (below 60 a share of both); searches of all the source
	@TONNAGE_FUZZ_SECONDS=$(FUZZ_SECONDS) $(BIN)/python -m pytest -m "(fuzz or hypothesis) and not e2e" -n 2 $(ARGS)

e2e-build: $(STAMP) ## build the control plane's programs alone: tests beside them in make test run then
	@$(BIN)/python -m e2e build

e2e: $(STAMP) ## tests on a real control plane, built once (16 minutes), two files at a time; ARGS="tests/e2e/test_cluster.py -k gpus" for some
	@scripts/helm.sh >/dev/null || echo "without helm the chart is not installed on the API server"
	@$(BIN)/python -m e2e test $(ARGS)

e2e-long: $(STAMP) ## the same with all numbers and the longest runs; the result goes to e2e/last-long.json
	@scripts/helm.sh >/dev/null || echo "without helm the chart is not installed on the API server"
	@$(BIN)/python -m e2e long $(ARGS)

clean: ## remove the environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis dist out
