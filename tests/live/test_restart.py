"""A real kubelet does not start with the state files that discovery predicts, in the same words; it starts without."""

import subprocess
from collections.abc import Iterator
from functools import partial

import pytest
from tests.agent.test_agent_on_cluster import seen_anew
from tests.waiting import eventually
from verify.oracle.restoring.saved import sealed

from topomend.model.condition import Condition
from topomend.replay.startup.state.checkpoints import CPU_V2
from topomend.sandbox import NodeSpec, Sandbox
from topomend.sandbox.plan import kubelet_program

pytestmark = pytest.mark.cluster

NODE = "node-1"

CPU_NOWHERE = sealed(
    CPU_V2, "CPUManagerCheckpoint", {"PolicyName": "static", "DefaultCPUSet": "0-6", "Entries": {}}
).decode()
OTHER_POLICY = '{"policyName":"none","defaultCpuSet":"","checksum":1353318690}'
OTHER_MACHINE = '{"policyName":"Static","machineState":{"0":{"numberOfAssignments":0,"cells":[0]}},"checksum":0}'

STATES = (
    ("cpu_manager_state", OTHER_POLICY, 'configured policy "static" differs from state checkpoint policy "none"'),
    ("cpu_manager_state", CPU_NOWHERE, 'current set of available CPUs "0-7" doesn\'t match with CPUs in state "0-6"'),
    ("memory_manager_state", OTHER_MACHINE, "the expected machine state is different from the real one"),
)


class Kubelet:
    """The kubelet of a sandbox's node, and its root directory as it sees it."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.root = sandbox.node(NODE).kubelet_state

    def stop(self) -> None:
        self.sandbox.stop_kubelet(NODE)

    def start(self) -> None:
        self.sandbox.start_kubelet(NODE)

    def begin(self) -> None:
        self.sandbox.begin_kubelet(NODE)

    def write(self, name: str, content: str) -> None:
        self._run("sh", "-c", 'cat > "$0"', str(self.root / name), given=content)

    def delete(self, path: str) -> None:
        self._run("rm", path)

    def says(self, sentence: str) -> bool:
        """Whether the kubelet has logged this, where quotes have escapes."""
        log = self.sandbox.folder / "logs" / f"{kubelet_program(NODE)}.log"
        return sentence in log.read_text(errors="replace").replace('\\"', '"')

    def allocations_read(self) -> Condition:
        """The condition AllocationsRead as a program says that begins to look at the node."""
        return seen_anew(self.sandbox, NODE, "AllocationsRead")

    def _run(self, *command: str, given: str = "") -> None:
        subprocess.run([*self.sandbox.exec_prefix(NODE), *command], input=given, check=True, text=True)


@pytest.fixture(scope="module")
def kubelet() -> Iterator[Kubelet]:
    spec = NodeSpec.of_shape(NODE, "numa:2 cores:4 memory:4Gi", topology_manager_policy="single-numa-node")
    with Sandbox.up([spec]) as sandbox:
        yield Kubelet(sandbox)


@pytest.mark.timeout(600)  # three starts of a kubelet that ends, and three that do not
def test_a_kubelet_refuses_the_predicted_files_in_the_predicted_words_and_starts_without_them(kubelet: Kubelet) -> None:
    assert kubelet.allocations_read().reason == "Read"
    for name, content, why in STATES:
        kubelet.stop()
        kubelet.write(name, content)
        predicted = kubelet.allocations_read()
        assert (predicted.status, predicted.reason) == ("False", "PodResourcesUnavailable")
        _, _, refusal = predicted.message.partition("after a restart the kubelet would not start: ")
        sentence, _, advice = refusal.partition("; drain the node, stop the kubelet, delete ")
        path, _, _ = advice.partition(", then start it")
        assert why in sentence
        assert path == str(kubelet.root / name)
        assert not kubelet.says(sentence)
        kubelet.begin()
        eventually(f"the kubelet to say {sentence}", partial(kubelet.says, sentence), 60)
        kubelet.stop()
        kubelet.delete(path)
        kubelet.start()
        eventually("the kubelet to answer", lambda: kubelet.allocations_read().reason == "Read", 60, poll=0.5)
