"""Machines of shapes as the oracle's: the known ones, and random ones with everything that a shape can have."""

from random import Random

from verify.oracle.kubelet_oracle import Case
from verify.oracle.random_cases.recorded import case_machine

from topomend.model.shapes.known_machines import MACHINES
from topomend.model.shapes.shape import parse_shape

KNOWN = tuple(machine.name for machine in MACHINES)
"""The names of the known machines."""


def machine_of_shape(shape: str) -> Case:
    """The machine of a shape, or of one of KNOWN."""
    return case_machine(parse_shape(shape).machine())


def random_shape(random: Random, *, most_numa_nodes: int = 8) -> str:
    """A line of a shape's grammar. Machines stay below 100 CPUs."""
    sockets, numa = random.choice([(1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (4, 1)])
    with_cpus = sockets * numa
    cores, threads, ecores = random.randint(1, 4), random.randint(1, 2), random.choice([0, 0, 1, 3])
    cpus = with_cpus * (cores * threads + ecores)
    cpuless = random.randint(0, min(3, most_numa_nodes - with_cpus)) if random.random() < 0.5 else 0
    words = [f"sockets:{sockets} numa:{numa} cores:{cores} threads:{threads}", _memory(random, with_cpus)]
    if ecores:
        words.append(f"ecores:{ecores}")
    if cpuless:
        words.append("cpuless:" + ",".join(random.choice(["0", "1Gi", "4Gi"]) for _ in range(cpuless)))
    if random.random() < 0.6:
        words.append(
            "numbering:" + ",".join(random.choice([["interleaved"], ["adjacent"], ["interleaved", "adjacent"]]))
        )
    if random.random() < 0.5:
        words.append(f"l3:{random.choice(['socket', random.randint(1, cores + ecores)])}")
    if random.random() < 0.4:
        words.append(f"hugepages-2Mi:{random.choice([0, 64, 128])}")
    if cpus > 2 and random.random() < 0.4:
        offline = random.sample(range(cpus), random.randint(1, max(1, cpus // 4)))
        words.append("offline:" + ",".join(map(str, sorted(offline))))
    if random.random() < 0.2:
        words.append(f"isolated:{random.randrange(cpus)}")
    if random.random() < 0.4:
        words.append(_distances(random, with_cpus + cpuless))
    return " ".join(words)


def _memory(random: Random, with_cpus: int) -> str:
    if with_cpus == 1 or random.random() < 0.6:
        return f"memory:{random.choice(['2Gi', '4Gi', '8Gi'])}"
    amounts = [random.choice(["0", "1Gi", "4Gi", "8Gi"]) for _ in range(with_cpus)]
    amounts[random.randrange(with_cpus)] = "4Gi"
    return "memory:" + ",".join(amounts)


def _distances(random: Random, nodes: int) -> str:
    if nodes == 1 or random.random() < 0.5:
        return f"distances:{random.randint(11, 20)},{random.randint(20, 40)}"
    return "distances:" + "/".join(
        ",".join("10" if node == other else str(random.choice([11, 13, 17, 21, 255])) for other in range(nodes))
        for node in range(nodes)
    )
