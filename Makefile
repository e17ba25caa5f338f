# make demo | test | test-deep | test-lowest | bench | gallery | accuracy | scenarios | lint | clean: each sets up what it needs by itself.
# Wanted on the machine: make, and Python 3.11 or newer with venv and pip. Another place for the environment: make VENV=/some/folder test

SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help demo test test-deep test-lowest bench gallery accuracy scenarios docs lint format clean

PYTHON ?= $(shell for name in python3 python3.14 python3.13 python3.12 python3.11 python; do \
  if "$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then echo "$$name"; break; fi; done)
VENV ?= .venv
BIN = $(VENV)/bin
SIZE ?= small
SCENARIO ?= --all
FORMAT ?= nsys
TRACE := reports/demo.sqlite
JOB := fixtures/jobs/qwen3_30b_a3b_alltoall_h100.yaml

define environment
@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed and was not found; name it with make PYTHON=/path/to/python3" >&2; exit 1; }
@"$(PYTHON)" .ci/environment.py "$(VENV)" $(1)
endef

help:
	@echo "make demo       diagnose a synthetic trace and write an HTML report"
	@echo "make test       lint, format, types, import floors, quick tests"
	@echo "make test-deep  all other tests, and every property with more examples"
	@echo "make test-lowest  the tests of make test with the oldest libraries that pyproject.toml allows"
	@echo "make bench      speed and memory against the goals (SIZE=full for the large inputs)"
	@echo "make gallery    diagnose the scenarios of the gallery into build/gallery"
	@echo "make accuracy   hold the diagnoses of all scenarios against their truth"
	@echo "make scenarios  write traces, job file and truth of all scenarios into build/scenarios (SCENARIO=name for one, FORMAT=nsys, torch or both)"
	@echo "make docs       build the documentation, with all that the program knows, into build/site, and the manual page docs/diagnose.1"
	@echo "make lint       the checks of make test without the tests"
	@echo "make format     put the sources into their format"
	@echo "make clean      remove what make made"

demo:
	$(call environment,run)
	@"$(BIN)/python" -m fixtures unpack demo.sqlite.gz $(TRACE)
	@"$(BIN)/python" -m diagnose $(TRACE) --config $(JOB) -o reports/demo.html --force
	@printf '\nThe trace is synthetic (fixtures/). The HTML report lies at:\n%s\n' "$(CURDIR)/reports/demo.html"

docs:
	$(call environment,docs)
	@"$(BIN)/python" -c 'from diagnose.cli import cli; from pages.manual import manual; print(manual(cli), end="")' > docs/diagnose.1
	@NO_MKDOCS_2_WARNING=true "$(BIN)/python" -m mkdocs build --strict --quiet
	@printf 'The documentation lies at:\n%s\n' "$(CURDIR)/build/site/index.html"

lint:
	$(call environment,dev)
	@"$(BIN)/ruff" check --quiet .
	@"$(BIN)/ruff" format --quiet --check .
	@"$(BIN)/mypy"
	@"$(BIN)/lint-imports" --no-logo

test: lint
	@"$(BIN)/python" -m pytest -q -n auto --dist loadgroup

test-deep:
	$(call environment,dev)
	@"$(BIN)/python" -m pytest -q -n auto --dist loadgroup -m "deep or hypothesis" --hypothesis-profile deep

test-lowest: VENV = .venv-lowest
test-lowest:
	$(call environment,lowest)
	@"$(BIN)/python" -m pytest -q -n auto --dist loadgroup

bench:
	$(call environment,run)
	@"$(BIN)/python" -m benchmarks --size $(SIZE)

gallery:
	$(call environment,run)
	@"$(BIN)/python" -m fixtures gallery --html

accuracy:
	$(call environment,run)
	@"$(BIN)/python" -m fixtures accuracy

scenarios:
	$(call environment,run)
	@"$(BIN)/python" -m fixtures make $(SCENARIO) --out build/scenarios --format $(FORMAT)

format:
	$(call environment,dev)
	@"$(BIN)/ruff" check --quiet --fix .
	@"$(BIN)/ruff" format --quiet .

clean:
	@rm -rf .venv .venv-lowest .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist reports/demo.html reports/demo.sqlite
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
