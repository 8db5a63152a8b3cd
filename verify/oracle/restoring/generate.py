"""Random state files: a node's, as a kubelet of some version writes them, and what becomes of them until its restart.

A case is a node with the pods that replay admits, whose state is written as a kubelet of some version writes it. Then
any of this changes: the machine, the settings, the fields, the text.
"""

import json
from base64 import b64encode
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from random import Random
from typing import Any

from verify.oracle.cases import node_state
from verify.oracle.kubelet_oracle import Case
from verify.oracle.random_cases.generate import random_case
from verify.oracle.restoring.saved import Fields, saved_fields, sealed, written, written_claims, written_pods

from topomend.model.bitmask import InvalidIDList, format_id_list, parse_id_list
from topomend.model.nodes.node_state import NodeState
from topomend.replay.admission import admit, release
from topomend.replay.container_manager import ContainerManager, start
from topomend.replay.gates import Gates
from topomend.replay.startup.state.checkpoints import CPU_V2, CPU_V3, MEMORY_V1, MEMORY_V2
from topomend.replay.startup.state.restore import (
    ACTUATED_STATE,
    ALLOCATED_STATE,
    CLAIM_STATE,
    CPU_STATE,
    MEMORY_STATE,
)
from topomend.wire.pods.pod import read_pod

MAX_NUMA_NODES = 8
JUNK: tuple[Any, ...] = (
    None,
    0,
    1,
    -1,
    1.5,
    1 << 70,
    "",
    "x",
    "0-3",
    "1-",
    "3-1",
    "+2",
    [],
    [0],
    [None],
    {},
    {"0": 1},
    True,
)


@dataclass(frozen=True)
class RestoreCase:
    """A kubelet that starts on files; ``did`` names the changes since they were written."""

    case: Case
    files: dict[str, bytes]
    did: tuple[str, ...]

    @property
    def asked(self) -> Case:
        """The case for the oracle."""
        files = {name.rpartition("/")[2]: b64encode(content).decode() for name, content in self.files.items()}
        return {**self.case, "steps": [], "restore": {"files": files}}


def random_restore(random: Random, version: str) -> RestoreCase:
    """One case; equal states of ``random`` give equal cases."""
    while True:
        case = random_case(random)
        case["kubelet"]["version"] = version
        node = node_state(case)
        kubelet = start(node.machine, node.kubelet)
        if isinstance(kubelet, ContainerManager) and len(node.machine.numa_nodes) <= MAX_NUMA_NODES:
            break
    node = _lived(random, node, case)
    case = deepcopy(case)
    fields = saved_fields(node, kubelet)
    did = []
    for change in random.sample(_CHANGES, random.choices((0, 1, 2), (1, 6, 2))[0]):
        change(_Restart(random, case, fields))
        did.append(change.__name__.strip("_"))
    files = _in_some_format(random, fields, kubelet.gates)
    files |= {
        ALLOCATED_STATE: written_pods(random, [pod.uid for pod in node.pods]),
        ACTUATED_STATE: written_pods(random, []),
        CLAIM_STATE: written_claims(),
    }
    if random.random() < 0.35:
        name = random.choice(sorted(files))
        spoil = random.choice(_SPOILS)
        files[name] = spoil(random, files[name])
        did.append(f"{spoil.__name__.strip('_')} in {name}")
    return RestoreCase(case, files, tuple(did))


def _lived(random: Random, node: NodeState, case: Case) -> NodeState:
    """The node after some of the case's admissions, and some ends."""
    for step in case["steps"]:
        if "admit" in step:
            verdict, after = admit(node, read_pod(step["admit"]))
            node = after if verdict.admitted else node
        elif node.pods and random.random() < 0.3:
            pod = random.choice(node.pods)
            node = release(node, pod.namespace, pod.name)
    return node


def _in_some_format(random: Random, fields: dict[str, Fields], gates: Gates) -> dict[str, bytes]:
    """The files of this version, or of another one before or after an upgrade."""
    if random.random() < 0.6:
        return written(fields, gates)
    older = gates._replace(checkpoints_in_data=False, pod_level_resource_managers=random.random() < 0.5)
    newer = gates._replace(checkpoints_in_data=True, checkpoints_of_pods=True)
    files = written(fields, random.choice((older, newer)))
    if random.random() < 0.5:
        cpu, memory = random.choice(((CPU_V2, MEMORY_V1), (CPU_V3, MEMORY_V2)))
        files[CPU_STATE] = sealed(cpu, random.choice(("CPUManagerCheckpoint", cpu.name)), fields[CPU_STATE])
        files[MEMORY_STATE] = sealed(
            memory, random.choice(("MemoryManagerCheckpoint", memory.name)), fields[MEMORY_STATE]
        )
    return files


# What changes after the files were written


@dataclass(frozen=True)
class _Restart:
    """What a restarted kubelet finds: the machine and the settings of ``case``, and the files' ``fields``."""

    random: Random
    case: Case
    fields: dict[str, Fields]

    @property
    def cpus(self) -> list[int]:
        """The machine's CPUs."""
        return sorted({cpu for core in self.case["machine"]["cores"] for cpu in map(int, core["threads"].split(","))})


