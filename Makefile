# Everything is done in .venv; what a stamp file there is newer than is not installed again.
# `make run` on a bare machine needs nothing but make and Python 3.11, 3.12 or 3.13 with venv.
.DEFAULT_GOAL := help
.PHONY: help run test test-long check lint ui docs install-dev lock clean

VENV := .venv
BIN := $(VENV)/bin
RUN := $(VENV)/.installed-run
DEV := $(VENV)/.installed-dev
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
# The last file that `corpus sample` writes.
SAMPLE := sample/crawl=2026-44/part-00001.parquet

export DAGSTER_DISABLE_TELEMETRY := 1
# Each command and each worker of a test is a process of its own, which would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE

help:
	@echo 'make run           make a small corpus out of this machine'\''s documentation, and run everything on it'
	@echo 'make ui            the web UI over the same data'
	@echo 'make test          all tests but the slow ones'
	@echo 'make test-long     the slow tests'
	@echo 'make check         format, lint, types, import rules and tests: green before every commit'
	@echo 'make lint          the same without the tests'
	@echo 'make install-dev   what run and test install, and no more'
	@echo 'make docs          write the parts of docs/ that are made from the code'
	@echo 'make lock          pin the newest versions that pyproject.toml allows'
	@echo 'make clean         remove .venv and caches; sample, data and history stay'

run: $(RUN)
	test -f '$(SAMPLE)' || $(BIN)/corpus sample sample
	$(BIN)/corpus run

ui: $(RUN)
	$(BIN)/corpus ui

# Four processes on two cores: some tests wait for a clock or another process.
test: $(DEV)
	$(BIN)/python -m pytest -q -m "not slow" -n 4 --dist loadgroup

test-long: $(DEV)
	$(BIN)/python -m pytest -q -m slow

lint: $(DEV)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/ty check --python $(VENV)
	$(BIN)/lint-imports

check: lint test

install-dev: $(DEV)

docs: $(DEV)
	$(BIN)/python docs/build.py

$(BIN)/python:
	@for name in python3.11 python3.12 python3.13 python3; do \
	    if $$name -c 'import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
	        2>/dev/null; then \
	        echo "$$name -m venv $(VENV)"; exec $$name -m venv $(VENV); \
	    fi; \
	done; \
	echo 'No Python 3.11, 3.12 or 3.13 with venv found; on Debian: apt-get install python3 python3-venv' >&2; \
	exit 1

# The build tool is pinned too, so that nothing unpinned is fetched to install this package.
$(RUN): requirements.lock pyproject.toml | $(BIN)/python
	@echo 'installing into $(VENV): a minute or two'
	$(PIP) --require-hashes -r requirements.lock
	$(PIP) --no-deps --no-build-isolation -e .
	$(BIN)/corpus warm
	@touch $@

$(DEV): requirements-dev.lock requirements.lock pyproject.toml | $(BIN)/python
	@echo 'installing into $(VENV): a minute or two'
	$(PIP) --require-hashes -r requirements-dev.lock
	$(PIP) --no-deps --no-build-isolation -e .
	$(BIN)/corpus warm
	@touch $(RUN) $@

# Universal: one lock for every supported Python and system. The second holds the versions of the
# first, so that tests run on what is shipped. Extras are named since pip before 24 wants them so.
UV := $(VENV)/lock/bin/uv
COMPILE := printf 'hatchling>=1.27\neditables>=0.5\n' | $(UV) pip compile --quiet --upgrade --universal \
    --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header --no-strip-extras \
    pyproject.toml -

lock: | $(BIN)/python
	$(BIN)/python -m venv $(VENV)/lock
	$(VENV)/lock/bin/python -m pip --disable-pip-version-check install --quiet uv
	$(COMPILE) --extra slack --extra fast --extra hdf5 -o requirements.lock
	$(COMPILE) --all-extras --constraints requirements.lock -o requirements-dev.lock

clean:
	rm -rf $(VENV) dist .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find corpus_platform corpus_platform_tests -name __pycache__ -type d -prune -exec rm -rf {} +
