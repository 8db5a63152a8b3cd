"""topomend's manifests as a sandbox has them."""

from collections.abc import Mapping
from typing import Any

import pytest
from click.testing import CliRunner

from topomend.cli.main import main
from topomend.runtime.manifests import documents
from topomend.sandbox.installed.installation import (
    AGENT_HOST,
    HOST_PROBES,
    OPERATOR_HOST,
    PROBED_PORTS,
    adapted,
    components,
    hosts,
    kept,
    manifests,
    missing,
)

TEXT = manifests().read_text()


def named(documents: Any) -> dict[tuple[str, str], Any]:
    return {(one["kind"], one["metadata"]["name"]): one for one in documents if one}


def container(workload: Mapping[str, Any]) -> Any:
    return workload["spec"]["template"]["spec"]["containers"][0]


def test_every_probe_reaches_a_program_and_all_else_stays() -> None:
    before, after = named(documents(TEXT)), named(adapted(TEXT))
    assert before.keys() == after.keys()
    changed = {key for key in before if before[key] != after[key]}
    assert changed == {
        ("Namespace", "topomend-agent"),
        ("Namespace", "topomend-system"),
        ("DaemonSet", "topomend-agent"),
        ("Deployment", "topomend-operator"),
    }
    for key, host in {
        ("DaemonSet", "topomend-agent"): AGENT_HOST,
        ("Deployment", "topomend-operator"): OPERATOR_HOST,
    }.items():
        for probe in ("readinessProbe", "livenessProbe"):
            assert container(after[key])[probe]["httpGet"] == {**container(before[key])[probe]["httpGet"], "host": host}
    ports = {
        port["containerPort"]
        for key in changed
        if key[0] != "Namespace"
        for port in container(after[key])["ports"]
        if port["name"] != "metrics"  # which the sandbox serves elsewhere: see Component.metrics
    }
    assert ports == set(PROBED_PORTS)


def test_a_mode_is_a_variable_of_the_operator() -> None:
    variables = container(named(adapted(TEXT, "observe"))["Deployment", "topomend-operator"])["env"]
    assert {"name": "TOPOMEND_MODE", "value": "observe"} in variables
    assert "TOPOMEND_MODE" not in [
        one["name"] for one in container(named(adapted(TEXT))["Deployment", "topomend-operator"])["env"]
    ]


class Observed:
    """An API server on which topomend's pods are ready, and nobody has gated or braked anything."""

    def get(self, path: str) -> Any:
        ready = {"metadata": {"name": "one"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        return {"items": [ready]} if path.endswith("/pods") else None


def test_nobody_waits_for_an_operator_that_observes_to_gate_new_pods() -> None:
    assert missing(Observed(), [], "observe") == ""  # type: ignore[arg-type]
    assert missing(Observed(), [], "relaunch") == "the operator to begin"  # type: ignore[arg-type]


def test_what_is_kept_conflicts_with_no_field_of_the_manifests() -> None:
    """A field of two managers with two values would fail the user's next kubectl apply."""
    shipped = named(documents(TEXT))
    for part in kept().values():
        document = shipped[part["kind"], part["metadata"]["name"]]
        if part["kind"] == "Namespace":
            assert not HOST_PROBES.keys() & document["metadata"]["labels"].keys()
            continue
        assert container(part)["name"] == container(document)["name"]
        pods = [one["spec"]["template"]["spec"] for one in (part, document)]
        assert not pods[0].keys() & pods[1].keys() - {"containers"}
        for probe in ("readinessProbe", "livenessProbe"):
            assert not container(part)[probe]["httpGet"].keys() & container(document)[probe]["httpGet"].keys()


def test_each_node_finds_the_operator_and_its_own_agent() -> None:
    operator, *agents = components(["a", "b"], [1, 2, 3], ["127.1.1.1", "127.1.1.2", "127.1.1.3"])
    assert hosts(operator.address, agents[1].address) == f"127.1.1.1 {OPERATOR_HOST}\n127.1.1.3 {AGENT_HOST}\n"
    assert operator.flags == ("--webhook-url=https://127.1.1.1:8443", "--metrics-address=127.0.0.1:1")


@pytest.mark.parametrize("arguments", [["--mode", "observe"], ["--mode", "bogus", "--topomend"]])
def test_a_mode_without_an_operator_is_a_usage_error(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, ["sandbox", "up", *arguments])
    assert (result.exit_code, "mode" in result.stderr) == (2, True)