def _another_policy(given: _Restart) -> None:
    given.case["kubelet"]["cpuManagerPolicy"] = given.random.choice(("none", "static"))
    given.case["kubelet"]["memoryManagerPolicy"] = given.random.choice(("None", "Static"))


def _another_saved_policy(given: _Restart) -> None:
    given.fields[CPU_STATE]["PolicyName"] = given.random.choice(("none", "static", "", 'od"d'))
    given.fields[MEMORY_STATE]["PolicyName"] = given.random.choice(("None", "Static", "", "Stati\\c"))


def _other_reserved_cpus(given: _Restart) -> None:
    cpus = given.cpus
    given.case["kubelet"]["reservedSystemCPUs"] = ",".join(
        map(str, sorted(given.random.sample(cpus, given.random.randint(1, min(3, len(cpus))))))
    )


def _other_options(given: _Restart) -> None:
    options = given.case["kubelet"].setdefault("cpuManagerPolicyOptions", {})
    options["strict-cpu-reservation"] = given.random.choice(("true", "false"))


def _other_reserved_memory(given: _Restart) -> None:
    for reservation in given.case["kubelet"].get("reservedMemory", ()):
        reservation["limits"]["memory"] = given.random.choice(("64Mi", "100Mi", "128Mi"))


def _a_cpu_goes(given: _Restart) -> None:
    if len(given.cpus) == 1:
        return
    core = given.random.choice(given.case["machine"]["cores"])
    threads = core["threads"].split(",")
    threads.remove(given.random.choice(threads))
    core["threads"] = ",".join(threads)
    given.case["machine"]["cores"] = [each for each in given.case["machine"]["cores"] if each["threads"]]


def _cpus_come(given: _Restart) -> None:
    core = given.random.choice(given.case["machine"]["cores"])
    core["threads"] += f",{given.cpus[-1] + 1}"


def _other_memory(given: _Restart) -> None:
    node = given.random.choice(given.case["machine"]["numaNodes"])
    node["memory"] = abs(node["memory"] + (given.random.choice((-1, 1)) << 20))


def _other_hugepages(given: _Restart) -> None:
    node = given.random.choice(given.case["machine"]["numaNodes"])
    if node.get("hugepages") and given.random.random() < 0.7:
        given.random.choice(node["hugepages"])["count"] += 1
    else:
        node["hugepages"] = [{"size": 2 << 20, "count": 4}]


def _a_numa_node_comes(given: _Restart) -> None:
    number = max(node["id"] for node in given.case["machine"]["numaNodes"]) + 1
    for node in given.case["machine"]["numaNodes"]:
        node.pop("distances", None)
    given.case["machine"]["numaNodes"].append({"id": number, "memory": 1 << 30})


def _another_machine(given: _Restart) -> None:
    other = random_case(given.random)
    given.case["machine"], given.case["devices"] = other["machine"], other["devices"]
    given.case["kubelet"] = {**other["kubelet"], "version": given.case["kubelet"]["version"]}


def _torn_cpus(given: _Restart) -> None:
    """A CPU nowhere, or in two places."""
    cpus = given.fields[CPU_STATE]
    places: list[tuple[Fields, str]] = [(cpus, "DefaultCPUSet")]
    places += [(entry, name) for entry in cpus["Entries"].values() for name in entry]
    holder, name = given.random.choice(places)
    try:
        bits = parse_id_list(holder[name]) if holder[name] else 0
    except InvalidIDList:  # another change has made it odd
        return
    bits ^= 1 << given.random.choice(given.cpus)
    holder[name] = format_id_list(bits)


def _an_odd_field(given: _Restart) -> None:
    """A field of CPUs that is written in another way, or is none."""
    cpus = given.fields[CPU_STATE]
    place: Fields = given.random.choice([cpus, *filter(None, cpus["Entries"].values())])
    name = "DefaultCPUSet" if place is cpus else given.random.choice(sorted(place))
    place[name] = given.random.choice(
        ("", " 0", "0-", "0,,1", "a", "3-1", "1,1", "+1", "0-1-2", "99999999999999999999", "é", '"')
    )


def _other_blocks(given: _Restart) -> None:
    blocks = [
        block for entry in given.fields[MEMORY_STATE]["Entries"].values() for each in entry.values() for block in each
    ]
    if not blocks:
        given.fields[MEMORY_STATE]["Entries"] = {"gone": {"c": [{"NUMAAffinity": [0], "Type": "memory", "Size": 1}]}}
        return
    block = given.random.choice(blocks)
    change = given.random.choice(("Size", "NUMAAffinity", "Type"))
    block[change] = {
        "Size": block["Size"] + 1,
        "NUMAAffinity": given.random.choice(([0], [0, 1], [7], [])),
        "Type": given.random.choice(("memory", "hugepages-2Mi", "hugepages-1Gi")),
    }[change]


