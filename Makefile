# `make demo` and `make test` need Python >= 3.11, git and make, nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One BLAS thread per process: the tests use the cores through processes.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1
WORKERS ?= 2

.PHONY: demo test test-all test-oldest reliability mutation lint audit doc doc-check dist bench clean

$(BIN)/python:
	$(PYTHON) -c "import sys; sys.exit(0 if sys.version_info >= (3, 11) else 'skcircuits needs Python >= 3.11; pass PYTHON=<path>')"
	$(PYTHON) -m venv $(VENV)

# One stamp per set of extras, renewed when the requirements change.
$(VENV)/.installed-%: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[$*]"
	touch $@

demo: $(VENV)/.installed-examples
	$(ONE_THREAD) $(BIN)/python doc/save_figure.py examples/predictions/plot_disappearing_cells.py demo-output/disappearing_cells.png

test: $(VENV)/.installed-test
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

# The libraries that targets and chains may come from, each where pip has it.
$(VENV)/.optional: $(BIN)/python pyproject.toml
	for extra in jax torch arviz pymc stan; do \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[$$extra]" \
		|| echo "not tested: $$extra"; done
	touch $@

test-all: $(VENV)/.installed-test $(VENV)/.optional
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(WORKERS) -m "slow or not slow"

# With the oldest versions of the dependencies that pyproject.toml allows
test-oldest: $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/python -m uv venv --quiet --clear --python $(BIN)/python $(VENV)-oldest
	$(BIN)/python -m uv pip install --quiet --python $(VENV)-oldest/bin/python --resolution lowest-direct -e ".[test]"
	$(ONE_THREAD) $(VENV)-oldest/bin/python -m pytest -n $(WORKERS) --dist worksteal

# Cases tried, failures and seconds by class; other seeds every time, which the table names.
reliability: $(VENV)/.installed-test
	RELIABILITY_SEED=$${RELIABILITY_SEED:-$$(date +%s)} $(ONE_THREAD) $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m "slow or not slow" tests/reliability

# Which small changes below the estimators the tests find; what survives is listed.
mutation: $(VENV)/.installed-test $(VENV)/.installed-dev
	$(ONE_THREAD) $(BIN)/python -m tests.reliability.mutation --n-mutants 120 --seed $${RELIABILITY_SEED:-0} --work-dir build/mutation

lint: $(VENV)/.installed-dev $(VENV)/.installed-test
	$(BIN)/ruff check skcircuits tests examples benchmarks
	$(BIN)/ruff format --check skcircuits tests examples benchmarks
	$(BIN)/mypy
	$(BIN)/lint-imports --config setup.cfg

# Known vulnerabilities of what the tests installed; packages that the index says nothing of are named.
audit: $(VENV)/.installed-test
	$(PYTHON) -m venv $(VENV)-audit
	$(VENV)-audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit
	$(VENV)-audit/bin/pip-audit --skip-editable --path "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"

# Pages are generated in a copy, so that the tree keeps nothing but the site.
DOC_SOURCE := build/doc/source
SPHINXOPTS ?=

doc: $(VENV)/.installed-doc
	@rm -rf doc/_build && mkdir -p $(DOC_SOURCE)
	@cd $(DOC_SOURCE) && rm -rf *.md user_guide images api
	@cp -p CHANGELOG.md build/doc && cp -pR doc/*.md doc/user_guide doc/images $(DOC_SOURCE)
	PYTHONPATH=$(CURDIR) $(ONE_THREAD) $(BIN)/sphinx-build -W --keep-going -c doc -d build/doc/doctrees $(SPHINXOPTS) \
		$(DOC_SOURCE) doc/_build/html
	@rm -f doc/_build/html/.buildinfo

# Every page at the widths of a phone and a desktop, every link within the site. Needs `make doc` and a
# browser: BROWSER=<path of a chromium>, or `python -m playwright install chromium`.
doc-check: $(VENV)/.installed-doc
	$(BIN)/python doc/check_site.py doc/_build/html

# Wheel and source distribution, installed alone in an empty environment and used from there.
dist: $(VENV)/.installed-dev
	rm -rf dist build/lib build/bdist.* build/empty
	$(BIN)/python -m build --quiet --outdir dist .
	$(BIN)/twine check --strict dist/*
	$(PYTHON) -m venv build/empty
	build/empty/bin/python -m pip install --quiet --disable-pip-version-check dist/*.whl
	cd build && empty/bin/python ../tests/smoke.py

bench: $(VENV)/.installed-test
	$(ONE_THREAD) $(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) $(VENV)-audit $(VENV)-oldest build dist demo-output doc/_build
