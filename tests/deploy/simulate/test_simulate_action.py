"""The action for CI fails where a kubelet would refuse a pod, and says why in the job's summary.

Its steps run as a runner runs them: their script in bash, their inputs in the environment, where no shell reads them.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from deploy.manifests import ROOT
from deploy.simulate.ask import FLAGS, commands, summary, variable
from tests.builders import pod_manifest

from topomend.cli.simulate.simulate import simulate

FOLDER = ROOT / "deploy" / "simulate"
ACTION = yaml.safe_load((FOLDER / "action.yml").read_text())
INSTALL, ASK = ACTION["runs"]["steps"]
BASH = shutil.which("bash") or ""
ALIGNING = {
    "node": "numa:2 cores:4 memory:8Gi",
    "topology-manager-policy": "single-numa-node",
    "cpu-manager-policy": "static",
    "reserved-cpus": "0",
}


@pytest.fixture
def runner(tmp_path: Path) -> Path:
    """The folder of a runner that has done the first step: the packages of this interpreter are there."""
    python = tmp_path / "topomend" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return tmp_path


def files(folder: Path, **pods: str) -> str:
    """Files of one pod each, by name, as the input names them."""
    for name, containers in pods.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(pod_manifest(name, containers)))
    return "\n".join(f"{name}.yaml" for name in pods)


def step(content: dict[str, Any], runner: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    """Run a step in the runner's folder as GitHub's runner does."""
    script = runner / "script.sh"
    script.write_text(content["run"])
    variables = {
        name: re.sub(r"\$\{\{ inputs\.([a-z-]+) \}\}", lambda found: inputs.get(found[1], ""), text)
        for name, text in content.get("env", {}).items()
    }
    ours = {"GITHUB_ACTION_PATH": str(FOLDER), "GITHUB_STEP_SUMMARY": str(runner / "summary.md")}
    assert content["shell"] == "bash"
    return subprocess.run(
        [BASH, "--noprofile", "--norc", "-eo", "pipefail", str(script)],
        cwd=runner,
        env={"PATH": os.environ["PATH"], "RUNNER_TEMP": str(runner)} | ours | variables,
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_input_reaches_the_command_by_the_environment_and_no_script_has_one() -> None:
    assert ACTION["runs"]["using"] == "composite"
    assert {variable(name): f"${{{{ inputs.{name} }}}}" for name in (*FLAGS, "pods")} == ASK["env"]
    assert ACTION["inputs"].keys() == {*FLAGS, "pods"}
    assert [each["run"] for each in (INSTALL, ASK) if "${{" in each["run"]] == []
    assert {name for name, given in ACTION["inputs"].items() if given.get("required")} == {"node", "pods"}


def test_the_inputs_are_the_flags_of_simulate() -> None:
    options = {option.name.replace("_", "-") for option in simulate.params if option.name}
    assert options - {"output"} == {*FLAGS, "pods"}


def test_a_pod_that_is_admitted_passes(runner: Path) -> None:
    done = step(ASK, runner, **ALIGNING, pods=files(runner, small="cpu=2 memory=1Mi"))
    assert (done.returncode, done.stderr) == (0, "")
    text = (runner / "summary.md").read_text()
    assert text.startswith("<h3>small.yaml: admitted</h3>\n<pre>\nPOD ")


def test_a_pod_that_is_refused_fails_and_the_summary_says_why(runner: Path) -> None:
    pods = files(runner, small="cpu=2 memory=1Mi", large="cpu=5 memory=1Mi", other="cpu=4 memory=1Mi")
    done = step(ASK, runner, **ALIGNING, pods=pods)
    assert done.returncode == 1
    text = (runner / "summary.md").read_text()
    outcomes = re.findall("<h3>(.+)</h3>", text)
    assert outcomes == ["small.yaml: admitted", "large.yaml: refused", "other.yaml: admitted"]
    assert "default/large: container c0: cpu requests 5 and fits no NUMA node" in text
    assert "default/large: would be admitted with 4 CPUs" in done.stdout


def test_bad_input_fails_as_such(runner: Path) -> None:
    done = step(ASK, runner, **ALIGNING, pods="absent.yaml")
    assert done.returncode == 2
    assert "<h3>absent.yaml: not asked</h3>" in (runner / "summary.md").read_text()
    assert "absent.yaml: No such file" in done.stdout
    assert step(ASK, runner, **ALIGNING, pods=" \n").returncode == 2


def test_what_inputs_and_pods_are_called_runs_nothing_and_forges_nothing(runner: Path) -> None:
    name = "$(touch forged); `touch forged` --node=x"
    (runner / f"{name}.yaml").write_text(
        yaml.safe_dump(pod_manifest("p</pre><b>", "cpu=2 memory=1Mi", namespace="::error::no"))
    )
    (runner / "yaml.py").write_text("open('forged', 'w')\n")
    done = step(ASK, runner, **ALIGNING, pods=f"{name}.yaml")
    assert done.returncode == 0, done.stdout
    refused = step(ASK, runner, **ALIGNING | {"reserved-memory": "0:memory=1Mi'; touch forged"}, pods=f"{name}.yaml")
    assert refused.returncode == 2
    assert not (runner / "forged").exists()
    text = (runner / "summary.md").read_text()
    assert text.count("</pre>") == 2
    assert "p&lt;/pre&gt;&lt;b&gt;" in text
    first, *between, last = done.stdout.splitlines()
    token = first.removeprefix("::stop-commands::")
    assert (len(token) >= 32, last) == (True, f"::{token}::")
    assert any(line.startswith("::error::no/") for line in between)


def test_an_input_that_was_not_given_is_no_flag() -> None:
    given = {variable("node"): "numa:2", variable("node-name"): "", variable("pods"): "a.yaml\n\n b.yaml \n"}
    assert commands(given) == {
        "a.yaml": ["simulate", "--node=numa:2", "--pods=a.yaml"],
        "b.yaml": ["simulate", "--node=numa:2", "--pods=b.yaml"],
    }


def test_a_summary_is_text() -> None:
    assert summary("<a>", "x & y\n", 1) == "<h3>&lt;a&gt;: refused</h3>\n<pre>\nx &amp; y\n</pre>\n\n"


def test_the_packages_of_the_action_are_those_of_the_package_alone() -> None:
    pin = re.compile(r"^(\S+==\S+)", re.MULTILINE)
    locks = (ROOT / "requirements" / name for name in ("core.lock", "dev.lock"))
    core, development = ({*pin.findall(lock.read_text())} for lock in locks)
    assert {each.partition("==")[0] for each in core} == {"click", "pyyaml"}
    assert core <= development


@pytest.mark.night  # it asks PyPI
def test_the_first_step_installs_what_the_second_needs(tmp_path: Path) -> None:
    installed = step(INSTALL, tmp_path)
    assert installed.returncode == 0, installed.stderr
    pods = files(tmp_path, small="cpu=2 memory=1Mi", large="cpu=5 memory=1Mi")
    done = step(ASK, tmp_path, **ALIGNING, pods=pods)
    assert (done.returncode, done.stderr) == (1, "")


def test_the_page_has_an_example_that_the_action_takes() -> None:
    page = (ROOT / "docs" / "reference" / "simulate-action.md").read_text()
    (example,) = re.findall(r"```yaml\n(.+?)```", page, re.DOTALL)
    *_, used = yaml.safe_load(example)["jobs"]["numa"]["steps"]
    assert used["uses"] == f"OWNER/topomend/{FOLDER.relative_to(ROOT)}@COMMIT"
    assert ACTION["inputs"].keys() >= used["with"].keys() >= {"node", "pods"}
    assert [name for name in ACTION["inputs"] if f"`{name}`" not in page] == []
