# make demo      everything in one run: cluster, producers, consumers, Spark (see README)
# make test      linters, types, import rules, and the quicker tests of everything
# make test-long the rest of what CI runs: clusters that come and go, kills, pages as printed, Kafka's programs
# make test-deep what both leave out: the same in more settings, programs of others at length
# make pages     README.md and every page of docs/ with commands, followed word by word in one home
# make simulate  a replicated cluster in virtual time under faults (SEEDS=20000: forty minutes on two cores)
# make mutants   lines of the core made wrong one at a time: what notices it (an hour and a half on two cores)
# make groups-soak   ten minutes of consumer groups under faults (SECONDS=60: one)
# make crash     brokers under kill -9 and worse, and what it cost (docs/reliability.md)
# make wheel     the wheels that are taken to other machines, in wheels/: plain, and with its hottest modules
#                as machine code for this Python and processor; make test-compiled tries that one
# make wheel-test   that wheel alone, in a new environment of Python 3.11, 3.12 and 3.13
# make deploy-test  ray up on three machines that are one (docs/deploy/README.md)
# make test-fast linters' friends only: floors 0 and 1, no Ray, no Spark, under a minute

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Ray and Spark processes read compiled modules from here even where byte code is switched off.
export PYTHONPYCACHEPREFIX ?= $(CURDIR)/.cache/pycache
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-long test-fast test-compiled test-deep pages check dev generate compatibility groups-soak simulate mutants crash wheel wheel-test deploy-test java clean

demo: $(VENV)/.demo java
	$(BIN)/bradbury demo $(ARGS)
	@echo "To go on: . $(BIN)/activate; then bradbury up --detach (README.md)"

# A process for each core: a test that brings up a cluster keeps several busy. JOBS=0 runs them in one.
JOBS ?= $(shell cores=$$(nproc); [ $$cores -gt 8 ] && echo 8 || echo $$cores)
test: $(VENV)/.test java check
	$(BIN)/python -m pytest -n $(JOBS) --dist loadscope --no-loadscope-reorder

test-fast: $(VENV)/.test
	$(BIN)/python -m pytest -n $(JOBS) --dist loadscope --no-loadscope-reorder \
		-m "not slow and not thorough and not ray and not spark and not long and not deep" \
		tests/protocol tests/storage tests/groups tests/cluster tests/handlers tests/test_house_rules.py

# Whole clusters that come and go, kills, every page followed as printed: CI runs it after make test.
test-long: $(VENV)/.test java
	$(BIN)/python -m pytest -n $(JOBS) --dist loadscope --no-loadscope-reorder -m "long and not deep"

# What both leave out: the same in other settings (tokens, seeds), programs of others at length.
test-deep: $(VENV)/.test java
	$(BIN)/python -m pytest -n $(JOBS) --dist loadscope --no-loadscope-reorder -m deep

# Every page as it is printed, one after the other, in the order in which somebody would read them.
pages: $(VENV)/.test java
	$(BIN)/python -m pytest -n 0 -m "" tests/docs/test_pages.py

check: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

dev: $(VENV)/.test

generate: $(VENV)/.test
	$(BIN)/python -m bradbury.protocol.message_generator
	$(BIN)/python -m bradbury.handlers.configs.config_document
	$(BIN)/python -m bradbury.handlers.server.access_document

# Every foreign client, tool and program that is there, the deep tests too, against live clusters; then
# the table of it.
compatibility: $(VENV)/.test java
	rm -f .cache/compatibility.json
	$(BIN)/python -m pytest -m "" tests/compatibility --durations 0 --durations-min 1 \
		--deselect tests/compatibility/test_table.py; ran=$$?; \
	$(BIN)/python -m bradbury.tests.compatibility.support.compatibility && \
	$(BIN)/python -m pytest -m "" tests/compatibility/test_table.py && exit $$ran

# Groups of every client under joins, leaves, kills and dying coordinators, and what a checker finds.
# A failing run says where it keeps its history.
SECONDS ?= 600
groups-soak: $(VENV)/.test java
	$(BIN)/python -m bradbury.tests.groups_soak.run --seconds $(SECONDS) $(ARGS)

# Brokers of a cluster of three nodes are killed, stopped, robbed of their disks, and what a checker
# finds. `make crash SECONDS=60 NEMESES=B1,B6` runs two of them for a minute each; --json in ARGS. Those
# called T have chains of transactions.
NEMESES ?= B0,B1,B2,B2-broker,B4,B5,B6,B6-stop,B7,B7-memory,B8,B9,B10,B12,T0,T1,T2,T3,T6,T8
crash: $(VENV)/.test
	$(BIN)/python -m bradbury.tests.crash.run --seconds $(SECONDS) --nemeses $(NEMESES) $(ARGS)

