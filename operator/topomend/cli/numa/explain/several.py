"""Many pods in one answer: those that are refused or wait first, and pods with the same answer in one paragraph.

Owns putting pods together. Leaves the answer about one pod to ``answer``.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from topomend.cli.numa.cluster.arguments.pod_argument import RequestedPod, read_requested
from topomend.cli.numa.explain.answer import Answer
from topomend.cli.numa.explain.ask import answer_to
from topomend.cli.numa.explain.pod_state import State, scheduling_words, state_of
from topomend.cli.numa.explain.question import Facts, Question
from topomend.cli.output.console import echo
from topomend.cli.output.failures import NO, NOT_KNOWN, YES, BadInput
from topomend.cli.output.formats import WIDE

MOST_NAMES = 5
"""Pods that a paragraph names, unless in ``wide``."""

MOST_REJECTED = 10
"""Nodes of which a paragraph says why they would not admit its pods, unless in ``wide``."""


@dataclass(frozen=True)
class SeenPod:
    """A pod of a list. ``content`` is the Pod object, of those alone that ask for a look."""

    namespace: str
    name: str
    state: State
    content: Mapping[str, Any] | None


@dataclass(frozen=True)
class Group:
    """Pods in the same state with the same answer, which is that about the first of them."""

    state: State
    pods: tuple[SeenPod, ...]
    answer: Answer


@dataclass(frozen=True)
class Overview:
    """All pods that were asked about: ``title`` is what the user named, ``counts`` how many are in which state.

    ``of_template`` is the answer about a pod that a workload without pods would create. ``everywhere`` is whether pods
    are named with their namespaces, ``owners_known`` whether no pod can have been missed.
    """

    title: str
    counts: Mapping[State, int]
    groups: tuple[Group, ...]
    notes: tuple[str, ...] = ()
    of_template: Answer | None = None
    everywhere: bool = False
    owners_known: bool = True

    @property
    def code(self) -> int:
        """The exit code: that of the worst answer."""
        codes = {answer.on_node.code for answer in self._answers} | (set() if self.owners_known else {NOT_KNOWN})
        return next((code for code in (NO, NOT_KNOWN) if code in codes), YES)

    def lines(self, output: str) -> Iterator[str]:
        """The paragraphs, each after an empty line."""
        yield self.counted
        yield from (f"  {note}" for note in self.notes)
        most, rejected = (None, None) if output == WIDE else (MOST_NAMES, MOST_REJECTED)
        for group in self.groups:
            yield ""
            yield self.heading(group, most)
            yield from (f"  {line}" for line in group.answer.lines(output, rejected) if line not in group.answer.notes)
        if self.of_template:
            yield "a pod of its template:"
            yield from (f"  {line}" for line in self.of_template.lines(output) if line not in self.of_template.notes)
        for note in dict.fromkeys(note for answer in self._answers for note in answer.notes):
            yield from ("", note)

    def record(self) -> dict[str, Any]:
        """What programs read; docs/reference.md lists the fields."""
        return {
            "asked": self.title,
            "counts": {state.key: self.counts.get(state, 0) for state in State},
            "groups": [
                {
                    "state": group.state.key,
                    "pods": [{"namespace": pod.namespace, "name": pod.name} for pod in group.pods],
                    **_without_name(group.answer),
                }
                for group in self.groups
            ],
            **({"template": self.of_template.record()} if self.of_template else {}),
        }

    @property
    def counted(self) -> str:
        """How many pods are in which state."""
        counts = ", ".join(f"{self.counts[state]} {_verb(state, self.counts[state])}" for state in self.counts)
        none = "no pods" if self.owners_known else "no pods that are known to be of it"
        return f"{self.title}: {counts or none}"

    def heading(self, group: Group, most: int | None = MOST_NAMES) -> str:
        """What a group's pods do, and the names of at most so many; of all if None."""
        return _heading(group, everywhere=self.everywhere, most=most)

    @property
    def admitting(self) -> list[str]:
        """The nodes that would admit one of the pods."""
        names = (candidate.node for answer in self._answers for candidate in answer.diagnosis.candidates)
        return list(dict.fromkeys(names))

    @property
    def _answers(self) -> list[Answer]:
        return [*(group.answer for group in self.groups), *([self.of_template] if self.of_template else [])]


def seen(content: Mapping[str, Any]) -> SeenPod:
    """A Pod object of a list, as far as it is needed."""
    metadata, state = content["metadata"], state_of(content)
    return SeenPod(metadata["namespace"], metadata["name"], state, content if state.asks_for_a_look else None)


