"""A refusal as scripts read it."""

from tests.builders import node_state, pod

from topomend.cli.output.refusal_record import refusal_record
from topomend.explain.explanation import cause_of
from topomend.explain.remedy import remedy_of
from topomend.replay.admission import admit


def test_a_refusal_names_its_cause_its_remedy_and_the_nearest_amounts_as_quantities() -> None:
    state = node_state("sockets:2 numa:4 cores:8 threads:2 memory:64Gi", "restricted", memory_manager="Static")
    asked = pod("p", "cpu=24 memory=20Gi")
    verdict, _ = admit(state, asked)
    cause, remedy = cause_of(verdict, state, asked), remedy_of(state, asked, verdict)
    record = refusal_record(cause, remedy)
    assert record["cause"] == {
        "kind": "PreferencesDiffer",
        "container": "c0",
        "resources": ["cpu", "memory"],
        "sentence": cause.text,
    }
    assert record["remedy"] == remedy.words
    assert record["nearest"] == [
        {"container": "c0", "resource": "cpu", "asked": "24", "admitted": "16"},
        {"container": "c0", "resource": "memory", "asked": "20Gi", "admitted": "65600Mi"},
    ]
    assert record["settings"] == [{"words": "with Memory Manager None", "changes": {"memoryManagerPolicy": "None"}}]
