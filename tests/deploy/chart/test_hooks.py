"""What helm runs itself, ``helm test`` and the drain before ``helm uninstall``; its lint; what it tells users."""

import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml
from deploy.helm.chart import CHART
from tests.clusters import ROOT
from tests.deploy.chart.rendered import HELMS, Object, rendered, the
from tests.deploy.chart.test_values import EVERYTHING
from tools.chart.programs import run

from topomend.drain.operators import LABELS
from topomend.kube import kueue, resources
from topomend.kube.resources import Resource
from topomend.model.nodes.kubelet import DEFAULT_VERSION
from topomend.runtime.leader_election import NAME as LEASE

UNKNOWN = 3
"""The exit code of a command that reaches no cluster; that of a wrong flag is 2."""


def hooks(event: str, **values: Any) -> list[Object]:
    """The objects of a hook, in the order of their weights."""
    found = [item for item in rendered(hooks=True, **values) if _annotation(item, "hook") == event]
    return sorted(found, key=lambda item: int(_annotation(item, "hook-weight")))


def _annotation(item: Object, name: str) -> str:
    return str(item["metadata"].get("annotations", {}).get(f"helm.sh/{name}", ""))


PROGRAMS = [("pre-delete", "Job"), ("test", "Pod")]


def pod_of_hook(event: str, kind: str, **values: Any) -> Object:
    item = the(hooks(event, **values), kind)
    return item if kind == "Pod" else dict(item["spec"]["template"])


@pytest.mark.parametrize(("event", "kind"), PROGRAMS)
def test_a_hook_has_its_rights_before_it_runs_and_none_afterwards(event: str, kind: str) -> None:
    *rights, program = hooks(event)
    assert program["kind"] == kind
    assert {int(_annotation(item, "hook-weight")) for item in rights} == {-10}
    assert {_annotation(item, "hook-delete-policy") for item in rights} == {
        "before-hook-creation,hook-succeeded,hook-failed"
    }
    assert _annotation(program, "hook-delete-policy") == "before-hook-creation,hook-succeeded", "its log tells why"
    account = pod_of_hook(event, kind)["spec"]["serviceAccountName"]
    assert the(rights, "ServiceAccount")["metadata"]["name"] == account
    for binding in (item for item in rights if item["kind"].endswith("Binding")):
        roles = [*rights, *rendered()] if event == "test" else rights  # the test has the role of every user
        role = the(roles, binding["roleRef"]["kind"], binding["roleRef"]["name"])
        assert binding["roleRef"]["name"] == role["metadata"]["name"]
        home = the(rights, "ServiceAccount")["metadata"]["namespace"]
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account, "namespace": home}]


