# Every target does the set-up it needs; a second run finds it done. ARGS="..." goes to the command of the target.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo test test-fast coverage smoke versions check bench soak docs reproduce format clean setup setup-python

BIN := .venv/bin
WITH_JAVA := source .venv/java.env;

# Spark listens on the loopback interface, and its workers run the interpreter that has Penstock.
export SPARK_LOCAL_IP := 127.0.0.1
export PYSPARK_PYTHON := $(CURDIR)/.venv/bin/python

help:  ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: setup  ## A Spark query that keeps its memory under bursts, compared with Spark's own join
	@$(WITH_JAVA) $(BIN)/penstock demo $(ARGS)

# Most kernels are compiled by the first of these parts, whose workers then end: code that is loaded stays in memory.
KERNELS := tests/joins tests/compiler tests/engine tests/structures tests/linked tests/policies
COMPILED := PENSTOCK_TIER=compiled $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder \
	--max-worker-restart 0 --durations=50
# Python's coverage does not see into compiled kernels, but into interpreted ones.
INTERPRETED := PENSTOCK_TIER=interpreted $(BIN)/python -m pytest -q -n 2 -m "interpreted and not soak" \
	--cov --cov-report= tests

# The JVMs of the tests live for seconds to minutes: optimizing their code costs more than it gains, and classes come
# from an archive, which halves the CPU time of a short Spark program.
CLASSES := .venv/spark.jsa
ARCHIVE := [ $(CLASSES) -nt .venv/.installed ] || \
	$(BIN)/python tools/archive_classes.py $(CLASSES) >.venv/spark.log 2>&1 || cat .venv/spark.log;
test test-fast: export SPARK_SUBMIT_OPTS := -XX:TieredStopAtLevel=1 -XX:+UseSerialGC \
	-XX:SharedArchiveFile=$(CURDIR)/$(CLASSES) -Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off

test: setup  ## The test suite, then its small part once more with every kernel interpreted
# In order of collection, the long files of Spark are followed by many short ones, which balances the workers.
# A worker that crashes ends the run: the rest of its file would be waited for.
# All kernels are compiled at first, and interpreted in the second pass; users have both in turn (test_tiers.py).
# Every part runs, whatever became of those before.
ifeq ($(ARGS),)
	@$(WITH_JAVA) $(ARCHIVE) failed=0; \
		$(COMPILED) $(KERNELS) || failed=1; \
		$(COMPILED) $(addprefix --ignore=,$(KERNELS)) tests src/penstock || failed=1; \
		$(INTERPRETED) || failed=1; \
		echo 'Lines of each package that the interpreted pass reaches:'; $(BIN)/python tools/coverage_totals.py; \
		exit $$failed
else
	@$(WITH_JAVA) $(ARCHIVE) $(COMPILED) $(ARGS)
endif

test-fast: setup  ## The tests in process, and one of Spark per operator
	@$(WITH_JAVA) $(ARCHIVE) $(BIN)/python -m pytest -q -n 2 --dist loadfile -m "not soak and not slow" $(ARGS)

# As above: the small tests run once more for the lines of kernels.
COVERAGE := $(BIN)/python -m pytest -q -n 2 --dist loadfile --durations=0 --durations-min=30 --cov --cov-report=

coverage: setup  ## The tests in process but for Spark's, and the lines they reach, per package
	@$(WITH_JAVA) failed=0; \
		PENSTOCK_TIER=compiled $(COVERAGE) -m "not soak and not slow and not spark" \
			--ignore=tests/spark --ignore=tests/test_docs.py tests $(ARGS) || failed=1; \
		PENSTOCK_TIER=interpreted $(COVERAGE) --cov-append -m "interpreted and not soak" tests $(ARGS) || failed=1; \
		$(BIN)/python tools/coverage_totals.py; \
		exit $$failed

smoke: setup  ## Every operator once, from a wheel in a fresh environment outside the repository
	@tools/smoke.sh

versions: setup  ## Every operator once with other versions of the dependencies: ARGS=oldest or ARGS=newest
	@tools/versions.sh $(ARGS)

check: setup-python  ## Lint, format, types, direction of imports
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

bench: setup  ## Benchmarks; results also as JSON under benchmarks/out/
	@$(WITH_JAVA) $(BIN)/python -m benchmarks $(ARGS)

soak: setup  ## The long versions of the stress, fuzz and kill tests
	@$(WITH_JAVA) $(BIN)/python -m pytest -m soak --timeout 0 $(ARGS)

docs: export NO_MKDOCS_2_WARNING := 1
docs: setup  ## The documentation as a site under build/site/: pages, API reference, executed notebooks; links are checked
	@$(WITH_JAVA) $(BIN)/mkdocs build --strict $(ARGS)

reproduce: setup  ## The experiments of the papers, and a report under reproduction/
	@$(WITH_JAVA) $(BIN)/penstock reproduce all $(ARGS)

format: setup-python  ## Format the code, fix what the linter can fix, and write the README's table of policies
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .
	@$(BIN)/python tools/policy_table.py

clean:  ## Remove caches and outputs (the .venv stays)
	@rm -rf build dist benchmarks/out artifacts spark-warehouse metastore_db derby.log \
		.coverage* .hypothesis .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	@find . -path ./.venv -prune -o -path ./.git -prune -o -type d -name __pycache__ -prune -exec rm -rf {} +

setup:
	@tools/setup.sh

setup-python:
	@tools/setup.sh --no-java
