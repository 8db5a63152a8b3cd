"""The arguments and variables of a program that runs in the place of a pod's container."""

from typing import Any

import pytest

from topomend.sandbox.installed.pod_program import NotSupported, launch_of


def pod(**container: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
        "spec": {"nodeName": "n", "serviceAccountName": "a", "containers": [{"name": "c", **container}]},
        "status": {"hostIP": "127.0.0.1", "podIP": "192.168.192.168"},
    }


def field(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def test_references_are_expanded_as_a_kubelet_expands_them() -> None:
    env = [
        field("NAME", "metadata.name"),
        {"name": "BOTH", "value": "$(NAME)-$(LATER)"},
        {"name": "LATER", "value": "x"},
    ]
    launch = launch_of(pod(env=env, args=["$(BOTH)", "$$(NAME)", "$(NONE)", "$NAME", "$$"]), address="127.0.0.9")
    assert launch.environment == {"NAME": "p", "BOTH": "p-$(LATER)", "LATER": "x"}
    assert launch.arguments == ("p-$(LATER)", "$(NAME)", "$(NONE)", "$NAME", "$")


def test_the_pods_address_is_that_of_the_program() -> None:
    launch = launch_of(
        pod(env=[field("POD_IP", "status.podIP")], args=["--health-address=$(POD_IP):8081"]), address="127.0.0.9"
    )
    assert launch.arguments == ("--health-address=127.0.0.9:8081",)


def test_flags_are_left_out_and_added_last() -> None:
    args = ["agent", "--kubelet-address=127.0.0.1", "--kubelet-address-family=x"]
    launch = launch_of(pod(args=args), address="", replaced=("--kubelet-address",), added=("--once",))
    assert launch.arguments == ("agent", "--kubelet-address-family=x", "--once")


@pytest.mark.parametrize(
    ("container", "message"),
    [
        ({"env": [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}]}, "the variable X: "),
        ({"env": [field("X", "metadata.labels")]}, "the variable X: "),
        ({"envFrom": [{"configMapRef": {"name": "m"}}]}, "envFrom: "),
        ({"command": ["sh"]}, "command: "),
    ],
)
def test_what_a_program_cannot_get_is_named(container: dict[str, Any], message: str) -> None:
    with pytest.raises(NotSupported, match=message):
        launch_of(pod(**container), address="")
