"""``kubectl numa aligned`` and the formats of all verbs, on pods that real kubelets run and real agents publish."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.live.conftest import Agents, wait_until_published
from tests.waiting import eventually

from topomend.cli.kubectl_numa import numa
from topomend.kube.client import Client, connect
from topomend.kube.resources import PODS
from topomend.runtime.manifests import documents
from topomend.sandbox import Sandbox

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[3]
DOCUMENT = ROOT / "docs" / "reference.md"

BURSTABLE_WITH_GPU = {"limits": {"vendor.com/gpu": "1", "memory": "64Mi"}}
RUNNING: Mapping[str, tuple[str, list[dict[str, Any]]]] = {
    "across": ("wide", [{"limits": {"cpu": "10", "memory": "20Gi"}}]),
    "floats": ("split", [BURSTABLE_WITH_GPU]),
    "pinned": (
        "split",
        [
            {"limits": {"cpu": "2", "memory": "64Mi", "vendor.com/gpu": "1"}},
            {"limits": {"cpu": "500m", "memory": "64Mi"}},
        ],
    ),
    "unpinned": ("wide", [{}]),
}
"""Each pod's node, and the resources of its containers c0 and c1."""


@pytest.fixture(scope="module")
def published(cluster: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """The shared cluster with RUNNING on it, all published."""
    with ExitStack() as stack:
        client = Agents(stack, tmp_path_factory.mktemp("agents")).start(cluster)
        wait_until_published(cluster)
        for name, (node, resources) in RUNNING.items():
            created = client.create(PODS, manifest(name, node, resources), "default")
            stack.callback(remove, client, name, created["metadata"]["uid"])
        everywhere = [f"pod/{name}" for name in RUNNING]
        eventually("the pods to be published", lambda: "unknown" not in alignments(cluster, *everywhere), 90)
        yield cluster


def manifest(name: str, node: str, resources: list[dict[str, Any]]) -> dict[str, Any]:
    containers = [
        {"name": f"c{index}", "image": "x:1", "resources": amounts} for index, amounts in enumerate(resources)
    ]
    spec = {"nodeName": node, "terminationGracePeriodSeconds": 0, "containers": containers}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def remove(client: Client, name: str, uid: str) -> None:
    client.delete(PODS, name, "default", uid=uid)
    eventually(f"{name} to be gone", lambda: name not in [pod["metadata"]["name"] for pod in client.list(PODS).items])


def ask(cluster: Sandbox, *arguments: str) -> Result:
    return CliRunner().invoke(numa, [*arguments, "--kubeconfig", str(cluster.kubeconfig)])


def alignments(cluster: Sandbox, *pods: str) -> list[str]:
    """The alignments of all containers; unknown as long as not all of them run."""
    result = ask(cluster, "aligned", *pods, "-o", "json")
    if result.exit_code not in (0, 1):
        return ["unknown"]
    answers = [container["alignment"] for container in json.loads(result.stdout)["containers"]]
    return answers if len(answers) == sum(len(containers) for _, containers in RUNNING.values()) else ["unknown"]


def test_every_running_container_has_a_line_with_its_alignment_and_the_reason(published: Sandbox) -> None:
    lines = [re.split(r" {3,}", line) for line in ask(published, "aligned").stdout.splitlines()]
    assert lines[0] == ["POD", "CONTAINER", "NODE", "ALIGNMENT", "DISTANCE", "CPU", "MEMORY", "DEVICES", "REASON"]
    rows = {(pod, container): rest for pod, container, *rest in lines[1:]}
    near = rows["pinned", "c0"][3]
    assert rows == {
        ("across", "c0"): ["wide", "socket", "12", "0-1", "0-1", "-", "-"],
        ("floats", "c0"): ["split", "floating", "12", "shared", "any", rows["floats", "c0"][5], "NotGuaranteed"],
        ("pinned", "c0"): ["split", "numa-node", "10", near, near, f"vendor.com/gpu@{near}", "-"],
        ("pinned", "c1"): ["split", "floating", "12", "shared", rows["pinned", "c1"][4], "-", "FractionalCPU"],
        ("unpinned", "c0"): ["wide", "unpinned", "-", "shared", "any", "-", "NotGuaranteed"],
    }


def test_a_pod_is_aligned_or_not_by_exit_code_and_its_reasons_are_sentences(published: Sandbox) -> None:
    unpinned = ask(published, "aligned", "pod/unpinned")
    assert unpinned.exit_code == 1
    assert unpinned.stdout.splitlines()[-1] == (
        "unpinned/c0: the pod is BestEffort, not Guaranteed: container c0 has no cpu and no memory limit"
    )
    assert ask(published, "aligned", "pod/pinned").exit_code == 1
    result = ask(published, "aligned", "pod/pinned", "-o", "json")
    first, second = json.loads(result.stdout)["containers"]
    assert (first["alignment"], first["notPinned"]) == ("numa-node", [])
    assert [why["message"] for why in second["notPinned"]] == [
        "container c1 asks for 500m CPUs, and only whole CPUs are exclusive"
    ]


def test_containers_are_counted_by_owner_and_by_node(published: Sandbox) -> None:
    by_node = json.loads(ask(published, "aligned", "--by", "node", "-o", "json").stdout)["nodes"]
    assert {node["name"]: (node["containers"], node["distance"]) for node in by_node} == {
        "split": (3, 12),
        "wide": (2, 12),
    }
    by_owner = json.loads(ask(published, "aligned", "--by", "owner", "-o", "json").stdout)["owners"]
    counts = {owner["name"]: {key: count for key, count in owner["byAlignment"].items() if count} for owner in by_owner}
    assert counts == {
        "across": {"socket": 1},
        "floats": {"floating": 1},
        "pinned": {"numa-node": 1, "floating": 1},
        "unpinned": {"unpinned": 1},
    }
    assert ask(published, "aligned", "--by", "owner", "-o", "name").stdout.splitlines() == [
        "pod/across",
        "pod/floats",
        "pod/pinned",
        "pod/unpinned",
    ]


def test_containers_are_selected_by_node_and_label(published: Sandbox) -> None:
    assert ask(published, "aligned", "--node", "wide", "-o", "name").stdout == "pod/across\npod/unpinned\n"
    nobody = ask(published, "aligned", "-l", "app=none")
    assert (nobody.stdout, nobody.stderr) == ("", "No matching container runs in namespace default.\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("aligned", "pinnde"), "no pod pinnde in default: did you mean pinned?"),
        (("explain", "pod/flaots"), "no pod flaots in default: did you mean pod/floats?"),
        (("aligned", "-n", "defalt"), "no namespace defalt: did you mean default?"),
        (("aligned", "--node", "splt"), "no node splt: did you mean split?"),
        (("explain", "pod/pinned", "--node", "splt"), "no node splt: did you mean split?"),
        (("show", "splt"), "no NodeTopology is called splt: did you mean split?"),
        (("export", "splt"), "no node splt: did you mean split?"),
        (("algined",), "no command algined: did you mean aligned?"),
        (("relaunches", "-n", "defalt"), "no namespace defalt: did you mean default?"),
        (("explain", "job/x"), "no job x in default; name another namespace with -n"),
    ],
)
def test_a_mistyped_name_gets_the_nearest_one(published: Sandbox, arguments: tuple[str, ...], words: str) -> None:
    result = CliRunner().invoke(numa, list(arguments), env={"KUBECONFIG": str(published.kubeconfig)})
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"Error: {words}\n")


