"""What an agent holds of the longest answers that it reads: far less than the 128 MiB of its container.

The program is the real one, in a process of its own, and measured by the kernel.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice, product
from pathlib import Path

import grpc
import pytest
from tests.discover.pod_resources.test_grpc_unix import serving

from topomend.discover import podresources_pb2 as messages
from topomend.discover.pod_resources.listed_claims import MAX_CLAIM_DEVICES
from topomend.discover.pod_resources.pod_resources import MAX_ANSWER_BYTES, SERVICE

ROOT = Path(__file__).parents[3]

MOST_MIB = 100
"""The limit in deploy/ is 128 MiB, and the agent takes 40 without any allocation."""

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
PART = MAX_ANSWER_BYTES // 2 - 20
"""How many empty messages fit an answer: each is two bytes."""


def ids(number: int) -> Iterator[str]:
    return islice(("".join(letters) for length in (1, 2, 3, 4) for letters in product(LETTERS, repeat=length)), number)


def _containers() -> messages.ListedPods:
    pod = messages.PodResources(containers=[messages.ContainerResources()] * PART)
    return messages.ListedPods(pod_resources=[pod.SerializeToString()])


def _memory() -> messages.ListedPods:
    container = messages.ContainerResources(memory=[messages.ContainerMemory()] * (PART - 10))
    pod = messages.PodResources(containers=[container])
    return messages.ListedPods(pod_resources=[pod.SerializeToString()])


def _pods() -> messages.ListedPods:
    return messages.ListedPods(pod_resources=[b""] * PART)


def _devices_of_a_container() -> messages.ListedPods:
    device = messages.ContainerDevices(resource_name="a/b", device_ids=ids(180_000))
    pod = messages.PodResources(containers=[messages.ContainerResources(devices=[device])])
    return messages.ListedPods(pod_resources=[pod.SerializeToString()])


def _devices_of_the_node() -> messages.AllocatableResourcesResponse:
    one_each = [messages.ContainerDevices(device_ids=[device]) for device in ids(110_000)]
    return messages.AllocatableResourcesResponse(devices=one_each)


def _claims_of_a_container() -> messages.ListedPods:
    container = messages.ContainerResources(name="c", dynamic_resources=[b""] * (PART - 10))
    pod = messages.PodResources(namespace="n", name="p", containers=[container])
    return messages.ListedPods(pod_resources=[pod.SerializeToString()])


def _devices_of_claims() -> messages.ListedPods:
    """As many as are read."""
    pods = []
    for number in range(1100):
        devices = [
            messages.ClaimResource(device_name=f"{number % 9}{device}", driver_name="d").SerializeToString()
            for device in range(MAX_CLAIM_DEVICES)
        ]
        claim = messages.DynamicResource(claim_name="c", claim_resources=devices).SerializeToString()
        container = messages.ContainerResources(name="c", dynamic_resources=[claim])
        pods.append(messages.PodResources(namespace="n", name=f"p{number}", containers=[container]))
    return messages.ListedPods(pod_resources=[pod.SerializeToString() for pod in pods])


HOSTILE = [_containers, _memory, _pods, _devices_of_a_container, _devices_of_the_node]


@pytest.mark.parametrize("make", HOSTILE, ids=[make.__name__.strip("_").replace("_", " ") for make in HOSTILE])
def test_an_answer_that_names_more_than_any_kubelet_has_is_refused_in_little_memory(
    tmp_path: Path, make: Callable[[], messages.ListedPods | messages.AllocatableResourcesResponse]
) -> None:
    answer = make()
    listed = isinstance(answer, messages.ListedPods)
    content = answer.SerializeToString()
    assert MAX_ANSWER_BYTES // 2 < len(content) <= MAX_ANSWER_BYTES
    answers = {"List": content if listed else b"", "GetAllocatableResources": b"" if listed else content}
    methods = {method: partial(_given, body) for method, body in answers.items()}
    with serving(tmp_path / "socket", SERVICE, **methods) as socket:
        text, peak = _discover(socket)
    assert "gives an impossible answer: more than" in text
    assert peak < MOST_MIB, f"{peak} MiB"


@pytest.mark.parametrize("make", [_claims_of_a_container, _devices_of_claims], ids=["claims", "devices"])
def test_claims_beyond_all_measure_cost_a_node_neither_its_allocations_nor_much_memory(
    tmp_path: Path, make: Callable[[], messages.ListedPods]
) -> None:
    content = make().SerializeToString()
    assert MAX_ANSWER_BYTES // 2 < len(content) <= MAX_ANSWER_BYTES
    answers = {"List": partial(_given, content), "GetAllocatableResources": partial(_given, b"")}
    with serving(tmp_path / "socket", SERVICE, **answers) as socket:
        text, peak = _discover(socket)
    assert text == ""
    assert peak < MOST_MIB, f"{peak} MiB"


def _given(content: bytes, _: grpc.ServicerContext) -> bytes:
    return content


def _discover(socket: Path) -> tuple[str, int]:
    """What the program prints, and the most memory that it held, in MiB."""
    program = (
        "import sys\n"
        "from topomend.discover.allocations import AllocationReader\n"
        "from pathlib import Path\n"
        "print(AllocationReader(Path(sys.argv[1]), None).read().problem)\n"
        "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "operator")}
    command = [sys.executable, "-c", program, str(socket)]
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    problem, kibibytes = printed.splitlines()
    return problem, int(kibibytes) >> 10


def test_what_a_device_plugin_says_is_shown_in_one_short_line_without_what_moves_a_terminal(tmp_path: Path) -> None:
    def fails(context: grpc.ServicerContext) -> bytes:
        context.set_code(grpc.StatusCode.UNKNOWN)
        context.set_details("\x1b[2Jall is well\nReady\u202e" + "x" * 2000)
        return b""

    with serving(tmp_path / "socket", SERVICE, List=fails, GetAllocatableResources=fails) as socket:
        text, _ = _discover(socket)
    assert text.isprintable()
    assert "\\x1b[2Jall is well Ready\\u202e" in text
    assert len(text) < 500