@pytest.mark.parametrize(("event", "kind"), PROGRAMS)
def test_the_image_has_the_command_of_a_hook_and_it_takes_the_flags(event: str, kind: str, tmp_path: Path) -> None:
    (container,) = pod_of_hook(event, kind, test={"timeoutSeconds": 0})["spec"]["containers"]
    (command,) = container["command"]
    done = subprocess.run(
        [str(Path(sys.executable).with_name(command)), *container["args"]],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == UNKNOWN, done.stderr
    assert "no cluster is configured" in done.stderr


@pytest.mark.parametrize(("event", "kind"), PROGRAMS)
@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["plain", "everything"])
def test_a_hooks_pod_is_no_operator_and_passes_pod_security(event: str, kind: str, values: dict[str, Any]) -> None:
    """The drain waits for the operator's pods to end; the namespace enforces the level restricted."""
    pod = pod_of_hook(event, kind, **values)
    labels = pod["metadata"]["labels"]
    operators = dict(pair.split("=") for pair in LABELS.split(","))
    assert not operators.items() <= labels.items()
    for item in rendered(**values):
        for selector in _selectors(item):
            assert not selector.items() <= labels.items(), item["kind"]
    assert pod["spec"]["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert re.search(r"^USER [1-9]\d*:", (ROOT / "Dockerfile").read_text(), re.MULTILINE), "a kubelet must see its uid"
    (container,) = pod["spec"]["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def _selectors(item: Object) -> list[dict[str, str]]:
    spec = item.get("spec", {})
    found = [spec.get("selector"), spec.get("podSelector")]
    return [selector.get("matchLabels", selector) for selector in found if selector]


def rules(event: str, kind: str, **values: Any) -> set[tuple[str, str, str]]:
    """Verb, resource with its group, and name, of each right of a hook's role."""
    return {
        (verb, f"{resource}.{group}".rstrip("."), name)
        for rule in the(hooks(event, **values), kind)["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", ["*"])
    }


def test_the_drain_may_do_what_a_drain_does_and_nothing_else() -> None:
    pods = {(verb, "pods", "*") for verb in ("get", "list", "create", "patch", "delete")}
    records = {(verb, "relaunches.topomend.io", "*") for verb in ("get", "list", "create", "patch", "delete")}
    gating = {
        (verb, f"{kind}.admissionregistration.k8s.io", "*")
        for verb in ("get", "list", "delete")
        for kind in ("mutatingwebhookconfigurations", "mutatingadmissionpolicybindings")
    }
    of_kueue = {("list", f"{kind}.kueue.x-k8s.io", "*") for kind in ("admissionchecks", "clusterqueues")}
    assert rules("pre-delete", "ClusterRole") == pods | records | gating | of_kueue | {
        ("patch", "admissionchecks/status.kueue.x-k8s.io", "*"),
        ("patch", "relaunches/status.topomend.io", "*"),
        ("create", "subjectaccessreviews.authorization.k8s.io", "*"),
        ("update", "validatingadmissionpolicies.admissionregistration.k8s.io", "*"),
    }
    assert rules("pre-delete", "Role", fullnameOverride="acme-topomend") == {
        ("list", "deployments.apps", "*"),
        ("patch", "deployments/scale.apps", "acme-topomend-operator"),
        ("get", "leases.coordination.k8s.io", LEASE),
        ("patch", "leases.coordination.k8s.io", LEASE),
        *((verb, "brakes.topomend.io", "topomend-brake") for verb in ("get", "delete")),
        *((verb, "steerings.topomend.io", "topomend-steer") for verb in ("get", "delete")),
    }


def _asked_for_by(paths: Iterable[Path]) -> set[str]:
    """The resources, with their groups, that modules know by the names of ``kube.resources`` and ``kube.kueue``."""
    named = {name for path in paths for name in re.findall(r"\b[A-Z_]{4,}\b", path.read_text())}
    both = {**vars(resources), **vars(kueue)}
    known = {name: value for name, value in both.items() if isinstance(value, Resource)}
    asked = [known[name] for name in named & known.keys()]
    return {".".join([each.plural, *each.api_version.split("/")[:-1]]) for each in asked}


def test_no_module_of_the_drain_asks_for_a_kind_that_the_drain_may_not_touch() -> None:
    package = ROOT / "operator" / "topomend"
    others = [package / "relaunch" / "driver.py", package / "relaunch" / "preflight.py"]
    asked = _asked_for_by([*(package / "drain").glob("*.py"), *others, package / "runtime" / "leader_election.py"])
    allowed = {resource for kind in ("ClusterRole", "Role") for _, resource, _ in rules("pre-delete", kind)}
    assert len(asked) > 8
    assert asked <= allowed


def test_the_check_has_the_role_that_users_bind_too_and_no_other() -> None:
    given: tuple[dict[str, Any], ...] = ({}, {"fullnameOverride": "acme-topomend"})
    for values in given:
        binding = the(hooks("test", **values), "ClusterRoleBinding")
        roles = {item["metadata"]["name"] for item in rendered(**values) if item["kind"] == "ClusterRole"}
        assert binding["roleRef"]["name"] in roles
        assert binding["roleRef"]["name"].endswith("-checker")
        assert not [item for item in hooks("test", **values) if item["kind"] == "ClusterRole"]


def test_the_checks_role_only_reads_and_reads_no_secret() -> None:
    role = next(item for item in rendered() if item["metadata"]["name"] == "topomend-checker")
    for rule in role["rules"]:
        is_question = rule["resources"] == ["subjectaccessreviews"]
        assert set(rule["verbs"]) <= ({"create"} if is_question else {"get", "list"})
        assert not {"*", "secrets"}.intersection(rule["resources"])
    asked = _asked_for_by((ROOT / "operator" / "topomend" / "cli" / "numa" / "check").glob("*.py"))
    named = {
        f"{resource}.{group}".rstrip(".")
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert asked - named == {"secrets"}


def test_a_hook_runs_where_the_operator_may_and_also_on_a_full_cluster() -> None:
    operator = {"priorityClassName": "important", "nodeSelector": {"pool": "infra"}, "tolerations": [{"key": "infra"}]}
    for event, kind in PROGRAMS:
        spec = pod_of_hook(event, kind, operator=operator)["spec"]
        assert spec["priorityClassName"] == "important"
        assert spec["nodeSelector"] == {"kubernetes.io/os": "linux", "pool": "infra"}
        assert spec["tolerations"] == [{"key": "infra"}]


def test_the_drain_is_of_the_operators_own_namespace() -> None:
    for options, namespace in (({}, "topomend-system"), ({"namespaceOverride": "numa"}, "numa")):
        (container,) = pod_of_hook("pre-delete", "Job", **options)["spec"]["containers"]
        assert container["args"] == ["drain", f"--operator-namespace={namespace}"]


# Lint, package, notes


def test_no_template_looks_anything_up_or_makes_anything_up() -> None:
    """GitOps tools render without a cluster, and compare what they rendered."""
    forbidden = r"\b(lookup|rand[A-Z]\w+|uuidv4|now|gen[A-Z]\w+|derivePassword|htpasswd|getHostByName|env|expandenv)\b"
    for path in (CHART / "templates").rglob("*.*"):
        actions = re.findall(r"\{\{(?!- /\*)(.*?)\}\}", path.read_text())
        assert not [action for action in actions if re.search(forbidden, action)], path.name


@pytest.mark.parametrize("helm", HELMS)
@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["plain", "everything"])
def test_helm_finds_nothing_to_complain_of(helm: str, values: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    options = ("--strict", f"--kube-version={DEFAULT_VERSION}", f"--values={tmp_path}/values.yaml")
    done = run(helm, "lint", str(CHART), *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout


RELEASE_SECRET = 1 << 20
"""Bytes that an API server takes as a Secret, in which helm keeps each revision of a release."""


@pytest.mark.parametrize("helm", HELMS)
def test_a_package_holds_the_chart_alone_and_fits_a_release(helm: str, tmp_path: Path) -> None:
    done = run(helm, "package", str(CHART), f"--destination={tmp_path}")
    assert done.returncode == 0, done.stderr
    (package,) = tmp_path.glob("topomend-*.tgz")
    assert package.stat().st_size < RELEASE_SECRET // 4
    with tarfile.open(package) as archive:
        listed = {member.removeprefix("topomend/") for member in archive.getnames()}
    assert listed >= {str(path.relative_to(CHART)) for path in CHART.rglob("*.*") if path.name != ".helmignore"}
    assert not [member for member in listed if member.endswith(".py")]


def notes(*arguments: str, **values: Any) -> str:
    """What helm tells who has installed the chart with these values."""
    options = ("--dry-run=client", "--values=-", *arguments)
    done = run("helm4", "install", "numa", str(CHART), *options, given=yaml.safe_dump(values))
    assert done.returncode == 0, done.stderr
    return done.stdout.partition("NOTES:\n")[2]


def test_the_notes_tell_what_topomend_will_do_to_pods() -> None:
    told = notes()
    assert "deletes a refused bare pod and creates it again" in told
    assert "evicts pods of lower priority" in told
    assert "topomend.io/steer=enabled" in told
    assert "the operator in namespace topomend-system, agents in topomend-agent" in told
    assert "helm test numa --namespace default" in told
    assert "placeholders" not in told
    assert "Label those" not in told


def test_the_notes_of_an_operator_that_observes_promise_no_change() -> None:
    told = notes(mode="observe")
    assert "changes nothing" in told
    assert "--set mode=relaunch" in told
    assert not [word for word in ("evicts", "deletes a refused", "It gates", "It stamps") if word in told]


@pytest.mark.parametrize(
    ("values", "told", "not_told"),
    [
        ({"preemption": {"enabled": False}}, "It evicts no pod", "evicts pods of lower priority"),
        ({"gating": {"enabled": False}}, "It gates and stamps no new pod", "It gates the next pods"),
        ({"gating": {"brake": False}}, "It stamps new bare pods", "It gates the next pods"),
        ({"scaleUp": {"enabled": False}}, "It stamps", "PodScheduled"),
        ({"placeholders": {"enabled": True}}, "It creates placeholders in topomend-system", "evicts no"),
        ({"defragment": {"enabled": True}}, "It moves pods of steered namespaces", "evicts no"),
        ({"startupTaint": {"enabled": True}}, "startup taint off new nodes", "evicts no"),
        ({"kueue": {"enabled": True}}, "answers Kueue's admission checks", "evicts no"),
        ({"uninstall": {"drain": False}}, "kubectl numa drain --operator-namespace topomend-system", "It first drains"),
        ({"imagePullSecrets": [{"name": "key"}]}, "must exist in topomend-system and in topomend-agent", "evicts no"),
        ({"crds": {"keep": False}}, "It first drains", "objects stay"),
    ],
    ids=str,
)
def test_the_notes_follow_the_values(values: dict[str, Any], told: str, not_told: str) -> None:
    text = " ".join(notes(**values).split())
    assert told in text
    assert not_told not in text


@pytest.mark.parametrize("openshift", [False, True])
@pytest.mark.parametrize(
    ("options", "values", "labelled"),
    [
        (["--namespace=numa"], {}, {"numa": "topomend-system"}),
        (["--namespace=numa"], {"agent": {"namespace": "numa"}}, {"numa": "topomend-agent"}),
        (
            [],
            {"namespaces": {"create": False}},
            {"topomend-system": "topomend-system", "topomend-agent": "topomend-agent"},
        ),
    ],
    ids=str,
)
def test_the_notes_say_how_to_label_a_namespace_that_the_release_did_not_create(
    options: list[str], values: dict[str, Any], labelled: dict[str, str], *, openshift: bool
) -> None:
    """As the chart labels those that it creates; of Pod Security's three labels the one that denies."""
    more: dict[str, Any] = {"openshift": {"enabled": openshift}}
    created = {item["metadata"]["name"]: item["metadata"]["labels"] for item in rendered(**more) if _is_home(item)}
    lines = [line.split() for line in notes(*options, **values, **more).splitlines() if "label namespace" in line]
    told = {name: dict(pair.split("=") for pair in pairs) for _, _, _, name, *pairs in lines}
    assert told.keys() == labelled.keys()
    for name, labels in told.items():
        assert len(labels) == 3 + openshift
        assert labels.items() <= created[labelled[name]].items()


def _is_home(item: Object) -> bool:
    return bool(item["kind"] == "Namespace")
