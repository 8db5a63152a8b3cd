"""A NodeConfig is judged as the kubelet that nodeadm starts with it."""

import json
from email.mime.multipart import MIMEMultipart
from email.mime.text import MIMEText
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from topomend.cli.input.node_config import _PODS, of_node_config
from topomend.cli.main import main
from topomend.cli.output.failures import BadInput
from topomend.discover.documents.value import plain_value
from topomend.model.shapes.known_machines import MACHINES

P5 = "p5.48xlarge"
STATIC = {
    "topologyManagerPolicy": "restricted",
    "cpuManagerPolicy": "static",
    "memoryManagerPolicy": "Static",
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1455Mi"}}],
}


def node_config(config: object = None, **kubelet: object) -> dict[str, Any]:
    spec = {"cluster": {"name": "c"}, "kubelet": {"config": STATIC if config is None else config, **kubelet}}
    return {"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig", "spec": spec}


def lint(content: object, *arguments: str, machine: str = P5) -> Result:
    text = content if isinstance(content, str) else yaml.safe_dump(content)
    return CliRunner().invoke(main, ["lint", "-", "--machine", machine, *arguments], input=text)


def defaults(cpus: int, minor: int = 37, machine: str = P5) -> dict[str, Any]:
    read = of_node_config("file", json.dumps(node_config()).encode(), machine, cpus, minor)
    assert read is not None
    assert read.file is not None
    made: dict[str, Any] = plain_value(read.file.text.value)
    return made


def test_the_memory_that_nodeadm_reserves_for_this_instance_type_counts() -> None:
    assert lint(node_config()).output.startswith("A kubelet v1.37.2 starts with stdin")
    wrong = STATIC | {"reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}]}
    corrected = lint(node_config(wrong)).output.partition("\n\n")[2]
    # 11Mi for each of 100 pods, 255Mi, and 100Mi by which pods are evicted.
    assert yaml.safe_load(corrected) == {"reservedMemory": STATIC["reservedMemory"]}


@pytest.mark.parametrize(("cpus", "millis"), [(1, 60), (2, 70), (4, 80), (96, 310), (192, 550)])
def test_cpus_are_reserved_by_how_many_there_are(cpus: int, millis: int) -> None:
    assert defaults(cpus)["kubeReserved"] == {"cpu": f"{millis}m", "ephemeral-storage": "1Gi", "memory": "1355Mi"}


def test_reserved_cpus_start_only_without_the_control_groups_that_nodeadm_sets() -> None:
    own = STATIC | {"reservedSystemCPUs": "0,96"}
    assert "reservedSystemCPUs" in lint(node_config(own)).output
    assert "does not start" in lint(node_config(own)).output
    without = own | {"systemReservedCgroup": "", "kubeReservedCgroup": ""}
    assert lint(node_config(without)).output.startswith("A kubelet v1.37.2 starts with stdin")


def test_gates_and_shutdown_depend_on_the_release() -> None:
    assert "DynamicResourceAllocation" not in defaults(192, 32)["featureGates"]
    assert defaults(192, 33)["featureGates"]["DynamicResourceAllocation"]
    assert ["shutdownGracePeriod" in defaults(192, minor) for minor in (33, 34)] == [False, True]


def test_flags_override_the_configuration_and_are_looked_at() -> None:
    flags = ["--topology-manager-policy=single-numa-node", "--node-labels=a=b", "--cpu-manager-policy", "none"]
    document = yaml.safe_load(lint(node_config(flags=flags), "-o", "yaml").output)
    assert not any("flags" in each for each in document["notLookedAt"])
    unknown = lint(node_config(flags=["--topology-manager-polcy=none"]))
    assert "unknown flag: --topology-manager-polcy: did you mean --topology-manager-policy?" in unknown.output
    refused = lint(node_config(flags=["--topology-manager-policy=other"]))
    assert "does not start" in refused.output
    assert "topology-manager-policy" in refused.output or "topologyManagerPolicy" in refused.output


def test_user_data_of_several_parts_has_the_node_config_in_one_of_them() -> None:
    data = MIMEMultipart()
    data.attach(MIMEText("#!/bin/bash\ntrue\n", "x-shellscript"))
    part = MIMEText("---\n" + yaml.safe_dump(node_config()), "plain")
    part.replace_header("Content-Type", "application/node.eks.aws")
    data.attach(part)
    assert lint(data.as_string()).output.startswith("A kubelet v1.37.2 starts with stdin")
    data.attach(part)
    assert "has 2 parts of type application/node.eks.aws" in lint(data.as_string()).output


def test_where_the_instance_type_is_not_known_its_pods_must_be_given() -> None:
    shape = "sockets:2 cores:48 threads:2 memory:1Ti"
    unknown = lint(node_config(), machine=shape)
    assert unknown.exit_code == 2
    assert "name the type as --machine" in unknown.output
    assert lint(node_config(maxPodsExpression="100"), machine=shape).output.startswith("A kubelet v1.37.2 starts")
    own = {**STATIC, "kubeReserved": {"memory": "1355Mi"}}
    assert lint(node_config(own), machine=shape).output.startswith("A kubelet v1.37.2 starts")
    assert lint(node_config({"cpuManagerPolicy": "static"}), machine=shape).exit_code != 2


def test_the_type_is_known_with_words_after_its_name() -> None:
    assert lint(node_config(), machine=f"{P5} hugepages-2Mi:1024").exit_code != 2


def test_every_machine_of_ec2_that_has_a_name_has_its_number_of_pods() -> None:
    assert {machine.name for machine in MACHINES if machine.what.startswith("Amazon EC2")} == _PODS.keys()


WRONG = {
    "an expression": (node_config(maxPodsExpression="max_pods + 2"), "expressions of CEL are not evaluated"),
    "flags that are no list": (node_config(flags={"a": "b"}), "spec.kubelet.flags"),
    "a flag that is no text": (node_config(flags=[1]), "spec.kubelet.flags[0]"),
    "a list for the kubelet": ({**node_config(), "spec": {"kubelet": []}}, "spec.kubelet"),
    "a list for its fields": (node_config(config=[1]), "spec.kubelet.config"),
}


@pytest.mark.parametrize(("content", "words"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_told_in_one_line(content: dict[str, Any], words: str) -> None:
    result = lint(content)
    assert (result.exit_code, result.output.count("\n")) == (2, 1)
    assert words in result.output


def test_other_files_are_none() -> None:
    for content in (b"kind: NodeConfig\napiVersion: v1\n", b"kind: Pod\n", b"a: [", b"[1]", b""):
        assert of_node_config("file", content, P5, 192, 37) is None
    with pytest.raises(BadInput, match="has 0 parts"):
        of_node_config("file", b"MIME-Version: 1.0\n\nx", P5, 192, 37)
