"""A Pod as the kubelet's fit check reads it."""

from typing import Any

import pytest

from topomend.model.pods.bound_pod import HostPort
from topomend.wire.document import MalformedObject
from topomend.wire.pods.bound_pod import read_bound_pod


def manifest(metadata: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"} | (metadata or {}), "spec": {"containers": [{"name": "c"}], **spec}}


def test_ports_of_the_node_are_those_of_containers_that_stay() -> None:
    port = {"containerPort": 80, "hostPort": 8080, "hostIP": "10.0.0.1", "protocol": "UDP"}
    init = {"name": "i", "ports": [port]}
    sidecar = init | {"restartPolicy": "Always"}
    assert read_bound_pod(manifest(initContainers=[init])).host_ports == ()
    assert read_bound_pod(manifest(initContainers=[sidecar])).host_ports == (
        HostPort(8080, "10.0.0.1", "UDP", sidecar=True),
    )


def test_on_the_network_of_the_node_every_port_is_the_nodes() -> None:
    containers = [{"name": "c", "ports": [{"containerPort": 80}]}]
    assert read_bound_pod(manifest(containers=containers)).host_ports == ()
    assert read_bound_pod(manifest(containers=containers, hostNetwork=True)).host_ports == (HostPort(80),)


@pytest.mark.parametrize(
    ("facts", "static", "critical"),
    [
        ({"metadata": {"annotations": {"kubernetes.io/config.source": "file"}}}, True, True),
        ({"metadata": {"annotations": {"kubernetes.io/config.source": "api"}}}, False, False),
        ({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}}, False, True),
        ({"priority": 2_000_000_000}, False, True),
        ({"priorityClassName": "system-node-critical"}, False, True),
        ({"priority": 1}, False, False),
    ],
)
def test_static_and_critical_pods_are_known_as_the_kubelet_knows_them(
    facts: dict[str, Any], static: bool, critical: bool
) -> None:
    read = read_bound_pod(manifest(**facts))
    assert (read.static, read.critical) == (static, critical)


def test_the_operating_system_is_a_field_and_a_label() -> None:
    read = read_bound_pod(manifest({"labels": {"kubernetes.io/os": "linux"}}, os={"name": "windows"}))
    assert (read.os, read.os_label) == ("windows", "linux")


def test_a_malformed_port_is_named() -> None:
    with pytest.raises(MalformedObject, match=r"spec\.containers\[0\]\.ports\[0\]\.hostPort"):
        read_bound_pod(manifest(containers=[{"name": "c", "ports": [{"hostPort": "http"}]}]))
