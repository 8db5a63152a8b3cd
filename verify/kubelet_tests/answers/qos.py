"""Answers for pkg/apis/core/v1/helper/qos and pkg/kubelet/cm/qos: QoS classes."""

from typing import Any

from verify.kubelet_tests.answers.objects import read_container, read_pod

from topomend.replay import qos
from topomend.replay.gates import Gates


def computed_pod_qos(arguments: dict[str, Any], gates: Gates) -> str:
    return qos.computed_qos_class(read_pod(arguments["pod"]), gates)


def container_is_guaranteed(arguments: dict[str, Any], _: Gates) -> bool:
    return qos.is_container_guaranteed(read_container(arguments["container"]))


ANSWERERS = {
    "ComputePodQOS": computed_pod_qos,
    "IsContainerEquivalentQOSGuaranteed": container_is_guaranteed,
}
