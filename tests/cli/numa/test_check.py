"""Which of a node's conditions ``check`` reports, besides that it is not Ready. The verb: tests/live/test_numa.py."""

from typing import Any

from topomend.cli.numa.check import would_not_restart


def published(*conditions: tuple[str, str, str]) -> dict[str, Any]:
    names = ("type", "reason", "message")
    listed = [{**dict(zip(names, each, strict=True)), "status": "True"} for each in conditions]
    return {"metadata": {"name": "a"}, "status": {"conditions": listed}}


def test_a_kubelet_that_would_not_start_again_is_a_problem_with_its_file() -> None:
    why = "after a restart the kubelet would not start: ..."
    content = published(
        ("Ready", "WouldNotStartAgain", f"{why}; host, configuration and allocations are known"),
        ("AllocationsRead", "WouldNotStartAgain", why),
    )
    assert would_not_restart(content) == why


def test_a_node_without_such_a_file_is_none() -> None:
    assert would_not_restart(published(("Ready", "Ready", ""), ("AllocationsRead", "Read", "a remark"))) == ""
    assert would_not_restart({"metadata": {"name": "a"}, "status": {"conditions": [7]}}) == ""
    assert would_not_restart({"metadata": {"name": "a"}}) == ""