VERBS = {
    "show": [],
    "explain": ["pod/pinned"],
    "fit": ["-f", "{file}"],
    "relaunches": [],
    "check": ["--skip", "TM1"],
    "aligned": [],
    "export": [],
}


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "pod.json"
    path.write_text(json.dumps(manifest("p", "", [{"limits": {"cpu": "1", "memory": "64Mi"}}])))
    return str(path)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_answers_in_every_format_with_the_fields_that_are_documented(
    published: Sandbox, file: str, verb: str
) -> None:
    arguments = [verb, *(argument.format(file=file) for argument in VERBS[verb])]
    for output in ("json", "yaml", "name", *(() if verb == "export" else ("table", "wide"))):
        result = ask(published, *arguments, "-o", output)
        assert (result.exit_code, result.stderr) == (0, ""), (output, result.output)
        if output == "name":
            assert all(re.fullmatch(r"[a-z.0-9]+/[a-z0-9.-]+", line) for line in result.stdout.splitlines())
        if output == "json":
            assert_documented(verb, json.loads(result.stdout))
        if output == "yaml":
            assert documents(result.stdout)


def assert_documented(verb: str, document: dict[str, Any]) -> None:
    """Assert that docs/reference.md names every field of an answer that is no Kubernetes object."""
    if document.get("kind") == "List":
        return
    section = DOCUMENT.read_text().split(f"\n### {verb}\n")[1].split("\n### ")[0]
    undocumented = [field for field in fields(document) if f"`{field}`" not in section]
    assert not undocumented, f"{verb}: {undocumented}"


