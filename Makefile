# make demo    the main job: RMSNorm, softmax and attention, from PyTorch to CUDA to numbers
# make test    the tests
# make bench   the suite against PyTorch, on this machine's GPU
# Each sets up .venv first, with the first Python of 3.11 or newer that is found. Another Python or PyTorch, beside it:
#   make test PYTHON=python3.12 TORCH=2.11.0 VENV=.venv312

SHELL := /bin/bash
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3 python; do \
	$$p -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo $$p; break; }; done)
VENV ?= .venv
BIN := $(VENV)/bin
# torch 2.13 on Python 3.11 is the reference: what is pinned here, the project's own requirement accepts.
TORCH ?= $(shell $(PYTHON) -c 'import sys; print("2.13.0" if sys.version_info[:2] == (3, 11) else "")' 2>/dev/null)
JOBS ?= auto
TESTS ?= tests

.PHONY: demo test bench clean

demo: $(VENV)/ready
	$(BIN)/python -m benchmarks.demo

test: $(VENV)/ready
	$(BIN)/python -m pytest -n $(JOBS) -q $(TESTS)

bench: $(VENV)/ready
	$(BIN)/python -m benchmarks.suite

$(VENV)/ready: pyproject.toml
	@test -n "$(PYTHON)" || { echo "deplodock needs Python 3.11 or newer; none was found on PATH" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install -q torch$(if $(TORCH),==$(TORCH))
	$(BIN)/python -m pip install -q -e . --group dev
	touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .hypothesis
