"""An agent or an API server that is away for a moment costs no case; one that stays away ends the test and is named."""

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.builders import READY, node_state
from tests.cli.numa.selftest.served_node import AWAY, Answer, ServedNode, failure, kubeconfig_of
from tests.clock import Clock
from tests.interrupts import heeded, interrupt_in_a_finalizer
from tests.selftest.seen import case_of

from topomend.check.installed_objects import COMPONENT_LABEL
from topomend.cli.kubectl_numa import numa
from topomend.cli.numa.cluster.cluster import Cluster
from topomend.cli.numa.selftest.trials import Outcome, Trials
from topomend.kube.client import connect
from topomend.model.condition import Condition
from topomend.model.nodes.node_state import NodeState
from topomend.selftest.cases import Case
from topomend.selftest.compare import Agreement, Judgement

PATIENCE = 300
"""Seconds: more than any step takes, on a machine however busy."""

NOT_READY = Condition("Ready", "False", "Restarted", "the kubelet was not read yet")
AGENT_WORDS = "a: its agent says Restarted: the kubelet was not read yet"

LOOKS = 3
"""How often something is away."""


def served(**fields: Any) -> ServedNode:
    return ServedNode(node_state("sockets:2 cores:2 memory:2Gi"), **fields)


def tried(node: ServedNode, folder: Path, *names: str, seconds: float = PATIENCE) -> list[Outcome]:
    """What became of the cases of these names, by default of one that is admitted and one that is refused."""
    with kubeconfig_of(node, folder) as config:
        client = connect(str(config))
        clock = Clock()
        trials = Trials(Cluster(client, "default"), "a", "any", seconds, clock=clock, pause=clock.advance)
        with trials.in_a_namespace():
            outcomes = [trials.try_case(case_of(node.state, name)) for name in names or ("one-cpu", "beyond")]
        assert trials.notes == []
        client.close()
    return outcomes


def assert_all_agree(outcomes: list[Outcome]) -> None:
    assert [outcome.judgement for outcome in outcomes] == [Judgement(Agreement.AGREES)] * len(outcomes)
    assert [outcome.answer and outcome.answer.admitted for outcome in outcomes] == [True, False]


def ask(node: ServedNode, folder: Path) -> Result:
    """The whole command, with no patience."""
    with kubeconfig_of(node, folder) as config:
        words = ["selftest", "a", "--yes", "-o", "json", "--timeout=1", f"--kubeconfig={config}"]
        return CliRunner().invoke(numa, words)


def away_after(is_it: Callable[[str, str], bool], answer: Answer) -> Callable[[str, str], Answer | None]:
    """Answers LOOKS requests in the server's place, from the first one on of which ``is_it`` is true."""
    left = [LOOKS]

    def before(method: str, path: str) -> Answer | None:
        if left[0] == LOOKS and not is_it(method, path):
            return None
        left[0] -= 1
        return answer if left[0] >= 0 else None

    return before


def away_once_created(name: str) -> Callable[[ServedNode], Condition]:
    """An agent that is not ready at LOOKS looks, from the first one on while the pod ``name`` exists."""
    left = [LOOKS]

    def says(node: ServedNode) -> Condition:
        if left[0] == LOOKS and name not in node.pods:
            return READY
        left[0] -= 1
        return NOT_READY if left[0] >= 0 else READY

    return says


def away_between_pods() -> Callable[[ServedNode], Condition]:
    """An agent that is not ready at LOOKS looks, from the one on that waits for the first pod to leave."""
    seen = Counter[str]()

    def says(node: ServedNode) -> Condition:
        seen["pods"] += bool(node.pods)
        seen["away"] += bool(seen["pods"] and not node.pods)
        return NOT_READY if 1 <= seen["away"] <= LOOKS else READY

    return says


def a_part_of(node: ServedNode) -> NodeState:
    """What an agent sees that looks while the kubelet allocates."""
    pods = (replace(pod, containers=pod.containers[:1]) for pod in node.state.pods)
    return replace(node.state, pods=tuple(pods))


def without_pods(node: ServedNode) -> NodeState:
    """What an agent sees that looks before the kubelet allocates."""
    return replace(node.state, pods=())


def created(node: ServedNode) -> list[tuple[str, str]]:
    """The requests to create a pod."""
    return [(method, path) for method, path in node.requests if method == "POST" and path.endswith("/pods")]


