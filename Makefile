# Everything runs in a virtual environment of its own (.venv), built from requirements/dev.lock.
# Needed beforehand: Python 3.11 or newer with venv, git, a C library. Go comes from the machine or from a wheel.

PYTHON ?= python3
BIN := .venv/bin
CASES ?= 30000
VERSION ?= v1.36.3
PODS ?= 2000
KILLS ?= 200
MINUTES ?= 10
IMAGE_OPTIONS = $(if $(TAG),--tag=$(TAG)) $(if $(BASE),--base=$(BASE)) $(if $(SOURCE),--source=$(SOURCE)) $(if $(ENGINE),--engine=$(ENGINE))

.PHONY: demo test check format image image-twice bench operator-cost agent-cost agent-life oracle contended live soak vm-test e2e mutants generate lock clean help

help: ## Say what there is
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

demo: .venv/ready ## Watch a refused pod get relaunched, on a sandbox
	@$(BIN)/topomend demo

test: .venv/ready ## Run every test
	@$(BIN)/pytest

check: .venv/ready ## Style, types, and which room imports which
	@test ! -e operator/__init__.py || { echo "operator/__init__.py must not exist: it would hide Python's own operator module"; exit 1; }
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: .venv/ready ## Format, and mend what can be mended
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

image: ## Build the image with docker, podman or buildah: TAG, BASE (its base, by digest) and FLAGS (the engine's) are yours
	@$(PYTHON) deploy/image/build.py $(IMAGE_OPTIONS) -- $(FLAGS)

image-twice: ## Build the image anew twice: both must be the same, byte for byte
	@$(PYTHON) deploy/image/build.py --twice $(IMAGE_OPTIONS) -- $(FLAGS)

bench: .venv/ready ## Compare with the kubelet's own code, side by side
	@$(BIN)/python -m tests.bench

operator-cost: .venv/ready ## What the operator costs on 5,000 nodes with 150,000 pods (needs 24 GiB of memory)
	@$(BIN)/python -m tests.bench.operator_cost

agent-cost: .venv/ready ## What an agent costs a node with 110 pods, over MINUTES, beside its kubelet
	@$(BIN)/python -m tests.bench.agent_cost --minutes $(MINUTES) --metrics --state

agent-life: .venv/ready ## Start and end PODS random pods: what agents publish is what their kubelets hold
	@TOPOMEND_LIFE_PODS=$(PODS) $(BIN)/pytest -s tests/agent/test_life.py

oracle: .venv/ready ## Compare CASES random cases with the managers of kubelet VERSION; the report is build/oracle-report.txt
	@$(BIN)/python -m tests.oracle.compare --cases $(CASES) --version $(VERSION)

contended: .venv/ready ## Random arrivals under the plain scheduler, under topomend, and at best; and how long pods are held
	@$(BIN)/python -m tests.contended
	@$(BIN)/python -m tests.contended.hold

live: .venv/ready ## Put PODS random pods on real kubelets of every kind
	@TOPOMEND_LIVE_PODS=$(PODS) $(BIN)/pytest -s --timeout 7200 tests/live

vm-test: .venv/ready ## Run the image in a NUMA machine that QEMU emulates: what containers get, and devices that change
	@$(BIN)/pytest -s --timeout 3600 tests/vm/containers_on_qemu.py tests/vm/on_qemu.py

e2e: .venv/ready ## Build the image and run it as deploy/ says, on real kubelets with containerd and runc (as root)
	@$(BIN)/python -m tests.e2e
	@$(BIN)/pytest -s --timeout 1800 -o python_files='e2e_*.py' tests/e2e

soak: .venv/ready ## Kill the operator KILLS times while pods are refused and relaunched: none lost, none doubled
	@$(BIN)/python -m tests.soak --kills $(KILLS)

mutants: .venv/ready ## Break each rule of the replay in turn: the tests must notice
	@$(BIN)/python -m tests.mutants

generate: .venv/ready ## Make the generated files anew (gRPC stubs, deploy/install.yaml)
	@$(BIN)/python -m grpc_tools.protoc --proto_path=operator --plugin=protoc-gen-mypy=$(BIN)/protoc-gen-mypy \
	  --python_out=operator --mypy_out=operator operator/topomend/discover/podresources.proto
	@$(BIN)/python -m grpc_tools.protoc --proto_path=operator \
	  --plugin=protoc-gen-mypy=$(BIN)/protoc-gen-mypy --plugin=protoc-gen-mypy_grpc=$(BIN)/protoc-gen-mypy_grpc \
	  --python_out=operator --grpc_python_out=operator --mypy_out=operator --mypy_grpc_out=operator \
	  operator/topomend/sandbox/deviceplugin.proto
	@$(BIN)/python -m tests.deploy.manifests > deploy/install.yaml

lock: .venv/ready ## Pin the dependencies anew
	@$(BIN)/python -m pip install --quiet uv
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate --upgrade pyproject.toml --extra sandbox --group dev --output-file requirements/dev.lock
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate --constraint requirements/dev.lock pyproject.toml --output-file requirements/runtime.lock
	@printf 'cyclonedx-bom\ndebsbom\nhatchling\n' | $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate --constraint requirements/dev.lock - --output-file requirements/build.lock

clean: ## Remove what was made here
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist

.venv/ready: requirements/dev.lock pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) is missing: install Python 3.11 or newer, or say PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: $$($(PYTHON) --version) is too old: topomend needs Python 3.11 or newer; say PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -m venv .venv || { echo "make: $(PYTHON) cannot make a virtual environment: install its venv module (Debian: python3-venv)"; exit 1; }
	@echo "Installing the pinned packages into .venv"
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements/dev.lock
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@
