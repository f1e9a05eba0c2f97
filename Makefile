# The targets create a virtual environment in .venv, with versions from constraints.txt.
# Without make: pip install -c constraints.txt -e '.[lab,dev]', then run the commands below.

PYTHON ?= python3
VENV ?= .venv
RUN = $(VENV)/bin/python
CORPUS ?= python-docs
CONSTRAINTS ?= constraints.txt
ROUNDS ?= 15
# The tests start many processes. Without bytecode on disk each would compile all sources again.
export PYTHONDONTWRITEBYTECODE =

.PHONY: figure test test-slow benchmark lint report docs plans notebooks clean

# Text that is read once, at four small widths, in minutes.
figure: $(VENV)/.installed
	$(RUN) -m lvp.sweeps run fresh_text --preset quick --corpus $(CORPUS)

# The files with the longest tests start first, so that no core waits at the end.
LONG_FIRST = --dist loadfile --no-loadscope-reorder
LONG_FIRST += tests/benchmarks tests/faults tests/sweeps tests/experiments tests/lvp tests/docs
test: $(VENV)/.installed
	$(RUN) -m pytest -n 2 $(LONG_FIRST)

test-slow: $(VENV)/.installed
	$(RUN) -m pytest -m slow -n 2 --durations=40 $(LONG_FIRST)

benchmark: $(VENV)/.installed
	$(RUN) -m tests.benchmarks.step --rounds $(ROUNDS)
	$(RUN) -m tests.benchmarks.optimizers
	$(RUN) -m tests.benchmarks.products
	$(RUN) -m tests.benchmarks.roles
	$(RUN) -m tests.benchmarks.waiting
	$(RUN) -m tests.benchmarks.tokenize
	$(RUN) -m tests.benchmarks.training_share
	$(RUN) -m tests.benchmarks.sweep

lint: $(VENV)/.installed
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

report: $(VENV)/.installed
	$(RUN) -m lvp.sweeps report

# Builds the site in build/docs. Warnings are errors. Only packages are downloaded.
docs: $(VENV)/.docs
	$(RUN) -m sphinx -b html -q --fail-on-warning -c docs . build/docs

# Writes docs/plans: the 1B model on three TPU slices. Needs libtpu (pip install -e '.[tpu]').
PLAN = $(RUN) -m lvp plan 1b --batch 256
plans: $(VENV)/.installed
	mkdir -p docs/plans
	$(PLAN) --micro-batches 8 --topology v5e:4x4 > docs/plans/1b-v5e-4x4.txt
	$(PLAN) --micro-batches 4 --topology v5p:2x2x4 > docs/plans/1b-v5p-2x2x4.txt
	$(PLAN) --micro-batches 4 --topology v6e:4x4 > docs/plans/1b-v6e-4x4.txt

# Runs notebooks/*.py and writes the .ipynb files beside them.
notebooks: $(VENV)/.installed
	$(RUN) -m notebooks.build

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e '.[lab,dev]'
	touch $@

$(VENV)/.docs: $(VENV)/.installed
	$(RUN) -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e '.[docs]'
	touch $@

clean:
	rm -rf $(VENV) build docs/api runs