def test_nothing_is_said_where_nothing_is_away(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert_all_agree(tried(served(), tmp_path))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "agent",
    [away_between_pods(), away_once_created("one-cpu"), away_once_created("beyond")],
    ids=["between two pods", "while a pod runs", "after a refusal"],
)
def test_an_agent_that_is_not_ready_for_a_moment_is_waited_for(
    agent: Callable[[ServedNode], Condition], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert_all_agree(tried(served(agent_says=agent), tmp_path))
    assert re.fullmatch(rf"waiting up to \d+ s: {AGENT_WORDS}\n", capsys.readouterr().err)


@pytest.mark.parametrize(
    "answer",
    [AWAY, failure(503, "ServiceUnavailable", "starting"), failure(429, "TooManyRequests", "later")],
    ids=["no answer", "unavailable", "too many requests"],
)
@pytest.mark.parametrize(
    "request_of",
    [
        lambda method, path: method == "GET" and path.endswith("/nodetopologies/a"),
        lambda method, path: method == "POST" and path.endswith("/pods"),
        lambda method, path: method == "GET" and path.endswith("/pods/beyond"),
        lambda method, path: method == "DELETE" and path.endswith("/pods/one-cpu"),
        lambda method, path: method == "DELETE" and "/pods/" not in path,
    ],
    ids=["look", "creation", "kubelet's answer", "deletion", "namespace's deletion"],
)
def test_an_api_server_that_is_away_for_a_moment_is_waited_for(
    request_of: Callable[[str, str], bool], answer: Answer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begun = [False]

    def in_a_trial(method: str, path: str) -> bool:
        begun[0] = begun[0] or method == "POST"
        return begun[0] and request_of(method, path)

    node = served(before=away_after(in_a_trial, answer))
    assert_all_agree(tried(node, tmp_path))
    assert not node.namespaces
    assert re.match(r"waiting up to \d+ s: ", capsys.readouterr().err)


def test_a_pod_whose_creation_was_not_confirmed_is_the_one_that_is_tried(tmp_path: Path) -> None:
    node = served()
    node.lost = lambda method, path: method == "POST" and path.endswith("/pods") and len(created(node)) == 1
    assert_all_agree(tried(node, tmp_path))
    assert len(created(node)) == 3  # one of them twice


def test_an_api_server_that_has_just_started_may_know_nobody_for_a_moment(tmp_path: Path) -> None:
    answers = iter([AWAY, failure(403, "Forbidden", "nobody is known yet"), failure(401, "Unauthorized")])
    begun = [False]

    def before(method: str, path: str) -> Answer | None:
        begun[0] = begun[0] or method == "POST"
        return next(answers, None) if begun[0] and path.endswith("/nodetopologies/a") else None

    assert_all_agree(tried(served(before=before), tmp_path))


def test_admission_that_is_not_ready_yet_is_waited_for(tmp_path: Path) -> None:
    not_ready = failure(403, "Forbidden", "pods is forbidden: not yet ready to handle request")
    before = away_after(lambda method, path: method == "POST" and path.endswith("/pods"), not_ready)
    assert_all_agree(tried(served(before=before), tmp_path))


def test_a_right_that_is_missing_is_not_waited_for(tmp_path: Path) -> None:
    right = failure(403, "Forbidden", 'pods is forbidden: User "u" cannot create resource "pods"')
    node = served(before=lambda method, path: right if method == "POST" and path.endswith("/pods") else None)
    result = ask(node, tmp_path)
    assert result.exit_code == 3
    assert "waiting" not in result.stderr
    assert "cluster-admin" in result.stderr
    assert not node.namespaces


def test_an_agent_that_stays_away_ends_the_test_and_is_named(tmp_path: Path) -> None:
    was_there = [False]

    def says(node: ServedNode) -> Condition:
        was_there[0] = was_there[0] or "one-cpu" in node.pods
        return NOT_READY if was_there[0] else READY

    node = served(agent_says=says)
    result = ask(node, tmp_path)
    assert result.exit_code == 3, result.output
    answer = json.loads(result.stdout)
    unsure = [case for case in answer["cases"] if case["result"] == "unsure"]
    assert [case["name"] for case in unsure] == ["one-cpu"]
    assert unsure[0]["why"] == [f"{AGENT_WORDS}, for 1 s"]
    assert answer["counts"]["notTried"] > 0
    assert answer["notes"] == [f"the other cases were not tried: {AGENT_WORDS}, for 1 s"]
    assert not node.pods
    assert not node.namespaces


def agent_pod(**status: Any) -> dict[str, Any]:
    metadata = {"name": "topomend-agent-x", "namespace": "topomend-agent", "labels": {COMPONENT_LABEL: "agent"}}
    return {"metadata": metadata, "spec": {"nodeName": "a"}, "status": status}


def test_an_agent_that_ended_without_a_word_is_named_where_nothing_is_published(tmp_path: Path) -> None:
    waiting = {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}
    pod = agent_pod(phase="Running", containerStatuses=[{"state": {"waiting": waiting}}])
    node = served(publishes=without_pods, agents=[pod])
    (outcome,) = tried(node, tmp_path, "one-cpu")
    assert outcome.judgement.agreement is Agreement.UNSURE
    assert outcome.judgement.why == (
        "a: nothing is published of the pod, and its agent is not ready: CrashLoopBackOff: back-off 5m0s, for 300 s",
    )


@pytest.mark.parametrize(
    "agents", [[], [agent_pod(conditions=[{"type": "Ready", "status": "True"}])]], ids=["no pod", "ready"]
)
def test_a_pod_that_holds_nothing_beside_a_ready_agent_differs(agents: list[dict[str, Any]], tmp_path: Path) -> None:
    (outcome,) = tried(served(publishes=without_pods, agents=agents), tmp_path, "one-cpu", seconds=20)
    assert outcome.judgement == Judgement(
        Agreement.DIFFERS, ("container main: CPUs 1 predicted, shared CPUs allocated",)
    )


def test_an_api_server_that_stays_away_ends_the_test(tmp_path: Path) -> None:
    begun = [False]

    def before(method: str, path: str) -> Answer | None:
        begun[0] = begun[0] or (method == "DELETE" and path.endswith("/pods/one-cpu"))
        return AWAY if begun[0] else None

    result = ask(served(before=before), tmp_path)
    assert result.exit_code == 3, result.output
    left, why = json.loads(result.stdout)["notes"]
    assert "kubectl numa selftest --clean deletes it" in left
    assert why.startswith("the other cases were not tried: DELETE ")


def test_a_webhook_that_fails_for_good_ends_the_test_with_its_words(tmp_path: Path) -> None:
    broken = failure(500, "InternalError", 'failed calling webhook "x.example": no endpoints')
    node = served(before=lambda method, path: broken if method == "POST" and path.endswith("/pods") else None)
    result = ask(node, tmp_path)
    assert result.exit_code == 3, result.output
    answer = json.loads(result.stdout)
    assert answer["counts"]["unsure"] == 1
    assert "the cluster cannot create the pod: failed calling webhook" in answer["notes"][0]
    assert not node.namespaces


def test_a_pod_that_the_kubelet_does_not_answer_is_in_nobodys_way(tmp_path: Path) -> None:
    node = served(kubelet_answers=lambda name: name != "one-cpu")
    unsure, agreeing = tried(node, tmp_path, seconds=5)
    assert unsure.judgement == Judgement(Agreement.UNSURE, ("the kubelet has not answered within 5 s",))
    assert agreeing.judgement == Judgement(Agreement.AGREES)


def test_what_is_published_has_to_settle_anew_after_an_agent_was_away(tmp_path: Path) -> None:
    """It shows a part of what the pod holds, is away for longer than that has to last, shows it again, then all."""
    shown = iter(["part", *["away"] * 20, "part", "all"])
    now = ["all"]

    def says(node: ServedNode) -> Condition:
        now[0] = next(shown, "all") if node.pods else "all"
        return NOT_READY if now[0] == "away" else READY

    node = served(agent_says=says, publishes=lambda node: a_part_of(node) if now[0] == "part" else node.state)
    (outcome,) = tried(node, tmp_path, "sidecar")
    assert outcome.judgement == Judgement(Agreement.AGREES)
    assert len(created(node)) == 1
    assert next(shown, "") == ""


def test_what_never_stays_the_same_is_unsure(tmp_path: Path) -> None:
    looks = count()
    node = served(publishes=lambda node: a_part_of(node) if next(looks) % 2 else without_pods(node))
    unsure, agreeing = tried(node, tmp_path, "sidecar", "beyond", seconds=10)
    why = "what is published of the pod has not stayed the same within 10 s"
    assert unsure.judgement == Judgement(Agreement.UNSURE, (why,))
    assert agreeing.judgement == Judgement(Agreement.AGREES)


def test_an_interrupt_that_a_finalizer_swallows_ends_the_test_after_the_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_whole = Trials.try_case

    def interrupted(trials: Trials, case: Case) -> Outcome:
        interrupt_in_a_finalizer()
        return in_whole(trials, case)

    monkeypatch.setattr(Trials, "try_case", interrupted)
    node = served()
    with heeded():
        result = ask(node, tmp_path)
    assert result.exit_code == 3, result.output
    answer = json.loads(result.stdout)
    assert answer["counts"]["agrees"] == 1
    assert answer["notes"] == ["interrupted: the other cases were not tried"]
    assert not node.namespaces