def overview(facts: Facts, pods: Sequence[SeenPod], title: str, node: str) -> Overview:
    """Ask the nodes about the pods that ask for a look. ``node`` is the one that the user named, or empty.

    Pods of one controller that differ in their names alone are asked about once. Raises BadInput and APIError.
    """
    counted = Counter(pod.state for pod in pods)

    groups = []
    for state, alike in _alike(pods):
        running = _newest(alike)
        answer = answer_to(facts, Question(running, None, node), facts.around.requests_on)
        groups.append(Group(state, tuple(pod for pod, _ in alike), answer))
    return Overview(title, {state: counted[state] for state in State if counted[state]}, tuple(_merged(groups)))


_Read = tuple[SeenPod, RequestedPod]


def _alike(pods: Iterable[SeenPod]) -> Iterator[tuple[State, list[_Read]]]:
    """The readable pods that ask for a look, those together to which every node answers alike."""
    order = list(State)
    groups = defaultdict[tuple[object, ...], list[_Read]](list)
    for pod in sorted(pods, key=lambda pod: (order.index(pod.state), pod.namespace, pod.name)):
        if pod.content is None:
            continue
        try:
            read = read_requested(dict(pod.content), f"pod {pod.namespace}/{pod.name}")
        except BadInput as error:
            echo(f"{error.message}: it is passed over", err=True)
            continue
        groups[_kind(pod, read)].append((pod, read))
    for alike in groups.values():
        yield alike[0][0].state, alike


def _kind(pod: SeenPod, read: RequestedPod) -> tuple[object, ...]:
    content, status = read.content, read.content.get("status") or {}
    metadata = content["metadata"]
    controllers = (each["uid"] for each in metadata.get("ownerReferences") or () if each.get("controller"))
    owner = next(controllers, metadata["uid"])
    as_asked = replace(read.pod, name="", uid="")
    gates = tuple(gate.get("name", "") for gate in content["spec"].get("schedulingGates") or ())
    said = status.get("reason"), status.get("message"), gates or scheduling_words(content)
    volumes = content["spec"].get("volumes") or ()
    # Each pod of a StatefulSet has volumes of its own, which may be on another node; so has one with ephemeral volumes.
    claims = [str(each["persistentVolumeClaim"]) for each in volumes if "persistentVolumeClaim" in each]
    claims += [metadata["name"]] if any("ephemeral" in each for each in volumes) else []
    node, asked = content["spec"].get("nodeName"), (repr(as_asked), repr(read.placement), tuple(claims))
    return pod.state, pod.namespace, owner, node, *said, *asked


def _newest(alike: Iterable[_Read]) -> RequestedPod:
    """The youngest of the pods: of several refusals the last counts."""
    return max((read for _, read in alike), key=lambda read: str(read.content["metadata"].get("creationTimestamp", "")))


def _merged(groups: Iterable[Group]) -> Iterator[Group]:
    """The groups, those in one whose answers differ in the pods' names alone."""
    by_words = defaultdict[tuple[object, ...], list[Group]](list)
    for group in groups:
        by_words[(group.state, *_nameless(group.answer))].append(group)
    for same in by_words.values():
        yield replace(same[0], pods=tuple(pod for group in same for pod in group.pods))


def _nameless(answer: Answer) -> Iterator[str]:
    name = re.compile(rf"(?<![\w.-]){re.escape(answer.pod.name)}(?![\w.-])")
    gate = answer.wait.gate
    lines = (gate.reason if gate and line == gate.first else line for line in answer.lines(WIDE))
    return (name.sub("", line) for line in lines)


def _without_name(answer: Answer) -> dict[str, Any]:
    return {key: value for key, value in answer.record().items() if key not in ("namespace", "name")}


def _heading(group: Group, *, everywhere: bool, most: int | None) -> str:
    names = [f"{pod.namespace}/{pod.name}" if everywhere else pod.name for pod in group.pods]
    more = f" and {len(names) - most} more" if most is not None and len(names) > most else ""
    count = f"{len(names)} pods " if len(names) > 1 else ""
    return f"{count}{_verb(group.state, len(names))}: {', '.join(names[:most])}{more}"


def _verb(state: State, count: int) -> str:
    """``waits for a node``, or of several ``wait for a node``."""
    if count == 1 or state is State.REFUSED:
        return state.value
    return {State.ENDED: "have ended"}.get(state) or re.sub(r"^(\w+?)s\b", r"\1", state.value)
