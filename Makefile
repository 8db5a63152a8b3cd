# Everything runs in a virtual environment (.venv) with the packages of requirements/dev.lock.
# Needed: Python 3.11 or newer with venv, git, a C library. Go comes from the machine or from a wheel.

PYTHON ?= python3
BIN := .venv/bin
CASES ?= 30000
VERSION ?= v1.37.2
PODS ?= 2000
KILLS ?= 200
MINUTES ?= 10
PROCESSES ?= 2
HUGE ?= 100
WORKLOADS ?= 5000
RELEASES ?= v1.30.14 v1.31.13 v1.32.6 v1.33.5 v1.34.4 v1.35.5 v1.36.3 v1.37.2
RECORDS ?= 10000
PUBLICATIONS ?= 60
GATED ?= 20000
IMAGE_OPTIONS = $(if $(TAG),--tag=$(TAG)) $(if $(BASE),--base=$(BASE)) $(if $(SOURCE),--source=$(SOURCE)) $(if $(ENGINE),--engine=$(ENGINE))

.PHONY: demo test check format image image-twice audit bench operator-cost agent-cost agent-life oracle nearest differential autoscaler contended live attacks soak versions upgrade-test vm-test e2e mutants generate lock clean help

help: ## List the targets
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

demo: .venv/ready ## Show in a sandbox how a refused pod is relaunched
	@$(BIN)/topomend demo

test: .venv/ready ## Run all tests, in PROCESSES processes
	@$(BIN)/pytest --numprocesses $(PROCESSES) --dist loadgroup

check: .venv/ready ## Check style, types and imports between rooms
	@test ! -e operator/__init__.py || { echo "operator/__init__.py must not exist: it would hide Python's own operator module"; exit 1; }
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: .venv/ready ## Format the code, and fix what ruff can fix
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

image: ## Build the image with docker, podman or buildah; optional: TAG, BASE, SOURCE, ENGINE, FLAGS (of the engine)
	@$(PYTHON) -m deploy.image.build $(IMAGE_OPTIONS) -- $(FLAGS)

image-twice: ## Build the image twice without a cache, and compare the two byte for byte
	@$(PYTHON) -m deploy.image.build --twice $(IMAGE_OPTIONS) -- $(FLAGS)

audit: .venv/ready ## Look the locked packages up in the OSV database; DATABASE names a copy of it, to work offline
	@$(BIN)/python -m verify.audit $(if $(DATABASE),--database=$(DATABASE))

bench: .venv/ready ## Measure replay beside the kubelet's own code
	@$(BIN)/python -m verify.bench

operator-cost: .venv/ready ## Measure the operator on 5,000 nodes with 150,000 pods (needs 24 GiB of memory)
	@$(BIN)/python -m verify.bench.operator_cost

agent-cost: .venv/ready ## Measure the agent beside its kubelet on a node with 110 pods, for MINUTES
	@$(BIN)/python -m verify.bench.agent_cost --minutes $(MINUTES) --metrics --state

agent-life: .venv/ready ## Start and end PODS random pods, and compare NodeTopologies with what the kubelets allocated
	@TOPOMEND_LIFE_PODS=$(PODS) $(BIN)/pytest -s tests/agent/test_life.py

oracle: .venv/ready ## Compare replay with the managers of kubelet VERSION on CASES random cases; writes build/oracle-report.txt
	@$(BIN)/python -m verify.oracle --cases $(CASES) --version $(VERSION)

nearest: .venv/ready ## Check the nearest amounts that would be admitted, for CASES random refused pods
	@$(BIN)/python -m verify.nearest --cases $(CASES)

differential: .venv/ready ## Run WORKLOADS random workloads on a real cluster, plain and steered: none may fare worse
	@$(BIN)/python -m verify.differential --cases $(WORKLOADS)

autoscaler: .venv/ready ## Try Karpenter beside pods that wait gated (as root; builds Karpenter's kwok provider once)
	@$(BIN)/python -m verify.autoscaler