def _another_machine_state(given: _Restart) -> None:
    state = given.fields[MEMORY_STATE]["MachineState"]
    if not state or given.random.random() < 0.1:
        given.fields[MEMORY_STATE]["MachineState"] = {}
        return
    number = given.random.choice(sorted(state))
    kind = given.random.randrange(6)
    if kind == 0:
        del state[number]
    elif kind == 1:
        state[number] = None
    elif kind == 2:
        state[number]["Cells"] = given.random.choice(([], [0, 1], [9], None))
    elif kind == 3:
        state[number]["NumberOfAssignments"] += 1
    elif kind == 4:
        state[number]["MemoryMap"]["memory"] = None
    else:
        table = given.random.choice(sorted(state[number]["MemoryMap"].items()))[1]
        table[given.random.choice(sorted(table))] += 1


def _a_pod_more(given: _Restart) -> None:
    """An entry without containers, and what whole pods have."""
    given.fields[CPU_STATE]["Entries"]["gone"] = {}
    given.fields[CPU_STATE]["PodEntries"]["gone"] = {"CPUSet": 1 << given.random.choice(given.cpus)}


def _baselines(given: _Restart) -> None:
    given.fields[CPU_STATE]["Baselines"] = {"gone": {"c": {"Baseline": given.random.choice(("0", "x", "1-"))}}}
    given.case["kubelet"].setdefault("featureGates", {})["InPlacePodVerticalScalingExclusiveCPUs"] = (
        given.random.random() < 0.7
    )


_CHANGES: tuple[Callable[[_Restart], None], ...] = (
    _another_policy,
    _another_saved_policy,
    _other_reserved_cpus,
    _other_options,
    _other_reserved_memory,
    _a_cpu_goes,
    _cpus_come,
    _other_memory,
    _other_hugepages,
    _a_numa_node_comes,
    _another_machine,
    _torn_cpus,
    _an_odd_field,
    _other_blocks,
    _another_machine_state,
    _a_pod_more,
    _baselines,
)


# What happens to a file's text


def _cut(random: Random, content: bytes) -> bytes:
    return content[: random.randrange(len(content) + 1)]


def _a_byte(random: Random, content: bytes) -> bytes:
    at = random.randrange(len(content) + 1)
    odd = random.choice(
        (b"{", b"}", b"[", b"]", b'"', b",", b":", b"\\", b"'", b"\x00", b"\xff", b"\xa0", b"x", b"-", b"1")
    )
    return content[:at] + odd + content[at + random.randrange(2) :]


def _junk(random: Random, _: bytes) -> bytes:
    odd = (
        b"",
        b" ",
        b"null",
        b"[]",
        b"{}",
        b"0",
        b'"x"',
        b"tru",
        b"-",
        b"1.",
        b"1e",
        b"{]",
        b'{"a"',
        b'{"a":1,}',
        b"[1 2]",
        b"\\",
    )
    return random.choice(
        (*odd, b"{} {}", b'"\\x"', b'"\\u12g"', b"01", b"\xef\xbb\xbf{}", b"[" * 50, b'{"policyName":"static"}')
    )


def _another_checksum(random: Random, content: bytes) -> bytes:
    document = json.loads(content)
    name = random.choice([name for name in document if "hecksum" in name])
    document[name] = random.choice((0, 1, document[name] + 1, str(document[name]), -1, None, 1 << 64))
    return json.dumps(document).encode()


def _another_value(random: Random, content: bytes) -> bytes:
    document = json.loads(content)
    places = list(_places(document))
    if not places:
        return content
    holder, key = random.choice(places)
    holder[key] = random.choice(JUNK)
    return json.dumps(document).encode()


def _another_name(random: Random, content: bytes) -> bytes:
    """A field in another case, twice, or gone; the checksum may stay right."""
    document = json.loads(content)
    named = [(holder, key) for holder, key in _places(document) if isinstance(key, str)]
    if not named:
        return content
    holder, key = random.choice(named)
    content_of = holder[key]
    if random.random() < 0.3:
        del holder[key]
    if random.random() < 0.8:
        holder[random.choice((key.upper(), key.lower(), key.title(), f"{key}x"))] = content_of
    return json.dumps(document).encode()


def _no_checksum(random: Random, content: bytes) -> bytes:
    """A file as of an old kubelet: no checksum, and fields that have changed."""
    document = json.loads(content)
    document = {name: each for name, each in document.items() if name not in {"data", "dataChecksum", "checksum"}}
    if random.random() < 0.5:
        return _another_value(random, json.dumps(document).encode())
    if random.random() < 0.3:
        document["entries"] = random.choice(({}, {"0123abcd": "1-2"}, None))
    return json.dumps(document).encode()


def _indented(random: Random, content: bytes) -> bytes:
    return json.dumps(json.loads(content), indent=random.choice((1, "\t"))).encode() + b"\n"


_SPOILS: tuple[Callable[[Random, bytes], bytes], ...] = (
    _cut,
    _a_byte,
    _junk,
    _another_checksum,
    _another_value,
    _another_name,
    _no_checksum,
    _indented,
)


def _places(document: Any) -> Iterator[tuple[Any, Any]]:
    pairs = list(document.items()) if isinstance(document, dict) else list(enumerate(document))
    for key, each in pairs:
        yield document, key
        if isinstance(each, dict | list):
            yield from _places(each)
