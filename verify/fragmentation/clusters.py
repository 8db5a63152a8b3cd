"""Random clusters, their fragmentation, and the share of probe pods that their kubelets refuse.

A cluster has nodes of one or several machines and policies, and a mix of kinds of pods that come and go, more or fewer.
Probes are drawn from the mix by what each kind asks for, and each goes to a node drawn from all that have something
free: there replay says what the kubelet says. A probe leaves the cluster as it was.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from tests.builders import node_state, pod

from topomend.decide.pools.fragmentation import NodeAnswers, Questions, fragmentation_of
from topomend.decide.pools.typical_pods import Mix, TypicalPod, kinds_of, merged, mix_of, times
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import Pod, is_extended
from topomend.replay.admission import admit, release
from topomend.replay.fast_path.capacity import free_amounts

GPU = "vendor.com/gpu"

SHAPES = (
    f"numa:2 cores:8 memory:16Gi device:{GPU}@0=2,1=2",
    f"sockets:2 numa:2 cores:4 threads:2 memory:8Gi device:{GPU}@0=2,3=2",
    f"numa:2 cores:16 memory:32Gi device:{GPU}@0=4,1=4",
    "numa:2 cores:6 memory:16Gi",
)
POLICIES = ("single-numa-node", "single-numa-node", "restricted", "best-effort")
CPUS, GPUS, MEMORY = (1, 2, 2, 3, 4, 4, 6, 8, 12), (0, 0, 1, 1, 2, 4), ("1Gi", "2Gi", "4Gi")

RESOURCES = ("cpu", GPU)

PROBES = 200


@dataclass(frozen=True)
class Measured:
    """Of one resource in one cluster: its fragmentation, and the share of probes that were refused."""

    resource: str
    fragmentation: float
    refused: float


def measured(random: Random, probes: int = PROBES) -> Iterator[Measured]:
    """Draw a cluster; and of each resource of which some is free, and that its mix asks for, take both figures."""
    kinds = [(_kind(random), random.randint(1, 10)) for _ in range(random.randint(2, 6))]
    states = _filled(random, kinds)
    mix = mix_of(merged(times(kinds_of([kind]), number) for kind, number in kinds))
    questions = Questions(mix)
    answers = [questions.ask(state) for state in states]
    found = fragmentation_of(answers, mix)
    for resource in RESOURCES:
        share = found[resource].share if resource in found else None
        if share is not None:
            refused = sum(_is_refused(random, states, answers, mix, resource) for _ in range(probes))
            yield Measured(resource, share, refused / probes)


def _kind(random: Random) -> Pod:
    gpus = random.choice(GPUS)
    devices = f" {GPU}={gpus}" if gpus else ""
    return pod("p", f"cpu={random.choice(CPUS)} memory={random.choice(MEMORY)}{devices}")


def _filled(random: Random, kinds: Sequence[tuple[Pod, int]]) -> list[NodeState]:
    """Nodes on which pods have come, and some of them have gone."""
    common, filled = random.choice(SHAPES), random.random()
    weights = [number for _, number in kinds]
    states = []
    for number in range(random.randint(2, 10)):
        shape = common if random.random() < 0.7 else random.choice(SHAPES)
        manager = random.choice(("None", "Static"))
        state = node_state(shape, random.choice(POLICIES), name=f"n{number}", memory_manager=manager)
        for arrival in range(round(filled * state.machine.cpus.bit_count())):
            [(kind, _)] = random.choices(kinds, weights)
            name = f"{state.name}-{arrival}"
            _, state = admit(state, replace(kind, name=name, uid=name))
            if state.pods and random.random() < 0.3:
                gone = random.choice(state.pods)
                state = release(state, gone.namespace, gone.name)
        states.append(state)
    return states


def _is_refused(
    random: Random, states: Sequence[NodeState], answers: Sequence[NodeAnswers], mix: Mix, resource: str
) -> bool:
    """Whether a node of all that have some of the resource refuses a probe."""
    asking = [typical for typical in mix.pods if resource in typical.asked]
    [probe] = random.choices(asking, [typical.asked[resource] for typical in asking])
    state, _ = random.choice([pair for pair in zip(states, answers, strict=True) if pair[1].free.get(resource)])
    if _has_no_such_device(state, probe):
        return True
    verdict, _ = admit(state, replace(probe.pod, name="probe", uid="probe"))
    return not verdict.admitted


def _has_no_such_device(state: NodeState, probe: TypicalPod) -> bool:
    """Whether the scheduler would not send it there: a kubelet does not ask for devices that it does not know."""
    return any(is_extended(resource) and resource not in free_amounts(state) for resource in probe.asked)