def fields(content: Any, path: str = "") -> Iterator[str]:
    """The paths of a document's fields, such as ``containers[].owner.kind``; free names are left out."""
    if isinstance(content, list):
        for item in content:
            yield from fields(item, f"{path}[]")
    elif isinstance(content, dict):
        for key, value in content.items():
            where = f"{path}.{key}" if path else key
            yield where
            if key not in ("byAlignment", "byNUMANodes"):
                yield from fields(value, where)


def test_a_watch_prints_the_rows_that_change(published: Sandbox) -> None:
    # A shell's background job ignores interrupts, and so would all that it starts.
    heeding = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    command = [sys.executable, "-c", f"{heeding}; from topomend.cli.kubectl_numa import main; main()"]
    environment = {**os.environ, "KUBECONFIG": str(published.kubeconfig), "PYTHONPATH": str(ROOT / "operator")}
    with ExitStack() as stack:
        process = subprocess.Popen([*command, "aligned", "--watch"], env=environment, stdout=subprocess.PIPE, text=True)
        stack.enter_context(process)
        stack.callback(process.kill)
        lines: list[str] = []
        threading.Thread(target=collect, args=(process, lines), daemon=True).start()
        eventually("the containers that run already", lambda: any(line.startswith("unpinned") for line in lines), 90)
        client = stack.enter_context(closing(connect(str(published.kubeconfig))))
        created = client.create(PODS, manifest("later", "pods", [{}]), "default")
        stack.callback(remove, client, "later", created["metadata"]["uid"])
        row = eventually("a row about the new pod", lambda: next((line for line in lines if "later" in line), None), 90)
        assert row.split()[:4] == ["later", "c0", "pods", "unpinned"]
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    assert sum(line.startswith("unpinned") for line in lines) == 1


def collect(process: subprocess.Popen[str], lines: list[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line)


def test_kubectl_completes_the_plugins_verbs_and_the_clusters_names(published: Sandbox) -> None:
    programs = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "KUBECONFIG": str(published.kubeconfig)}

    def completed(*words: str) -> list[str]:
        kubectl = published.kubectl_prefix()[:2]  # kubectl completes plugins only if nothing stands before __complete
        command = [*kubectl, "__complete", "numa", *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return [line.split("\t")[0] for line in done.stdout.splitlines()]

    assert completed("al") == ["aligned", ":4"]
    assert completed("show", "sp") == ["split", ":4"]
    assert completed("aligned", "pod/pi") == ["pod/pinned", ":4"]
    assert completed("aligned", "-n", "kube-sys") == ["kube-system", ":4"]
    assert completed("aligned", "--by", "o") == ["owner", ":4"]
    assert completed("fit", "-f", "") == [":0"]
