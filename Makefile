# `make figure` and `make test` make their own virtual environment in .venv, pinned by constraints.txt.
# The same by hand: pip install -e '.[lab,dev]', and the commands below.

PYTHON ?= python3
VENV ?= .venv
RUN = $(VENV)/bin/python
CORPUS ?= python-docs

.PHONY: figure test test-slow benchmark lint report clean

figure: $(VENV)/.installed
	$(RUN) -m sweeps run width_vocab --tier laptop --corpus $(CORPUS)

test: $(VENV)/.installed
	$(RUN) -m pytest

test-slow: $(VENV)/.installed
	$(RUN) -m pytest -m slow

benchmark: $(VENV)/.installed
	$(RUN) -m tests.benchmarks.step
	$(RUN) -m tests.benchmarks.optimizers
	$(RUN) -m tests.benchmarks.sweep

lint: $(VENV)/.installed
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .

report: $(VENV)/.installed
	$(RUN) -m sweeps report

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[lab,dev]'
	touch $@

clean:
	rm -rf $(VENV) runs
