"""The list of rules that a comparison must exercise, and the report that names those that no case reached."""

import json
from collections import Counter
from random import Random

import pytest
from verify.oracle.build import oracle_binary
from verify.oracle.compare import Report
from verify.oracle.kept import KEPT
from verify.oracle.kubelet_oracle import KubeletOracle
from verify.oracle.random_cases.generate import random_case
from verify.oracle.random_cases.varied import varied_case
from verify.oracle.rules import RULES, passed, rules_of

CASES = {path.stem: path for path in KEPT}


def test_every_rule_has_a_name_of_its_own() -> None:
    assert [name for name, count in Counter(RULES).items() if count > 1] == []
    assert len(RULES) > 100


def test_older_kubelets_have_fewer_rules() -> None:
    assert set(rules_of("v1.30.14")) < set(rules_of("v1.32.13")) < set(rules_of("v1.36.3")) == set(RULES)


def test_a_rule_that_no_case_reached_is_named() -> None:
    reached = Report(cases=1, reached=Counter(dict.fromkeys(RULES[1:], 2)))
    lines = list(reached.lines())
    assert f"never reached: {RULES[0]}" in lines
    assert f"{len(RULES) - 1} of {len(RULES)} rules reached" in "".join(lines)
    assert [line for line in lines if line.startswith("never")] == [f"never reached: {RULES[0]}"]
    reached.add(Report(reached=Counter({RULES[0]: 1})))
    assert [line for line in reached.lines() if line.startswith("never")] == []


def test_what_a_case_passed_through_is_in_the_list() -> None:
    """The answer is one that the kubelet gave: a Guaranteed pod on one NUMA node, then one that fits nowhere."""
    case = json.loads(CASES["refused-pods-leave-nothing"].read_text())
    given = {"name": "a", "affinity": [0], "preferred": True, "cpus": "1-2", "memory": None, "devices": None}
    state = {"pods": {"default/p": [given]}, "memory": None, "devices": {}, "defaultCPUs": "0"}
    words = "Pod was rejected: Resources cannot be allocated with Topology locality"
    steps = [
        {"admitted": True, "reason": "", "message": "", "containers": [given], "state": state},
        {"admitted": False, "reason": "TopologyAffinityError", "message": words, "containers": [], "state": state},
    ]
    admissions = [step for step in case["steps"] if "admit" in step][:2]
    names = passed({**case, "steps": admissions}, {"steps": steps})
    assert names <= set(RULES)
    assert {"refused: no hint that the policy admits", "an affinity of one NUMA node"} <= names


@pytest.mark.timeout(1200)  # the first one to run may have to compile the oracle
def test_no_case_passes_through_a_rule_that_is_not_in_the_list() -> None:
    with KubeletOracle(oracle_binary()) as oracle:
        for seed in range(100):
            case = (random_case if seed % 2 else varied_case)(Random(seed))
            assert passed(case, oracle.ask(case)) <= set(RULES), seed


def test_why_a_kubelet_does_not_start_is_recognised_by_its_message() -> None:
    case = json.loads(CASES["refused-pair-of-options"].read_text())
    assert not any(name.startswith("does not start") for name in passed(case, {"steps": []}))
    answer = {"refused": "static policy options a and b can not be used at the same time"}
    (rule,) = (name for name in passed(case, answer) if name.startswith("does not start"))
    options = case["kubelet"]["cpuManagerPolicyOptions"]
    assert rule == f"does not start: options {' and '.join(sorted(options))}"


def test_a_panic_is_recognised_by_its_message() -> None:
    case = json.loads(CASES["hugepages-of-a-missing-size"].read_text())
    names = passed(case, {"panic": "runtime error: invalid memory address or nil pointer dereference"})
    assert "a panic: huge pages of a size that a NUMA node lacks" in names


def test_a_varied_case_is_the_same_for_the_same_number_and_rarely_the_kept_one() -> None:
    cases = [varied_case(Random(seed)) for seed in range(60)]
    assert cases == [varied_case(Random(seed)) for seed in range(60)]
    cases = [json.loads(path.read_text()) for path in KEPT]
    plain = [{**case, "timeoutSeconds": 5} for case in cases]
    assert sum(case not in plain for case in cases) > 30
