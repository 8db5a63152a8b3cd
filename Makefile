# Everything runs in a virtual environment (.venv) with the packages of requirements/dev.lock.
# Needed: Python 3.11 or newer with venv, git, a C library. Go comes from the machine or from a wheel.

PYTHON ?= python3
BIN := .venv/bin
CASES ?= 30000
NEWEST := v1.37.2
VERSION ?= $(NEWEST)
KUBERNETES ?= $(NEWEST)
PODS ?= 2000
KILLS ?= 200
MINUTES ?= 10
PROCESSES ?= 5
HUGE ?= 100
WORKLOADS ?= 5000
CLUSTERS ?= 1000
RELEASES ?= v1.30.14 v1.31.13 v1.32.6 v1.33.5 v1.34.4 v1.35.5 v1.36.3 v1.37.2
RECORDS ?= 10000
PUBLICATIONS ?= 60
GATED ?= 20000
# Layouts, IPv6 and leftovers do not depend on the release: an older one runs the story alone.
E2E = verify/e2e$(if $(filter $(NEWEST),$(KUBERNETES)),,/e2e_story.py)
# Each file has a cluster of its own, and waits for it most of the time. With LANES, figures are printed at the end.
E2E_OUTPUT = $(if $(LANES),--numprocesses $(LANES) --dist loadfile --no-loadscope-reorder --max-worker-restart 0 -rP,-s)
IMAGE_OPTIONS = $(if $(TAG),--tag=$(TAG)) $(if $(BASE),--base=$(BASE)) $(if $(SOURCE),--source=$(SOURCE)) $(if $(ENGINE),--engine=$(ENGINE))

.PHONY: demo test check format image image-twice release release-key release-test audit bench operator-cost check-cost make-room what-if dra make-room-cost defragment-cost campaign-cost pictures fragmentation full-nodes let-go agent-cost agent-life oracle fit-oracle restore-oracle config-oracle config-oracle-start config-oracle-live upstream nearest differential preemption-differential autoscaler kueue contended pool pool-live live attacks soak versions packages verify upgrade-test vm-test e2e mutants kubelet-tests generate lock clean help

help: ## List the targets
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

demo: .venv/ready ## Show in a sandbox how a refused pod is relaunched
	@$(BIN)/topomend demo

# The tests start the programs hundreds of times: where no bytecode may be written, each start compiles them.
# API servers take most of the CPU time, a fifth of theirs to collect garbage: with GOGC=300 a third as often.
# A process that dies ends the run: pytest-xdist 3.8 would hang once it has replaced it (its issue 1378).
test: .venv/ready ## Run all tests but those of the night, in PROCESSES processes
	@env -u PYTHONDONTWRITEBYTECODE GOGC=300 $(BIN)/pytest -m "not night" --numprocesses $(PROCESSES) --dist loadgroup --no-loadscope-reorder --max-worker-restart 0 --durations 20 $(if $(TOPOMEND_SEED),--hypothesis-seed=$(TOPOMEND_SEED))

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

release: .venv/ready ## Make a release of this commit in build/release: images, chart, packages, plugin; needs SOURCE (a URL), KEY (cosign's); optional: BASE, ENGINE, FLAGS
	@$(BIN)/python -m deploy.release --source="$(SOURCE)" --key="$(KEY)" $(if $(BASE),--base=$(BASE)) $(if $(ENGINE),--engine=$(ENGINE)) -- $(FLAGS)

release-key: .venv/ready ## Make a key that signs releases, cosign.key, and its public key; cosign asks for a password
	@$(BIN)/python -m deploy.release.signature

audit: .venv/ready ## Look the locked packages up in the OSV database; DATABASE names a copy of it, to work offline
	@$(BIN)/python -m verify.audit $(if $(DATABASE),--database=$(DATABASE))

bench: .venv/ready ## Measure replay beside the kubelet's own code
	@$(BIN)/python -m verify.bench

operator-cost: .venv/ready ## Measure the operator on 5,000 nodes with 150,000 pods (needs 24 GiB of memory)
	@$(BIN)/python -m verify.bench.operator_cost

check-cost: .venv/ready ## Measure how long kubectl numa check takes on 100 and on 1,000 nodes
	@$(BIN)/python -m verify.bench.check_cost

make-room: .venv/ready ## Compare the advice of make-room with every set of pods, and carry it out on real kubelets
	@$(BIN)/python -m verify.room

what-if: .venv/ready ## Switch real kubelets to other policies 200 times, and compare what they refuse with what-if
	@$(BIN)/python -m verify.what_if

dra: .venv/ready ## Run 1,000 random pods with claims on real kubelets, and compare their told alignment with kubelets and claims
	@$(BIN)/python -m verify.dra

make-room-cost: .venv/ready ## Measure how long kubectl numa make-room takes on 1,000 nodes
	@$(BIN)/python -m verify.bench.make_room_cost

defragment-cost: .venv/ready ## Measure how long kubectl numa defragment takes on 1,000 nodes
	@$(BIN)/python -m verify.bench.defragment_cost

