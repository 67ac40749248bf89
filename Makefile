# Every target works on a fresh clone: it makes .venv and installs what it needs when that is missing.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: help serve test unit lint format types imports bench docs results ci clean
.DEFAULT_GOAL := help

help:  ## List the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

# The worker extra brings torch (a large download); the dev extra adds the test tools to it.
$(VENV)/.worker: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[worker]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@ $(VENV)/.worker

serve: $(VENV)/.worker  ## Serve MNIST digits through coded replicas on 127.0.0.1:8000
	$(BIN)/unstraggle serve

test: $(VENV)/.dev  ## Run every test
	$(BIN)/pytest

unit: $(VENV)/.dev  ## Run the tests that start no processes
	$(BIN)/pytest tests/unit

lint: $(VENV)/.dev  ## Check style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.dev  ## Mend style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.dev  ## Check types
	$(BIN)/mypy

imports: $(VENV)/.dev  ## Check which package may know which
	$(BIN)/lint-imports

bench: $(VENV)/.dev  ## Measure, and print ratios
	$(BIN)/pytest tests/bench --benchmark-enable --benchmark-columns=min,median,max --timeout=0

docs: $(VENV)/.dev  ## Write the generated reference pages
	$(BIN)/unstraggle config reference > docs/config.md

EXPERIMENTS := quick convergence table1 stragglers coded-points lambda byzantine estimate

results: $(VENV)/.dev  ## Run every experiment, and write docs/results/
	for name in $(EXPERIMENTS); do $(BIN)/unstraggle experiment $$name --out docs/results/$$name || exit 1; done

ci: lint types imports test  ## Everything that must hold before a change lands

clean:  ## Remove the environment and what tools leave behind
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks .runs
