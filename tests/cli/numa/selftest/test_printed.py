"""What a self-test prints: a line for each case, one summary, the documented fields, a report without names."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner
from deploy.manifests import ROOT
from tests.builders import node_state, pod, running
from tests.check.cluster import node_object
from tests.selftest.seen import case_of, predicted, seen

from topomend.cli.main import main
from topomend.cli.numa.selftest.printed import document, planned_document, planned_row, reasons, report, row, summary
from topomend.cli.numa.selftest.trials import Outcome
from topomend.cli.output.formats import YAML, document_text
from topomend.selftest.compare import Agreement, Answer, Judgement, judge

STATE = running(
    node_state(memory_manager="Static"), pod("secret-launch", "cpu=1 memory=1Gi", namespace="stealth", uid="f00d")
)

AGREES, DIFFERS, UNSURE = Agreement.AGREES, Agreement.DIFFERS, Agreement.UNSURE


def agreeing(name: str) -> Outcome:
    prediction = predicted(STATE, name)
    verdict = prediction.verdict
    answer = Answer(verdict.admitted, verdict.reason, verdict.message, prediction.allocation)
    return Outcome(case_of(STATE, name), judge(prediction, answer, prediction.seen), prediction, answer)


def differing(name: str) -> Outcome:
    prediction = predicted(STATE, name)
    answer = Answer(admitted=False, reason="TopologyAffinityError", message="Pod was rejected: no")
    return Outcome(case_of(STATE, name), judge(prediction, answer, prediction.seen), prediction, answer)


def unknown(name: str) -> Outcome:
    return Outcome(case_of(STATE, name), Judgement(UNSURE, ("the kubelet has not answered within 60 s",)))


OUTCOMES = [agreeing("one-cpu"), agreeing("beyond"), differing("numa-node"), unknown("sidecar")]


def test_each_case_is_a_line() -> None:
    assert [row(outcome).cells for outcome in OUTCOMES] == [
        ("one-cpu", "1 CPU", "CPUs 2, memory on 0", "CPUs 2, memory on 0", "agrees"),
        (
            "beyond",
            "5 CPUs, more than any NUMA node has free",
            "refused: TopologyAffinityError",
            "refused: TopologyAffinityError",
            "agrees",
        ),
        (
            "numa-node",
            "4 CPUs, the most free on a NUMA node",
            "CPUs 4-7, memory on 1",
            "refused: TopologyAffinityError",
            "differs",
        ),
        ("sidecar", "1 CPU for a sidecar, and 1 CPU", "-", "-", "unsure"),
    ]


def test_a_planned_case_has_its_prediction_alone() -> None:
    assert planned_row(case_of(STATE, "one-cpu"), predicted(STATE, "one-cpu")).cells == (
        "one-cpu",
        "1 CPU",
        "CPUs 2, memory on 0",
    )


def test_what_differs_and_what_is_unsure_has_its_reason() -> None:
    assert list(reasons(OUTCOMES)) == [
        "numa-node: predicted: admitted; what happened: refused, TopologyAffinityError: Pod was rejected: no",
        "sidecar: the kubelet has not answered within 60 s",
    ]


def test_the_summary_counts_all_and_names_the_kubelet() -> None:
    version = STATE.kubelet.version
    assert summary(STATE, OUTCOMES, 6) == (
        f"a (kubelet {version}, single-numa-node, scope container): 2 of 6 agree, 1 differs, 1 unsure, 2 not tried"
    )
    unmanaged = node_state(policy="none", cpu_manager="none")
    assert summary(unmanaged, OUTCOMES[:1], 1) == f"a (kubelet {version}, none): 1 of 1 agree"


def as_document() -> dict[str, Any]:
    return document("a", OUTCOMES, planned=6, left_out=["4 CPUs: too little"], notes=["interrupted"])


def test_the_fields_are_those_of_the_reference() -> None:
    page = (ROOT / "verify" / "reference" / "fields.md").read_text()
    text = page.partition("### selftest\n")[2].partition("\n### ")[0]
    documented = {name for name in re.findall(r"`([a-zA-Z.\[\]]+)`", text) if not name.startswith("selftest")}
    documented -= {"simulate", *(agreement.value for agreement in Agreement)}
    assert set(_paths(as_document())) == documented
    planned = planned_document("a", [(case_of(STATE, "one-cpu"), predicted(STATE, "one-cpu"))], [])
    assert set(planned) == {"node", "cases", "notTried"}


RECORDS = ("cases[].predicted", "cases[].happened.containers[].devices")
"""What is documented as one value."""


def _paths(content: Any, before: str = "") -> Iterator[str]:
    if isinstance(content, list):
        for item in content:
            yield from _paths(item, f"{before}[]")
    elif isinstance(content, dict) and before not in RECORDS:
        for key, value in content.items():
            path = f"{before}.{key}" if before else key
            yield path
            yield from _paths(value, path)


def made_report() -> dict[str, Any]:
    node = node_object(STATE) | {"apiVersion": "v1", "kind": "Node"}
    return report(as_document(), OUTCOMES, node, seen(STATE), "v1.37.2")


def test_a_report_has_no_name_of_another_pod() -> None:
    text = document_text(made_report(), YAML)
    assert not [word for word in ("secret", "stealth", "f00d") if word in text]
    assert yaml.safe_load(text)["versions"]["apiServer"] == "v1.37.2"


def test_a_report_has_what_each_case_was_predicted_from_that_does_not_agree(tmp_path: Path) -> None:
    (basis,) = made_report()["selftest"]["predictedFrom"]
    node, pods = tmp_path / "node.json", tmp_path / "pods.json"
    node.write_text(json.dumps(basis["nodeTopology"]))
    pods.write_text(json.dumps(basis["pod"]))
    answer = CliRunner().invoke(main, ["simulate", "--node", str(node), "--pods", str(pods), "-o", "json"])
    assert answer.exit_code == 0, answer.output
    (record,) = json.loads(answer.stdout)
    assert record["containers"][0]["cpus"] == "4-7"


def test_simulate_reads_a_report(tmp_path: Path) -> None:
    file, pods = tmp_path / "report.yaml", tmp_path / "pods.json"
    file.write_text(document_text(made_report(), YAML))
    pods.write_text(json.dumps(made_report()["selftest"]["predictedFrom"][0]["pod"]))
    answer = CliRunner().invoke(main, ["simulate", "--node", str(file), "--pods", str(pods), "-o", "json"])
    assert answer.exit_code == 0, answer.output
