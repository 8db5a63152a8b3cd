"""What the action runs: ``topomend simulate`` for each file of pods, with its answers in the log and the job's summary.

Owns how inputs become flags: each is one word of a command, and none is read by a shell. Exits with 1 where a pod is
refused, with 2 for bad input.
"""

import html
import os
import secrets
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

FLAGS = (
    "node",
    "node-name",
    "kubelet-config",
    "kubelet-config-dir",
    "kubelet-version",
    "topology-manager-policy",
    "topology-manager-scope",
    "topology-manager-options",
    "cpu-manager-policy",
    "cpu-manager-options",
    "memory-manager-policy",
    "reserved-cpus",
    "reserved-memory",
)
"""The inputs that are flags of ``topomend simulate``; the remaining one is ``pods``."""


def variable(name: str) -> str:
    """The environment variable in which the action hands an input over."""
    return f"TOPOMEND_{name.replace('-', '_').upper()}"


def commands(environment: Mapping[str, str]) -> dict[str, list[str]]:
    """The arguments of ``topomend`` for each file of pods. An input that is empty was not given."""
    flags = [f"--{name}={text}" for name in FLAGS if (text := environment.get(variable(name), ""))]
    files = [line.strip() for line in environment.get(variable("pods"), "").splitlines()]
    return {file: ["simulate", *flags, f"--pods={file}"] for file in files if file}


def summary(file: str, answer: str, code: int) -> str:
    """The part of the job's summary about one file. Names in it may be anything, so it is text and no Markdown."""
    outcome = {0: "admitted", 1: "refused"}.get(code, "not asked")
    return f"<h3>{html.escape(file)}: {outcome}</h3>\n<pre>\n{html.escape(answer)}</pre>\n\n"


def main() -> int:
    """Ask about every file, and return the worst exit code."""
    asked = commands(os.environ)
    if not asked:
        sys.stderr.write("Error: the input pods names no file\n")
        return 2
    codes = []
    token = secrets.token_hex()
    sys.stdout.write(f"::stop-commands::{token}\n")  # a pod's name must not be read as a command by the runner
    for file, arguments in asked.items():
        done = subprocess.run(
            # Without -P a module of the workspace could take the place of one of Python's.
            [sys.executable, "-P", "-m", "topomend.cli", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        sys.stdout.write(f"{file}\n{done.stdout}")
        with Path(os.environ["GITHUB_STEP_SUMMARY"]).open("a") as page:
            page.write(summary(file, done.stdout, done.returncode))
        codes.append(abs(done.returncode))
    sys.stdout.write(f"::{token}::\n")
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
