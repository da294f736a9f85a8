# Everything a developer does, one verb each. `run` and `test` set up whatever they need themselves.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DATA ?= data
LISTEN ?= 127.0.0.1:9092
SOAK_SEEDS ?= 100:1000
NATIVE := setup.py $(wildcard src/klamm/records/_native/*.[ch])

.PHONY: help setup run broker test check format soak bench wheel lock clean

help:
	@echo "make setup   a virtual environment in $(VENV) with pinned dependencies"
	@echo "make run     the whole story: a broker, page views, a Spark pipeline that counts them, a live view"
	@echo "             until Ctrl-C, or so long after the first result: make run SECONDS=60"
	@echo "make broker  only a broker, on $(LISTEN) with its data in $(DATA)/; no Spark, no Java"
	@echo "make test    all tests that fit into minutes"
	@echo "make check   ruff, mypy, import-linter"
	@echo "make soak    the long runs: crash seeds $(SOAK_SEEDS), kill loops"
	@echo "make bench   speed and size, next to Apache Kafka and a bare C program; writes bench/RESULTS.md"
	@echo "             a part: make bench ARGS=kafka, ARGS=engine; only to see that it works: ARGS=--quick"
	@echo "make wheel   two wheels in dist/: one with the native kernel (manylinux), one in pure Python for any"
	@echo "make lock    refresh the pinned requirement files"

setup: $(BIN)/.dev

# uv installs several times faster where it is there; pip does the same job where it is not.
define install
	@if command -v uv >/dev/null 2>&1; then VIRTUAL_ENV=$(VENV) uv pip install -q $(1); \
	else $(BIN)/python -m pip install -q --disable-pip-version-check $(1); fi
endef

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Klamm needs Python 3.11 or newer; name one with: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 2; }
	@echo "Setting up $(VENV): this fetches packages, once, and may take a minute or two."
	@$(PYTHON) -m venv $(VENV)

# The editable install also compiles the native kernel; without a compiler Klamm goes on in pure Python.
$(BIN)/.runtime: requirements/build.txt requirements/runtime.txt pyproject.toml $(NATIVE) | $(BIN)/python
	$(call install,--require-hashes -r requirements/build.txt -r requirements/runtime.txt)
	$(call install,--no-deps --no-build-isolation -e .)
	@touch $@

$(BIN)/.dev: requirements/dev.txt $(BIN)/.runtime
	$(call install,--require-hashes -r requirements/dev.txt)
	@touch $@

$(BIN)/.spark: requirements/spark.txt $(BIN)/.runtime
	@$(BIN)/python examples/running.py # is there a Java?
	@echo "Installing PySpark: half a gigabyte, once."
	$(call install,--require-hashes -r requirements/spark.txt)
	@touch $@

run: $(BIN)/.spark
	@exec $(BIN)/python examples/activity/run.py --listen "$(LISTEN)" --data "$(DATA)" $(if $(SECONDS),--seconds $(SECONDS))

broker: $(BIN)/.runtime
	@echo "Try, in another terminal:"
	@echo "  echo 'hello, stream' | $(BIN)/klamm produce greetings --bootstrap $(LISTEN)"
	@echo "  $(BIN)/klamm consume greetings --exit-at-end --bootstrap $(LISTEN)"
	@exec $(BIN)/klamm start --data "$(DATA)" --listen "$(LISTEN)"

test: $(BIN)/.dev
	@$(BIN)/pytest -n 3 --dist loadfile

check: $(BIN)/.dev
	@$(BIN)/ruff check -q .
	@$(BIN)/ruff format --check -q .
	@$(BIN)/mypy --no-error-summary
	@out=$$($(BIN)/lint-imports 2>&1) || { echo "$$out"; exit 1; }
	@echo "ruff, mypy and import-linter have nothing to say."

format: $(BIN)/.dev
	@$(BIN)/ruff check -q --fix . ; $(BIN)/ruff format -q .

soak: $(BIN)/.dev
	@KLAMM_SOAK_SEEDS=$(SOAK_SEEDS) $(BIN)/pytest -m soak -n 2 --dist worksteal --timeout 3600
	@KLAMM_SOAK_SEEDS=$(SOAK_SEEDS) $(BIN)/pytest tests/unit -n 2 --dist worksteal # properties, with new examples

$(BIN)/.bench: requirements/bench.txt $(BIN)/.dev
	$(call install,--require-hashes -r requirements/bench.txt)
	@touch $@

bench: $(BIN)/.bench
	@$(BIN)/python bench/run.py $(ARGS)

# Straight from the build backend: pip would build in isolation, with tools that nobody has pinned.
BUILD := from setuptools.build_meta import build_wheel; print("dist/" + build_wheel("dist"))

wheel: $(BIN)/.runtime
	@rm -rf build/lib build/lib.* build/bdist.* dist/*.whl
	@KLAMM_KERNEL=required $(BIN)/python -c '$(BUILD)' | tail -n 1
	@KLAMM_KERNEL=none $(BIN)/python -c '$(BUILD)' | tail -n 1

lock: $(BIN)/.dev
	@for name in build runtime dev spark bench; do uv pip compile -q --universal --python-version 3.11 --generate-hashes \
		--no-header --no-annotate requirements/$$name.in -o requirements/$$name.txt; done

clean:
	@rm -rf $(VENV) build dist bench/bin bench/out .mypy_cache .ruff_cache .pytest_cache .hypothesis src/*.egg-info src/klamm/records/_native/*.so
