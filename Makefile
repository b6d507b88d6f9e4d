# `make demo` and `make test` need Python >= 3.11, git and make, nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One BLAS thread per process: the tests use the cores through processes.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1
WORKERS ?= 2

.PHONY: demo test test-all reliability lint doc dist bench clean

$(BIN)/python:
	$(PYTHON) -c "import sys; sys.exit(0 if sys.version_info >= (3, 11) else 'skcircuits needs Python >= 3.11; pass PYTHON=<path>')"
	$(PYTHON) -m venv $(VENV)

# One stamp per set of extras, renewed when the requirements change.
$(VENV)/.installed-%: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[$*]"
	touch $@

demo: $(VENV)/.installed-plot
	$(BIN)/python examples/plot_missing_cells.py --output demo-output

test: $(VENV)/.installed-test
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(WORKERS)

test-all: $(VENV)/.installed-test
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(WORKERS) -m "slow or not slow"

# Cases tried, failures and seconds by class; other seeds every time, which the table names.
reliability: $(VENV)/.installed-test
	RELIABILITY_SEED=$${RELIABILITY_SEED:-$$(date +%s)} $(ONE_THREAD) $(BIN)/python -m pytest -q -m "slow or not slow" \
		tests/reliability tests/estimators/test_failed_fits.py

lint: $(VENV)/.installed-dev $(VENV)/.installed-test
	$(BIN)/ruff check skcircuits tests examples benchmarks
	$(BIN)/ruff format --check skcircuits tests examples benchmarks
	$(BIN)/mypy
	$(BIN)/lint-imports --config setup.cfg

doc: $(VENV)/.installed-doc
	$(BIN)/sphinx-build -W --keep-going -b html doc doc/_build/html

# Wheel and source distribution, installed alone in an empty environment and used from there.
dist: $(VENV)/.installed-dev
	rm -rf dist build
	$(BIN)/python -m build --quiet --outdir dist .
	$(BIN)/twine check --strict dist/*
	rm -rf build/empty && $(PYTHON) -m venv build/empty
	build/empty/bin/python -m pip install --quiet --disable-pip-version-check dist/*.whl
	cd build && empty/bin/python ../tests/smoke.py

bench: $(VENV)/.installed-test
	$(ONE_THREAD) $(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) build dist demo-output doc/_build doc/api doc/auto_examples doc/sg_execution_times.rst