campaign-cost: .venv/ready ## Measure how long the search for moves on 1,000 nodes delays the operator's other work
	@$(BIN)/python -m verify.bench.campaign_cost

pictures: .venv/ready ## Look at every picture in Chromium, light and dark: axe, requests, keyboard, sizes; screenshots in build/pictures
	@$(BIN)/python -m verify.pictures

fragmentation: .venv/ready ## Compare the fragmentation of 200 random clusters with the share of probe pods that kubelets refuse
	@$(BIN)/python -m verify.fragmentation

full-nodes: .venv/ready ## Measure how fast pods are let go where 300 of 400 nodes are full by totals
	@$(BIN)/python -m verify.bench.full_nodes

let-go: .venv/ready ## Measure how many pods a second can be let go on 100, 1,000 and 5,000 nodes, and where the time goes
	@$(BIN)/python -m verify.bench.let_go

agent-cost: .venv/ready ## Measure the agent beside its kubelet on a node with 110 pods, for MINUTES
	@$(BIN)/python -m verify.bench.agent_cost --minutes $(MINUTES) --metrics --state

agent-life: .venv/ready ## Start and end PODS random pods, and compare NodeTopologies with what the kubelets allocated
	@TOPOMEND_LIFE_PODS=$(PODS) $(BIN)/pytest -s tests/agent/test_life.py

oracle: .venv/ready ## Compare replay with the managers of kubelet VERSION on CASES random cases; writes build/oracle-report.txt
	@$(BIN)/python -m verify.oracle --cases $(CASES) --version $(VERSION)

fit-oracle: .venv/ready ## Compare replay with the whole admission of kubelet VERSION, its fit check included, on CASES random cases
	@$(BIN)/python -m verify.oracle --fit --cases $(CASES) --version $(VERSION) --report build/fit-oracle-report.txt

restore-oracle: .venv/ready ## Compare what replay says of state files with the managers of kubelet VERSION on CASES random cases
	@$(BIN)/python -m verify.oracle.restoring --cases $(CASES) --version $(VERSION)

config-oracle: .venv/ready ## Compare what is read from CASES random configurations with the loader of kubelet VERSION
	@$(BIN)/python -m verify.config_oracle --cases $(CASES) --version $(VERSION)

config-oracle-start: .venv/ready ## Ask kubelet VERSION of CASES random configurations whether it starts, and compare with replay
	@$(BIN)/python -m verify.config_oracle.start --cases $(CASES) --version $(VERSION)

config-oracle-live: .venv/ready ## Start a real kubelet VERSION with CASES random configurations, and compare with replay
	@$(BIN)/python -m verify.config_oracle.live --cases $(CASES) --version $(VERSION)

kubelet-tests: .venv/ready ## Run the own unit tests of kubelet VERSION, with replay in the place of the functions that decide
	@$(BIN)/python -m verify.kubelet_tests --version $(VERSION)

upstream: .venv/ready ## List the files of Kubernetes that rules name and that changed since FROM; optional: FROM, TO (releases)
	@$(BIN)/python -m verify.upstream $(or $(FROM),$(NEWEST)) $(TO)

nearest: .venv/ready ## Check the explanations of CASES random refused pods: causes, remedies, nearest amounts
	@$(BIN)/python -m verify.nearest --cases $(CASES)

differential: .venv/ready ## Run WORKLOADS random workloads on a real cluster, plain and steered: none may fare worse
	@$(BIN)/python -m verify.differential --cases $(WORKLOADS)

preemption-differential: .venv/ready ## Fill CLUSTERS random clusters on a real control plane, plain and steered: no more victims, none in vain
	@$(BIN)/python -m verify.preemption --clusters $(CLUSTERS)

autoscaler: .venv/ready ## Try Karpenter beside pods that wait gated (as root; builds Karpenter's kwok provider once)
	@$(BIN)/python -m verify.autoscaler

kueue: .venv/ready ## Run 200 Jobs through a real Kueue onto real kubelets: alone, beside topomend, with the check numa-fit (builds Kueue once)
	@$(BIN)/python -m verify.kueue

contended: .venv/ready ## Compare waiting times under the plain scheduler, under topomend and at best; measure how long pods stay gated
	@$(BIN)/python -m verify.contended
	@$(BIN)/python -m verify.contended.hold

pool: .venv/ready ## Compare one pool for pods of 1 to 8 GPUs with two fleets, with other schedulers and with the bound, in virtual time
	@$(BIN)/python -m verify.pool

pool-live: .venv/ready ## The same on eight real kubelets, with time that passes faster: an hour
	@$(BIN)/python -m verify.pool.live

live: .venv/ready ## Run PODS random pods on real kubelets of every kind
	@TOPOMEND_LIVE_PODS=$(PODS) $(BIN)/pytest -s --timeout 7200 tests/live

versions: .venv/ready ## Try the promises on each of RELEASES, as installed (as root) and in sandboxes: 8 minutes each, and a build
	@$(BIN)/python -m verify.versions $(RELEASES)