# What is taken to other machines (docs/deploy/README.md), from empty build folders: setuptools would put into
# a wheel what it finds there. The second one has the tag of what it needs (auditwheel), so that pip takes it
# where it runs, and the plain one elsewhere.
wheel: $(VENV)/.build
	rm -rf build wheels
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir wheels .
	rm -rf build
	@if command -v cc > /dev/null; then \
		echo "The wheel with its hottest modules as machine code: some two minutes"; \
		BRADBURY_COMPILED=1 $(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation \
			--wheel-dir build/wheel . && \
		PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m auditwheel repair --wheel-dir wheels build/wheel/*.whl \
			> build/auditwheel.log 2>&1 || { cat build/auditwheel.log; exit 1; }; \
	else \
		echo "No C compiler (cc) is here: only the plain wheel is made, whose brokers take twice the CPU for a" \
			"small request. On Debian and Ubuntu: apt install build-essential python3-dev"; \
	fi

# The fast tests, and those of running nodes, against the compiled modules.
test-compiled: $(VENV)/.test wheel
	rm -rf build/compiled
	$(BIN)/python -m zipfile --extract wheels/bradbury-*linux*.whl build/compiled
	ln -s $(CURDIR)/tests $(CURDIR)/docs build/compiled/bradbury/
	PYTHONPATH=build/compiled $(BIN)/python -m pytest -n $(JOBS) --dist loadscope -o pythonpath=build/compiled \
		-m "not slow and not ray and not spark and not long and not deep" \
		tests/protocol tests/storage tests/groups tests/cluster tests/handlers tests/replication tests/live

# The interpreters that are found here, or PYTHONS="/usr/bin/python3.12 ..."; ARGS=--measure weighs extras.
wheel-test: $(VENV)/.test
	$(BIN)/python -m bradbury.tests.packaging.from_the_wheel $(PYTHONS:%=--python=%) $(ARGS)

# `ray up` on three machines that are one: namespaces, sshd, the steps of docs/deploy. Needs root.
deploy-test: $(VENV)/.test java
	$(BIN)/python -m bradbury.tests.deploy.ray_up $(ARGS)
	$(BIN)/python -m bradbury.tests.deploy.idle_nodes

# Single lines of the pure core are made wrong, and the simulation and fast tests must notice; see
# docs/simulation.md. Goes on where it was interrupted. ARGS='--only "groups/*"', --at path:line, --again.
MUTANTS ?= 150
mutants: $(VENV)/.test
	$(BIN)/python -m bradbury.tests.mutation.run --mutants $(MUTANTS) $(ARGS)

# The whole replicated cluster under a virtual clock, with faults; see docs/simulation.md. Totals of
# all runs are kept in .cache/simulation.json. ARGS="--seed 17" shows one, "--faults 300" the score.
SEEDS ?= 2000
simulate: $(VENV)/.test
	$(BIN)/python -m bradbury.tests.simulation.run --seeds $(SEEDS) $(ARGS)

# Spark needs a JDK 17 or 21. Installed only where that can be done without asking.
java:
	@sh pipelines/ensure_java.sh

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

# mypy and import-linter follow a link, not an editable install's import hook.
.path/bradbury:
	mkdir -p .path
	ln -sfn .. .path/bradbury
	ln -sfn ../pipelines/pyspark_bradbury .path/pyspark_bradbury

# An environment that somebody has made by hand has the pip of its Python, which may not know --group.
PIP_WITH_GROUPS := "pip>=25.1"

# pip says what it does: a gigabyte of Ray, Spark and Arrow takes minutes the first time.
# The link is as new as the folder that it points at: after a build it seemed newer than the environment.
$(VENV)/.demo: $(VENV)/bin/python pyproject.toml | .path/bradbury
	@echo "Installing Bradbury, Ray and Spark into $(VENV)"
	$(BIN)/python -m pip install -e ".[spark,demo]"
	@touch $@

$(VENV)/.test: $(VENV)/bin/python pyproject.toml | .path/bradbury
	@echo "Installing Bradbury, Ray, Spark and what the tests need into $(VENV)"
	@$(BIN)/python -m pip install --quiet --upgrade $(PIP_WITH_GROUPS)
	$(BIN)/python -m pip install -e ".[spark,demo,test]" --group build
	@touch $@ $(VENV)/.demo $(VENV)/.build

$(VENV)/.build: $(VENV)/bin/python pyproject.toml | .path/bradbury
	@echo "Installing what builds the wheel into $(VENV)"
	@$(BIN)/python -m pip install --quiet --upgrade $(PIP_WITH_GROUPS)
	$(BIN)/python -m pip install -e . --group build
	@touch $@

clean:
	rm -rf $(VENV) .path .cache build *.egg-info
