"""Somebody else's project, tested with the wheel of ``topomend-sandbox`` as its own CI would.

The project is ``examples/is-my-pod-aligned``, copied to where nothing of this clone is found. Its CI has Kubernetes in
a cache, so it is built before the time is taken. What is timed is an environment, its packages, and the tests.
"""

import re
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

from deploy.manifests import ROOT
from tools.commands import Unavailable, run
from verify.packages.environment import UV, Wheels

from topomend.sandbox.releases.build import ensure_binary

PROJECT = ROOT / "examples" / "is-my-pod-aligned"

WARM_SECONDS = 180.0

NOT_NEEDED = {
    "aiohttp",
    "cryptography",
    "h2",
    "kopf",
    "kubernetes",
    "msgspec",
    "prometheus-client",
    "pyudev",
    "urllib3",
    "xxhash",
}
"""Packages of operator, agent and plugin, which a stranger does not get."""


def try_as_stranger(place: Path, wheels: Wheels, python: str) -> float:
    """The seconds from an empty environment of ``python`` to the end of the tests. Raises Unavailable, SandboxError.

    All is made in the folder ``place``.
    """
    ensure_binary(lambda words: print(words, file=sys.stderr))
    project, environment = place / "project", place / "stranger"
    shutil.copytree(PROJECT, project, ignore=shutil.ignore_patterns("__pycache__", ".pytest_cache"))
    asked = (str(wheels.topomend), f"{wheels.sandbox}[pytest]")
    begun = time.monotonic()
    run(UV, "venv", "--quiet", "--no-config", "--python", python, str(environment))
    interpreter = str(environment / "bin" / "python")
    run(UV, "pip", "install", "--quiet", "--no-config", "--python", interpreter, *asked)
    answer = run(str(environment / "bin" / "pytest"), folder=project, PYTHONPATH="", PYTEST_ADDOPTS="")
    seconds = time.monotonic() - begun
    if not re.search(r"\b2 passed\b", answer):
        raise Unavailable(f"the tests of {PROJECT.name} did not run: {answer[-300:]}")
    _check_packages(interpreter)
    _check_program(environment / "bin" / "topomend-sandbox", place)
    _check_types(interpreter, project)
    return seconds


def _check_packages(interpreter: str) -> None:
    listed = run(UV, "pip", "freeze", "--quiet", "--no-config", "--python", interpreter)
    names = {re.split(r"[=@ ]", line)[0] for line in listed.splitlines()}
    if superfluous := names & NOT_NEEDED:
        raise Unavailable(f"topomend-sandbox brings {', '.join(sorted(superfluous))}, which it does not need")


def _check_program(program: Path, folder: Path) -> None:
    """Up, listed, asked and down, and the one flag that needs more says so."""

    def ask(command: str, *arguments: str) -> str:
        return run(str(program), command, *arguments, folder=folder, PYTHONPATH="")

    named, shape = "--name=stranger", "--machine=numa:4 cores:4"
    try:
        _expect_extra(lambda: ask("up", named, shape, "--topomend"))
        ask("up", named, shape)
        if "stranger" not in ask("list", "-o", "name").split():
            raise Unavailable("topomend-sandbox list does not have the sandbox that it brought up")
        ask("status", named)
        if (nodes := ask("kubectl", named, "--", "get", "nodes", "-o", "name")) != "node/node-1\n":
            raise Unavailable(f"topomend-sandbox kubectl says something else: {nodes}")
    finally:
        ask("down", named)


def _expect_extra(up: Callable[[], str]) -> None:
    try:
        up()
    except Unavailable as error:
        if "pip install 'topomend[operator]'" in str(error):
            return
        raise
    raise Unavailable("topomend-sandbox up --topomend works without the packages of operator and agent")


def _check_types(interpreter: str, project: Path) -> None:
    """mypy knows the types of all that the tests use (PEP 561)."""
    options = ("--strict", "--no-incremental", f"--python-executable={interpreter}", "--follow-imports=silent")
    run(sys.executable, "-m", "mypy", *options, "tests", folder=project, MYPYPATH="", PYTHONPATH="")