packages: .venv/ready ## Try the wheel with the lowest and the newest allowed packages and Pythons; ALL=1: in all combinations, with all unit tests
	@$(BIN)/python -m verify.packages $(if $(ALL),--all)

verify: .venv/ready ## Run all that takes too long for each change, a night long; PARTS names some of it
	@$(BIN)/python -m verify.night $(PARTS)

vm-test: .venv/ready ## Run the image on a NUMA machine emulated by QEMU: compare containers with their NodeTopology, change devices
	@$(BIN)/pytest -s --timeout 3600 verify/vm/containers_on_qemu.py verify/vm/on_qemu.py

e2e: .venv/ready ## Build the image, install it from deploy/ on release KUBERNETES, with containerd and runc, and use it (as root); optional: LANES (clusters at a time)
	@$(BIN)/python -m verify.e2e $(KUBERNETES)
	@TOPOMEND_KUBERNETES=$(KUBERNETES) $(BIN)/pytest $(E2E_OUTPUT) --timeout 1800 -o python_files='e2e_*.py' $(E2E)

upgrade-test: .venv/ready ## Upgrade a cluster from an earlier commit, operators first and agents first, while pods wait (as root)
	@$(BIN)/python -m verify.e2e
	@$(BIN)/pytest -s --timeout 1800 verify/e2e/upgrade_on_containers.py

release-test: .venv/ready ## Make a release twice, install the plugin by krew where no Python is, run the arm64 image's tests in QEMU (as root)
	@$(BIN)/python -m verify.release

attacks: .venv/ready ## Run the operator in its memory limit beside HUGE huge and GATED gated pods, RECORDS records, PUBLICATIONS huge publications (as root)
	@HUGE=$(HUGE) RECORDS=$(RECORDS) PUBLICATIONS=$(PUBLICATIONS) GATED=$(GATED) RELIST=30 $(BIN)/pytest -s --timeout 3600 tests/attacks/test_memory.py

soak: .venv/ready ## Kill the operator KILLS times while it relaunches pods: no pod may be lost or doubled
	@$(BIN)/python -m verify.soak --kills $(KILLS)

mutants: .venv/ready ## Break each rule of replay in turn: the tests must fail; optional: ONLY (a file), EACH, PART (2/20), LIMIT (minutes)
	@$(BIN)/python -m verify.mutants $(if $(ONLY),--only=$(ONLY)) $(if $(EACH),--each=$(EACH)) $(if $(PART),--part=$(PART)) $(if $(LIMIT),--minutes=$(LIMIT))

generate: .venv/ready ## Write the version where files have it; regenerate gRPC stubs, alerts and board, manifests, schemas, the chart, the reference and its pictures
	@$(BIN)/python -m grpc_tools.protoc --proto_path=operator --plugin=protoc-gen-mypy=$(BIN)/protoc-gen-mypy \
	  --python_out=operator --mypy_out=operator operator/topomend/discover/podresources.proto
	@$(BIN)/python -m grpc_tools.protoc --proto_path=operator \
	  --plugin=protoc-gen-mypy=$(BIN)/protoc-gen-mypy --plugin=protoc-gen-mypy_grpc=$(BIN)/protoc-gen-mypy_grpc \
	  --python_out=operator --grpc_python_out=operator --mypy_out=operator --mypy_grpc_out=operator \
	  operator/topomend/sandbox/devices/deviceplugin.proto operator/topomend/sandbox/devices/dra.proto \
	  operator/topomend/sandbox/devices/pluginregistration.proto
	@$(BIN)/python -m deploy.release.version
	@$(BIN)/python -m deploy.watch
	@$(BIN)/python -m deploy.manifests > deploy/install.yaml
	@$(BIN)/python -m deploy.editor_schemas
	@$(BIN)/python -m deploy.helm
	@$(BIN)/python -m verify.reference > docs/reference.md
	@$(BIN)/python -m verify.reference.alerts > docs/reference/alerts.md
	@$(BIN)/python -m verify.reference.checks > docs/reference/checks.md
	@$(BIN)/python -m verify.reference.machines > docs/reference/machines.md
	@$(BIN)/python -m verify.pictures.examples docs/pictures

lock: .venv/ready ## Update and pin the dependencies
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate --upgrade pyproject.toml --all-extras --group dev --output-file requirements/dev.lock
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate --constraint requirements/dev.lock pyproject.toml --extra operator --output-file requirements/runtime.lock
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate --constraint requirements/dev.lock pyproject.toml --output-file requirements/core.lock
	@mkdir -p build
	@awk '/^[^ ]/ { skipped = /^cryptography==/ } !skipped' requirements/dev.lock > build/plugin-constraints.txt
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.14 --generate-hashes --no-emit-index-url --no-header --no-annotate --constraint build/plugin-constraints.txt requirements/plugin.in --output-file requirements/plugin.lock
	@$(BIN)/python -m deploy.release.kubectl_plugin.plugin
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
