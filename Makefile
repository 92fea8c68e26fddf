# The commands of this repository; CI calls only these. `make help` lists them.
.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:

# The system's own one first, where it can make environments: Debian and its like compile it with profiles, which pyenv
# leaves out unless it is told to, and the tests take an eighth less of a processor.
PYTHON ?= $(shell for each in /usr/bin/python3.11 python3.11 python3; do \
	$$each -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && \
	command -v $$each && exit; \
	done; command -v python3.11 || echo python3)
PORT ?= 8900
URL ?= http://127.0.0.1:$(PORT)
ARGS ?=
# Tests run in this many forks of one process, more than there are cores since many wait; 0 is in that process itself.
JOBS ?= 6
# Bytecode is kept whatever the environment says: an installation has none before its first use, and some two hundred
# processes of the tests import the same sources.
export PYTHONDONTWRITEBYTECODE =

VENV := .venv
FRAMEWORKS := .venv-frameworks
AUDIT := .venv-audit
# Frameworks whose packages do not agree with those of the others: folders with a packages.txt and tests of their own.
APART := $(patsubst tests/frameworks/%/packages.txt,%,$(wildcard tests/frameworks/*/packages.txt))
ENGINES := .venv-engines
FUZZ := .venv-fuzz
DEPLOYMENT := .venv-deployment
# Where `make deployment` makes roots to run the Dockerfile in.
ROOTS ?= $(DEPLOYMENT)/roots
# Seconds for each target of `make fuzz`.
SECONDS ?= 60
# Where the CPU build of torch is, if pip's own index has none.
TORCH_INDEX := https://download.pytorch.org/whl/cpu
BIN := $(VENV)/bin
# Not $(MAKE) in the recipe itself: with --dry-run make would run all of that line.
LINT = $(MAKE) --no-print-directory lint
DEPENDS := pyproject.toml setup.py constraints.txt service/offpolicy_monitor/_version.py
SOURCES := service tests scripts migrations setup.py

.PHONY: help run demo test lint docs dashboards screenshots format bench bench-check scale diagnosis detection chaos conformance engines frameworks fuzz frameworks-together build deployment lock audit clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

run: $(VENV)/.installed-run ## install, migrate, start the service on 127.0.0.1:8900 and the demo trainer; Ctrl-C ends both
	@OFFPOLICY_PORT=$(PORT) $(BIN)/python scripts/launch.py $(ARGS)

demo: $(VENV)/.installed-run ## the demo trainer alone, against a running service (URL=..., ARGS=--forever)
	@$(BIN)/offpolicy-monitor demo --url $(URL) $(ARGS)

test: $(VENV)/.installed-dev ## lint and all tests (ARGS="-k name" chooses some)
	@scripts/system-tools.sh $(VENV)/system-tools.log
	@$(if $(ARGS),,$(BIN)/python -m tests.ahead >/dev/null 2>&1 & ahead=$$!;) \
		$(LINT) || { $(if $(ARGS),,kill $$ahead 2>/dev/null;) exit 1; }
	@$(BIN)/python -m pytest --processes $(JOBS) $(ARGS)

lint: $(VENV)/.installed-dev ## formatting, ruff, types, import contracts, Dockerfile, licences
	@$(BIN)/ruff check --quiet $(SOURCES)
	@$(BIN)/ruff format --check --quiet $(SOURCES)
	@$(BIN)/pyrefly check --summary=none
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/hadolint Dockerfile
	@$(BIN)/python -m scripts.licences

docs: $(VENV)/.installed-dev ## rewrite the generated parts of docs/ and the Prometheus rules
	@$(BIN)/python -m scripts.docs
	@$(BIN)/python -m scripts.prometheus

dashboards: $(VENV)/.installed-dev ## rewrite the Grafana dashboards from scripts/dashboards
	@$(BIN)/python -m scripts.dashboards

screenshots: $(VENV)/.installed-dev ## take the pictures of README and docs, of a real run with a planted fault (needs Chromium)
	@$(BIN)/python -m scripts.screenshots

format: $(VENV)/.installed-dev ## rewrite the sources in the one format
	@$(BIN)/ruff check --quiet --fix $(SOURCES)
	@$(BIN)/ruff format $(SOURCES)

bench: $(VENV)/.installed-dev ## measure the speed of the service and of the core
	@$(BIN)/python -m tests.benchmarks $(ARGS)

bench-check: bench ## measure, and fail where a ratio is more than 20 % worse than the committed figures
	@$(BIN)/python -m tests.benchmarks.check

scale: $(VENV)/.installed-dev ## fill databases as months would, 5 GB each, and measure them (ARGS="--runs 20 --long 10000", ARGS="--database sqlite")
	@$(BIN)/python -m tests.benchmarks.large $(ARGS)

diagnosis: $(VENV)/.installed-dev ## plant known bugs in generated batches and count what is named (ARGS="--sizes small", ARGS=--write)
	@$(BIN)/python -m tests.diagnosis.confusion $(ARGS)

detection: $(VENV)/.installed-dev ## play scenarios and healthy runs, count steps to alerts and false alarms (ARGS="--seeds 2", ARGS=--write)
	@$(BIN)/python -m tests.detection $(ARGS)

chaos: $(VENV)/.installed-dev ## faults under load, and an audit of what was acknowledged (QUICK=1, ARGS="-k name", ARGS=--write)
	@$(BIN)/python -m tests.chaos $(if $(QUICK),--quick) $(ARGS)

conformance: $(VENV)/.installed-run ## check a running service against the conformance vectors (URL=...)
	@$(BIN)/python tests/conformance/vectors/check.py --url $(URL) $(ARGS)

frameworks: frameworks-together $(APART:%=frameworks-%) ## run the adapters against the real frameworks, in environments of their own (ARGS="-k name")

# Of $(1), an environment, and $(2), its tests. That ARGS choose none of them is no failure (5).
run-frameworks = PYTHONPATH=service $(1)/bin/python -m pytest -W default --confcutdir tests/frameworks $(2) $(ARGS) $(if $(ARGS),|| [ $$? = 5 ])

frameworks-together: $(FRAMEWORKS)/.installed $(VENV)/.installed-run
	@$(call run-frameworks,$(FRAMEWORKS),$(wildcard tests/frameworks/test_*.py))

$(APART:%=frameworks-%): frameworks-%: $(FRAMEWORKS)/apart/%/.installed
	@$(call run-frameworks,$(<D),tests/frameworks/$*)

engines: $(ENGINES)/.installed $(VENV)/.installed-dev ## let a real vLLM and CTranslate2 sample for the demo, with planted faults (ARGS="-k vllm", ARGS=--write)
	@$(BIN)/python -m tests.engines $(ARGS)

fuzz: $(FUZZ)/.installed ## let atheris and schemathesis look for input that is read wrong; findings go to tests/fuzz/corpus (SECONDS=60 per target, ARGS="json api")
	@PYTHONPATH=service:. $(FUZZ)/bin/python -m tests.fuzz --seconds $(SECONDS) $(ARGS)

build: $(VENV)/.installed-dev ## sdist and wheel in dist/
	@rm -rf build dist
	@PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt $(BIN)/python -m build >/dev/null
	@ls dist

# As root with debootstrap the commands run as they stand, else in a folder.
deployment: $(DEPLOYMENT)/.installed $(VENV)/.installed-dev ## check deploy/ by the schemas of who reads it, and run the Dockerfile's commands (as root in clean roots, by debootstrap)
	@$(BIN)/python -m scripts.deployment $(DEPLOYMENT)/bin/python
	@$(BIN)/python -m scripts.dockerfile $$([ "$$(id -u)" != 0 ] || ! command -v debootstrap >/dev/null || echo "--root $(ROOTS)") $(ARGS)

lock: $(VENV)/.installed-run ## rewrite constraints.txt from what the extras resolve to, and deploy/locks (ARGS=cuda, ARGS=engines)
	@$(BIN)/python scripts/lock.py $(ARGS)

audit: $(AUDIT)/.installed ## look up known vulnerabilities of all locked versions, and fail where they cannot be looked up
	@$(AUDIT)/bin/python scripts/audit.py $(AUDIT)/bin/pip-audit

clean: ## remove everything that make has made, the demo's database included
	rm -rf $(VENV) $(FRAMEWORKS) $(ENGINES) $(FUZZ) $(AUDIT) $(DEPLOYMENT) .data build dist .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	rm -rf service/*.egg-info
	find service tests scripts -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/.installed-run: $(DEPENDS)
	@$(PYTHON) scripts/install.py .installed-run server postgres

$(VENV)/.installed-dev: $(DEPENDS)
	@$(PYTHON) scripts/install.py .installed-dev server postgres ray dev
	@touch $(VENV)/.installed-run

$(AUDIT)/.installed: Makefile
	@$(PYTHON) -m venv --clear $(AUDIT)
	@$(AUDIT)/bin/python -m pip install --quiet --disable-pip-version-check 'pip-audit>=2.7'
	@touch $@

$(DEPLOYMENT)/.installed: scripts/deployment/packages.txt
	@$(PYTHON) -m venv --clear $(DEPLOYMENT)
	@$(DEPLOYMENT)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

$(FRAMEWORKS)/.installed: tests/frameworks/packages.txt tests/frameworks/frameworks.txt constraints.txt
	@echo "Installing into $(FRAMEWORKS): 1 to 5 minutes"
	@$(PYTHON) -m venv --clear $(FRAMEWORKS)
	@$(FRAMEWORKS)/bin/python -m pip install --quiet -c constraints.txt -r tests/frameworks/packages.txt
	@DS_BUILD_OPS=0 $(FRAMEWORKS)/bin/python -m pip install --quiet --no-deps --no-build-isolation -r tests/frameworks/frameworks.txt
	@touch $@

# What such a folder names comes before the packages of the others, and everything else from them.
$(FRAMEWORKS)/apart/%/.installed: tests/frameworks/%/packages.txt $(FRAMEWORKS)/.installed
	@echo "Installing into $(@D)"
	@$(FRAMEWORKS)/bin/python -m venv --clear $(@D)
	@site="import sysconfig; print(sysconfig.get_path('purelib'))"; \
	$(FRAMEWORKS)/bin/python -c "$$site" >"$$($(@D)/bin/python -c "$$site")/together.pth"
	@$(@D)/bin/python -m pip install --quiet --no-deps -r $<
	@touch $@

# Beside the packages of .venv, which it finds there.
$(FUZZ)/.installed: tests/fuzz/packages.txt $(VENV)/.installed-dev
	@echo "Installing into $(FUZZ)"
	@$(VENV)/bin/python -m venv --clear $(FUZZ)
	@site="import sysconfig; print(sysconfig.get_path('purelib'))"; \
	$(VENV)/bin/python -c "$$site" >"$$($(FUZZ)/bin/python -c "$$site")/shared.pth"
	@$(FUZZ)/bin/python -m pip install --quiet --no-deps -r $<
	@ln -sf ../../$(VENV)/bin/offpolicy-monitor $(FUZZ)/bin/offpolicy-monitor
	@touch $@

$(ENGINES)/.installed: tests/engines/lock.txt
	@echo "Installing into $(ENGINES), 3.4 GB: 1 to 10 minutes"
	@$(PYTHON) -m venv --clear $(ENGINES)
	@torch=$$(grep '^torch==' $<); pip="$(ENGINES)/bin/python -m pip install --quiet --no-deps"; \
	$$pip "$$torch" 2>/dev/null || $$pip --index-url $(TORCH_INDEX) "$$torch"
	@$(ENGINES)/bin/python -m pip install --quiet --no-deps -r $<
	@touch $@
