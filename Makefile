# Two commands do everything on a fresh machine: `make demo` and `make test`.
VENV ?= .venv
MODEL ?= smollm2-135m
# Processes that share the tests; a test file runs whole in one of them.
TEST_PROCESSES ?= 2
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3)
BIN := $(VENV)/bin
NATIVE := $(shell find native -type f) CMakeLists.txt

.PHONY: demo test check bench wheel setup format clean

setup: $(VENV)/.installed

$(VENV)/.python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Slipstream needs Python 3.11 or newer; set PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet "scikit-build-core>=0.11" "nanobind>=2.9" "cmake>=3.22" ninja
	touch $@

$(VENV)/.installed: $(VENV)/.python pyproject.toml $(NATIVE)
	$(BIN)/python -m pip install --quiet --no-build-isolation --editable ".[test,check]"
	touch $@

demo: setup
	$(BIN)/slipstream pull $(MODEL)
	$(BIN)/slipstream bench speculate $(MODEL) --workloads workloads
	mkdir -p runs
	$(BIN)/slipstream lab init --small --model $(MODEL) --out runs/demo.toml --force
	$(BIN)/slipstream lab run runs/demo.toml
	$(BIN)/slipstream lab report

test: setup
	$(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup
	$(BIN)/slipstream pull $(MODEL)
	$(BIN)/slipstream bench rows $(MODEL)
	$(BIN)/slipstream bench decode $(MODEL)

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

wheel: setup
	$(BIN)/python -m pip wheel --no-deps --no-build-isolation --wheel-dir dist .

clean:
	rm -rf build dist $(VENV)