contended: .venv/ready ## Compare waiting times under the plain scheduler, under topomend and at best; measure how long pods stay gated
	@$(BIN)/python -m verify.contended
	@$(BIN)/python -m verify.contended.hold

live: .venv/ready ## Run PODS random pods on real kubelets of every kind
	@TOPOMEND_LIVE_PODS=$(PODS) $(BIN)/pytest -s --timeout 7200 tests/live

versions: .venv/ready ## Try the promises on clusters of each of RELEASES, which are built first: 5 minutes each
	@$(BIN)/python -m verify.versions $(RELEASES)

vm-test: .venv/ready ## Run the image on a NUMA machine emulated by QEMU: compare containers with their NodeTopology, change devices
	@$(BIN)/pytest -s --timeout 3600 verify/vm/containers_on_qemu.py verify/vm/on_qemu.py

e2e: .venv/ready ## Build the image, install it from deploy/ and use it on real kubelets with containerd and runc (as root)
	@$(BIN)/python -m verify.e2e
	@$(BIN)/pytest -s --timeout 1800 -o python_files='e2e_*.py' verify/e2e

upgrade-test: .venv/ready ## Upgrade a cluster from an earlier commit, operators first and agents first, while pods wait (as root)
	@$(BIN)/python -m verify.e2e
	@$(BIN)/pytest -s --timeout 1800 verify/e2e/upgrade_on_containers.py

attacks: .venv/ready ## Run the operator in its memory limit beside HUGE huge and GATED gated pods, RECORDS records, PUBLICATIONS huge publications (as root)
	@HUGE=$(HUGE) RECORDS=$(RECORDS) PUBLICATIONS=$(PUBLICATIONS) GATED=$(GATED) RELIST=30 $(BIN)/pytest -s --timeout 3600 tests/attacks/test_memory.py

soak: .venv/ready ## Kill the operator KILLS times while it relaunches pods: no pod may be lost or doubled
	@$(BIN)/python -m verify.soak --kills $(KILLS)

mutants: .venv/ready ## Break each rule of replay in turn: the tests must fail each time
	@$(BIN)/python -m verify.mutants

generate: .venv/ready ## Regenerate gRPC stubs and deploy/install.yaml
	@$(BIN)/python -m grpc_tools.protoc --proto_path=operator --plugin=protoc-gen-mypy=$(BIN)/protoc-gen-mypy \
	  --python_out=operator --mypy_out=operator operator/topomend/discover/podresources.proto
	@$(BIN)/python -m grpc_tools.protoc --proto_path=operator \
	  --plugin=protoc-gen-mypy=$(BIN)/protoc-gen-mypy --plugin=protoc-gen-mypy_grpc=$(BIN)/protoc-gen-mypy_grpc \
	  --python_out=operator --grpc_python_out=operator --mypy_out=operator --mypy_grpc_out=operator \
	  operator/topomend/sandbox/deviceplugin.proto operator/topomend/sandbox/dra.proto \
	  operator/topomend/sandbox/pluginregistration.proto
	@$(BIN)/python -m deploy.manifests > deploy/install.yaml

lock: .venv/ready ## Update and pin the dependencies
	@$(BIN)/python -m pip install --quiet uv
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate --upgrade pyproject.toml --extra sandbox --group dev --output-file requirements/dev.lock
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate --constraint requirements/dev.lock pyproject.toml --output-file requirements/runtime.lock
	@printf 'cyclonedx-bom\ndebsbom\nhatchling\n' | $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate --constraint requirements/dev.lock - --output-file requirements/build.lock

clean: ## Remove everything that make created
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist

.venv/ready: requirements/dev.lock pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) is missing: install Python 3.11 or newer, or set PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: $$($(PYTHON) --version) is too old: topomend needs Python 3.11 or newer; set PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -m venv .venv || { echo "make: $(PYTHON) cannot make a virtual environment: install its venv module (Debian: python3-venv)"; exit 1; }
	@echo "Installing the pinned packages into .venv"
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements/dev.lock
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@
