# `make check` and `make test` set up everything they need, once, in .venv; a second run starts at once.
#
#   make check                     measure and judge this machine
#   make check ARGS="--quick"      any arguments of `wiretax check`
#   make check PYTHON=/opt/conda/bin/python     use the torch of this Python
#   make test                      the tests;  make test ARGS="tests/unit -k verdict"
#   make report ARGS="RUN"         the page of a run, with charts; RUN is an id (wiretax runs) or a file
#   make coverage                  the tests, and which lines they reach, in ranks and children too
#   make cases                     diagnose the public cases: right, wrong, forbidden;  ARGS=FOLDER for others
#   make lint                      style, types, import arrows, spelling
#   make docs                      write the generated blocks of README.md anew

PYTHON ?= python3
VENV ?= .venv
ARGS ?=
BIN := $(VENV)/bin
PYTEST ?= $(BIN)/python -m pytest
SETUP := PYTHON="$(PYTHON)" VENV="$(VENV)" ./scripts/set_up

.PHONY: check report test cases lint docs clean

check: $(VENV)/.ready
	@$(BIN)/wiretax check $(ARGS) || { code=$$?; [ $$code -eq 1 ] || exit $$code; }

report: $(VENV)/.ready-report
	@$(BIN)/wiretax report $(ARGS)

test: $(VENV)/.ready-test
	$(PYTEST) $(ARGS)

# Coverage starts with every Python that has the variable.
coverage: $(VENV)/.ready-test
	rm -f .coverage .coverage.*
	COVERAGE_PROCESS_START="$(CURDIR)/pyproject.toml" $(BIN)/coverage run -m pytest $(ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

cases: $(VENV)/.ready
	PYTHONPATH=tests $(BIN)/python tests/cases/summary.py $(ARGS)

lint: $(VENV)/.ready-test $(VENV)/.ready-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell

docs: $(VENV)/.ready
	$(BIN)/python docs/make_readme.py
	$(BIN)/python docs/make_diagnose.py
	$(BIN)/python docs/make_planning.py
	$(BIN)/python docs/make_predict.py

clean:
	rm -rf $(VENV)

$(VENV)/.ready: pyproject.toml scripts/set_up
	@$(SETUP)
	@touch $@

$(VENV)/.ready-report $(VENV)/.ready-test $(VENV)/.ready-lint: $(VENV)/.ready-%: pyproject.toml $(VENV)/.ready
	@$(SETUP) $*
	@touch $@
