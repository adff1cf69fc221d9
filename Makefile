# Everything runs from .venv, made on first use and refreshed when pyproject.toml or constraints.txt change.
# Another interpreter: make PYTHON=/path/to/python3.12 test
PYTHON ?=
VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.installed

.DELETE_ON_ERROR:
.PHONY: help run test test-slow fuzz lint types bench soak audit wheel clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

run: $(READY) ## PATE end to end on scikit-learn's embedded digits; prints the result and where the report is
	@$(VENV)/bin/pate run digits

# Two processes, a file of tests in one of them: fixtures of a file (a cluster, a browser) are made once. One thread in each
# process: more of them fight for the cores, and the tests that train networks take three times as long.
TESTS := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(PY) -m pytest

test: $(READY) ## The default tests and doctests, with coverage
	@$(TESTS) -m "not slow" -n 2 --dist loadfile --durations=10 --cov --cov-report=term

test-slow: $(READY) ## The tests that take minutes
	@$(TESTS) -m slow --durations=10

fuzz: $(READY) ## The property tests on new random examples
	@$(TESTS) -m "hypothesis and not slow" --hypothesis-profile=fuzz

lint: $(READY) ## Style, formatting, and who may import whom
	@$(PY) -m ruff check
	@$(PY) -m ruff format --check
	@$(VENV)/bin/lint-imports

types: $(READY) ## mypy, strict
	@$(PY) -m mypy -p pate

bench: $(READY) ## The accountant against a per-query loop
	@$(VENV)/bin/pate bench account

SECONDS ?= 600
soak: $(READY) ## The service under load: fails if its memory grows or an answer is lost. Shorter: make soak SECONDS=60
	@$(PY) -m pate.experiments.bench.soak --seconds $(SECONDS)

# In an environment of its own: the tool's dependencies are not ours. --strict: what could not be looked up is a failure.
audit: $(READY) ## The pinned dependencies against published advisories (asks the package index)
	@test -x $(VENV)-audit/bin/pip-audit || { $(PY) -m venv $(VENV)-audit && $(VENV)-audit/bin/pip install --quiet pip-audit; }
	@$(VENV)-audit/bin/pip-audit --strict --no-deps --disable-pip --progress-spinner off -r constraints.txt

wheel: $(READY) ## Wheel (built from the sdist) and sdist, in dist/
	@rm -rf build dist pate.egg-info
	@$(PY) -m build --no-isolation --quiet --outdir dist

clean: ## Remove everything that was built, except .venv
	@rm -rf build dist pate.egg-info .coverage .coverage.* htmlcov
	@rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -path ./$(VENV) -prune -o -type d -name __pycache__ -prune -exec rm -rf {} +

# --no-build-isolation: setuptools too comes from constraints.txt.
$(READY): pyproject.toml constraints.txt
	@set -e; \
	works='import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))'; \
	if ! $(PY) -c "import pip; $$works" 2>/dev/null; then \
	  if [ -n "$(PYTHON)" ]; then set -- "$(PYTHON)"; else set -- python3.13 python3.12 python3.11 python3; fi; \
	  for python in "$$@"; do \
	    if "$$python" -c "$$works" 2>/dev/null; then found=$$python; break; fi; \
	  done; \
	  if [ -z "$${found:-}" ]; then \
	    echo "No Python 3.11 or newer with the venv module was found. Install one (on Debian and Ubuntu: python3 and" >&2; \
	    echo "python3-venv), or name it: make PYTHON=/path/to/python" >&2; \
	    exit 1; \
	  fi; \
	  echo "Creating $(VENV) with $$("$$found" --version)"; \
	  "$$found" -m venv --clear $(VENV); \
	fi; \
	echo "Installing into $(VENV) (once; PyTorch and its libraries are about 5 GB: two minutes on a fast line, longer on others)"; \
	$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt setuptools; \
	$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation -e '.[all,dev]'; \
	touch $@
