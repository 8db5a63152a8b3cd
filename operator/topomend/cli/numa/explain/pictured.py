"""The answer of ``explain`` as a picture: what a pod asks for, what each node has of it, and what would help.

Loaded where a picture is asked for. Leaves the drawing to ``picture.refusal``.
"""

from collections.abc import Iterable, Iterator

from topomend.cache.snapshot import Snapshot
from topomend.cli.numa.explain.answer import Answer
from topomend.cli.numa.explain.several import Overview
from topomend.cli.output.formats import WIDE
from topomend.decide.diagnosis.node_status import UNKNOWN, NodeStatus
from topomend.picture import refusal
from topomend.picture.drawing import page
from topomend.picture.drawing.document import Picture, Section


def drawn(answer: Answer | Overview, snapshot: Snapshot, output: str) -> str:
    """The file. ``snapshot`` is what was asked."""
    if isinstance(answer, Answer):
        name = f"{answer.pod.namespace}/{answer.pod.name}"
        return page.written(Picture(f"Explanation of pod {name}", [_section(answer, snapshot, name)]), output)
    sections = [_section(group.answer, snapshot, answer.heading(group)) for group in answer.groups]
    if answer.of_template:
        sections.append(_section(answer.of_template, snapshot, "A pod of its template"))
    words = [answer.counted, *answer.notes]
    return page.written(
        Picture(f"Explanation of {answer.title}", sections or [Section("No pod to explain")], words), output
    )


def _section(answer: Answer, snapshot: Snapshot, heading: str) -> Section:
    replies = [*_replies(answer, snapshot)]
    return refusal.section_of(refusal.Asked(answer.pod, heading, replies, [*_sentences(answer, replies)]))


def _sentences(answer: Answer, replies: Iterable[refusal.Reply]) -> Iterator[str]:
    """The lines of the answer but its tables, whose amounts the drawing has, and what the nodes answer."""
    told = {*answer.on_node.numbers, *(f"  {line}" for line in answer.wait.table(is_wide=True))}
    told |= {f"  {reply.words}" for reply in replies}
    return (line.strip() for line in answer.lines(WIDE) if line not in told)


def _replies(answer: Answer, snapshot: Snapshot) -> Iterator[refusal.Reply]:
    """The node that was asked first, then those that would admit the pod, then the others, least lacking first."""
    if answer.node:
        yield _own(answer, snapshot)
    for candidate in answer.diagnosis.candidates:
        if candidate.node != answer.node:
            yield refusal.Reply(candidate.node, True, f"on {candidate.place}")  # noqa: FBT003  its verdict
    order = {row.lack.node: number for number, row in enumerate(answer.wait.rows)}
    remedies = {row.lack.node: row.remedy.words for row in answer.wait.rows}
    for rejected in sorted(answer.diagnosis.rejected, key=lambda status: order.get(status.node, 0)):
        if rejected.node != answer.node:
            yield _of(rejected, answer, snapshot, remedies.get(rejected.node, ""))


def _own(answer: Answer, snapshot: Snapshot) -> refusal.Reply:
    said = answer.on_node
    publication = snapshot.publications.get(answer.node)
    amounts = refusal.amounts_of(publication.state, answer.pod) if publication and said.admits is False else ()
    return refusal.Reply(answer.node, said.admits, next(iter(said.lines), ""), amounts, said.remedy)


def _of(status: NodeStatus, answer: Answer, snapshot: Snapshot, remedy: str) -> refusal.Reply:
    admits = None if status.reason == UNKNOWN else False
    asked = snapshot.publications.get(status.node) if status.is_refusal else None
    amounts = refusal.amounts_of(asked.state, answer.pod) if asked else ()
    return refusal.Reply(status.node, admits, answer.diagnosis.explanation(status), amounts, remedy)
