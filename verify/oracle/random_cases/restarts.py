"""Restarts of a kubelet that is not ready yet: it admits its pods again beside what it finds in its runtime.

Some of its plugins come back later than that. Steps as ``kubelet/case.go`` describes them.
"""

from collections.abc import Iterable, Iterator
from random import Random

from verify.oracle.kubelet_oracle import Case


def unready_restart(random: Random, pods: Iterable[Case], resources: Iterable[str]) -> list[Case]:
    """A restart after which all ``pods`` are admitted again before the kubelet's sources are ready.

    Any of the plugins of ``resources`` are away, and most of them come back: before the pods, among them, or after.
    """
    pods = list(pods)
    away = [resource for resource in resources if random.random() < 0.6]
    found = [each for pod in pods for each in _found(random, pod)]
    random.shuffle(found)
    steps: list[Case] = [{"admit": pod} for pod in pods]
    steps.append({"ready": True})
    for resource in away:
        if random.random() < 0.8:
            steps.insert(random.randint(0, len(steps)), {"connect": [resource]})
    return [{"restart": True, "found": found, "away": away}, *steps]


def _found(random: Random, pod: Case) -> Iterator[Case]:
    """The instances of the pod's containers: all run, some still wait, or all have ended as in a reboot."""
    spec, uid = pod["spec"], pod["metadata"]["uid"]
    initial = spec.get("initContainers", [])
    stage = random.choice(("running", "running", "running", "initializing", "ended", "removed"))
    if stage == "removed":
        return
    upto = random.randrange(len(initial)) if stage == "initializing" and initial else len(initial)
    for number, container in enumerate(initial[: upto + 1]):
        runs = stage != "ended" and (number == upto or container.get("restartPolicy") == "Always")
        yield from _instances(random, uid, container["name"], runs=runs)
    if upto == len(initial):
        for container in spec["containers"]:
            yield from _instances(random, uid, container["name"], runs=stage != "ended")


def _instances(random: Random, uid: str, name: str, *, runs: bool) -> Iterator[Case]:
    """Those of one container; one that restarted has an earlier one, which has ended."""
    if random.randrange(8) == 0 or (not runs and random.random() < 0.7):
        yield {"podUID": uid, "name": name}
    if runs:
        yield {"podUID": uid, "name": name, "running": True}
