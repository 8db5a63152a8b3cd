"""The trials of an environment. Each returns a cell of the table, or raises Unavailable with what went wrong."""

import json
import re
import sys
from pathlib import Path

from deploy.manifests import ROOT
from tools.commands import Unavailable, run
from verify.packages.environment import Environment

COLUMNS = ("PYTHON", "PACKAGES", "HELP", "SIMULATE", "DISCOVER", "TYPES", "TESTS", "SECONDS")

LIST_COMMANDS = """
import json, click
from topomend.cli.kubectl_numa import numa
from topomend.cli.main import main

def walk(command, path):
    yield path
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path[-1])
        for name in command.list_commands(context):
            yield from walk(command.get_command(context, name), [*path, name])

print(json.dumps([*walk(main, ["topomend"]), *walk(numa, ["kubectl-numa"])]))
"""
"""A program that imports every command, and prints the words of each."""

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "tried"},
    "spec": {
        "containers": [{"name": "main", "image": "x", "resources": {"limits": {"cpu": "3", "memory": "64Mi"}}}],
    },
}
SIMULATION = (
    "--node=numa:2 cores:4 memory:4Gi",
    "--cpu-manager-policy=static",
    "--topology-manager-policy=single-numa-node",
    "--reserved-cpus=0",
)

TYPED_PROGRAM = """
from topomend.library import admit, node, pod

manifest = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main"}]}}
verdict, after = admit(node("numa:2 cores:4"), pod(manifest))
reveal_type(verdict.admitted)
"""

LIBRARY_PROGRAM = """
from topomend.library import admit, explain, node, pod, release

empty = node("numa:2 cores:4")
asked = pod({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main"}]}})
verdict, after = admit(empty, asked)
assert verdict.admitted and explain(empty, asked) == "node admits p" and release(after, asked) == empty
"""

CONFIGURATION = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}

NAMED_EXTRAS = (("operator", "topomend", "agent"), ("plugin", "kubectl-numa", "show"), ("sandbox", "topomend", "demo"))
"""A command of each extra."""

CORE = {"topomend", "click", "pyyaml"}
"""What is installed without any extra."""

QUICK_TESTS = (
    "agent/test_metrics.py",
    "cli",
    "controller",
    "discover/pod_resources/test_grpc_unix.py",
    "discover/test_kubelet_settings.py",
    "discover/pod_resources/test_pod_resources.py",
    "gating",
    "kube/test_agent_client.py",
    "kube/test_client.py",
    "kube/connection/test_kubeconfig.py",
    "kube/test_kubelet_client.py",
    "kube/connection/test_tls.py",
    "kube/connection/test_transport.py",
    "publish/test_pod_fingerprint.py",
    "publish/test_publisher.py",
    "runtime/test_event_recorder.py",
    "runtime/test_leader_election.py",
    "runtime/test_log.py",
    "wire",
)
"""The tests that run each time: of modules that use other packages, as far as they are quick. In processor time they
take half a minute."""

ALL_SECONDS = 7200.0


def try_out(environment: Environment, *, every_test: bool) -> tuple[str, ...]:
    """The cells between COLUMNS' first two and its last. Raises Unavailable."""
    return (
        _help(environment),
        _simulate(environment),
        _discover(environment),
        check_types(environment.program("python"), environment.folder),
        _unit_tests(environment, every_test=every_test),
    )


def try_core(environment: Environment) -> tuple[str, ...]:
    """The same of an environment without extras: what is there works, what is not is named. Raises Unavailable."""
    if (found := environment.installed()) != CORE:
        raise Unavailable(f"installed are {', '.join(sorted(found))}")
    for extra, program, command in NAMED_EXTRAS:
        text = _failure(environment, program, command)
        if "ended with 2: Error: " not in text or not text.endswith(f"pip install 'topomend[{extra}]'"):
            raise Unavailable(f"{program} {command} does not name its extra: {text}")
    environment.run("python", "-c", LIBRARY_PROGRAM)
    configuration = environment.folder / "kubelet.json"
    configuration.write_text(json.dumps(CONFIGURATION))
    for arguments in (("--help",), ("machines",), ("lint", str(configuration), "--machine=numa:2 cores:4")):
        environment.run("topomend", *arguments)
    types = check_types(environment.program("python"), environment.folder)
    return f"{len(NAMED_EXTRAS)} extras", _simulate(environment), "-", types, "-"


def _failure(environment: Environment, program: str, *arguments: str) -> str:
    """What a program says that fails; empty if it does not."""
    try:
        environment.run(program, *arguments)
    except Unavailable as error:
        return str(error)
    return ""


def _help(environment: Environment) -> str:
    """Every command prints its help, by the programs that the wheel installs."""
    commands = json.loads(environment.run("python", "-c", LIST_COMMANDS))
    for program, *words in commands:
        text = environment.run(program, *words, "--help")
        if "Usage: " not in text:
            raise Unavailable(f"{program} {' '.join(words)} --help prints no usage: {text[:200]}")
    return f"{len(commands)} commands"


def _simulate(environment: Environment) -> str:
    pods = environment.folder / "pods.json"
    pods.write_text(json.dumps(POD))
    text = environment.run("topomend", "simulate", *SIMULATION, f"--pods={pods}")
    if not re.search(r"^default/tried\s+main\s+yes\s+[01]\s", text, re.MULTILINE):
        raise Unavailable(f"simulate says something else: {text}")
    return "yes"


def _discover(environment: Environment) -> str:
    topology = json.loads(environment.run("topomend", "discover", "-o", "json"))
    if topology["kind"] != "NodeTopology":
        raise Unavailable(f"discover prints a {topology['kind']}")
    return "yes"


def check_types(python: str, folder: Path) -> str:
    """mypy knows the types of the package that is installed for ``python`` (PEP 561). Raises Unavailable."""
    program = folder / "typed_program.py"
    program.write_text(TYPED_PROGRAM)
    options = ("--strict", "--no-incremental", f"--python-executable={python}", "--follow-imports=silent")
    text = run(sys.executable, "-m", "mypy", *options, str(program), folder=folder, MYPYPATH="", PYTHONPATH="")
    if '"bool"' not in text:
        raise Unavailable(f"mypy finds no types: {text}")
    return "yes"


def _unit_tests(environment: Environment, *, every_test: bool) -> str:
    """The unit tests of this clone on the installed package: its code is not on their path."""
    places = ("tests",) if every_test else tuple(f"tests/{name}" for name in QUICK_TESTS)
    options = ("-q", "--override-ini=pythonpath=.", "-p", "no:cacheprovider", "-m", "not cluster")
    parallel = ("--numprocesses=2", "--dist=loadgroup")
    command = (environment.program("python"), "-P", "-m", "pytest", *options, *parallel, *places)
    text = run(*command, folder=ROOT, seconds=ALL_SECONDS, PYTHONPATH="")
    passed = re.search(r"(\d+) passed", text)
    if passed is None:
        raise Unavailable(f"no test ran: {text[-300:]}")
    return f"{passed[1]} passed"
