"""Whoever misspells a value is refused, and told the right name: on thirty seeded typos, and on all names that near."""

import json
import random
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from deploy.helm.chart import CHART
from tests.deploy.chart.rendered import HELMS, refusal, rendered
from tests.deploy.chart.test_values import leaves, nested
from tests.seeds import SEED

SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())

LETTERS = "abcdefghijklmnopqrstuvwxyz"

TYPOS = 30


def _enumerated(schema: Mapping[str, Any], at: str = "") -> Iterator[tuple[str, list[str]]]:
    """The paths of values that are one of a few words, with these."""
    for name, inner in schema["properties"].items():
        if "properties" in inner:
            yield from _enumerated(inner, f"{at}{name}.")
        elif "enum" in inner:
            yield at + name, [word for word in inner["enum"] if word]


def misspelt(word: str, random_: random.Random) -> str:
    """The word with one slip of a typist."""
    at = random_.randrange(len(word))
    letter = random_.choice(LETTERS)
    slips = [
        word[:at] + word[at + 1 :],
        word[:at] + letter + word[at:],
        word[:at] + letter + word[at + 1 :],
        word[:at] + word[at : at + 2][::-1] + word[at + 2 :],
        word[:at] + word[at].swapcase() + word[at + 1 :],
    ]
    return random_.choice([slip for slip in slips if slip and slip != word])


def _names_beside(path: str) -> set[str]:
    schema = SCHEMA
    for name in path.split(".")[:-1]:
        schema = schema["properties"][name]
    return set(schema["properties"])


def _seeded() -> Iterator[tuple[str, Any, str]]:
    """Path and value with a typo, and what the refusal must name: of three, two in names and one in a value."""
    random_ = random.Random(SEED)
    paths = sorted(set(leaves(SCHEMA)) - {"global"})
    words = sorted(_enumerated(SCHEMA))
    for number in range(TYPOS):
        if number % 3 == 2:
            path, allowed = random_.choice(words)
            right = random_.choice(allowed)
            yield path, misspelt(right, random_), f"'{right}'"
            continue
        names = random_.choice(paths).split(".")
        at = random_.randrange(len(names))
        right = ".".join(names[: at + 1])
        wrong = misspelt(names[at], random_)
        while wrong in _names_beside(right):
            wrong = misspelt(names[at], random_)
        yield ".".join([*names[:at], wrong, *names[at + 1 :]]), "x", f"did you mean {right}?"


@pytest.mark.parametrize(("path", "value", "named"), list(_seeded()), ids=str)
def test_a_seeded_typo_is_refused_and_the_right_name_told(path: str, value: Any, named: str) -> None:
    print(f"seed {SEED}")
    assert named in refusal(values=nested(path, value))


@pytest.mark.parametrize("helm", HELMS)
def test_the_refusal_reads_like_this(helm: str) -> None:
    values = {"agent": {"toleration": []}, "mode": "observ", "operator": {"settings": {"workers": 0}}}
    said = {line.strip(" -") for line in refusal(helm=helm, values=values).splitlines()}
    assert said >= {
        "at '/agent': additional properties 'toleration' not allowed",
        "at '/agent': value must be 'did you mean agent.tolerations?'",
        "at '/mode': value must be one of 'relaunch', 'observe'",
        "at '/operator/settings/workers': minimum: got 0, want 1",
    }


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"tolerations": []}, "operator.tolerations or agent.tolerations"),
        ({"replicas": 3}, "operator.replicas"),
        ({"replicaCount": 3}, "operator.replicas"),
        ({"nameOverride": "numa"}, "fullnameOverride"),
        ({"installCRDs": True}, "crds.enabled"),
        ({"layout": "k3s"}, "kubelet.layout"),
        ({"image": {"repo": "registry/numa"}}, "image.repository"),
        ({"operator": {"replicaCount": 3}}, "operator.replicas"),
        ({"agent": {"tolerations": [{"efect": "NoSchedule"}]}}, "effect"),
        ({"agent": {"resources": {"limit": {"cpu": 1}}}}, "limits"),
        ({"operator": {"extraEnv": [{"name": "A", "valuefrom": {}}]}}, "valueFrom"),
    ],
    ids=str,
)
def test_names_of_other_charts_other_places_and_kubernetes_own_are_told_too(values: Any, named: str) -> None:
    assert f"did you mean {named}?" in refusal(values=values)


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        ("operator.replicas", "two", "got string, want integer"),
        ("preemption.enabled", "yes please", "got string, want boolean"),
        ("fullnameOverride", "numa", "does not match pattern"),
        ("image.repository", "registry:5000/topomend:v1", "does not match pattern"),
        ("image.digest", "sha256:12", "does not match pattern"),
        ("agent.namespace", "Numa", "does not match pattern"),
        ("commonLabels", {"app.kubernetes.io/name": "numa"}, "value must be 'left to topomend'"),
        ("operator.podDisruptionBudget.maxUnavailable", "half", "does not match pattern"),
        ("imagePullSecrets", ["registry"], "got string, want object"),
        ("kubelet.state.cover", ["secrets"], "value must be one of 'config.json', '.dockercfg'"),
        ("metrics.port", 8081, "'not' failed"),
        ("metrics.port", 8443, "'not' failed"),
        ("agent.settings.interval", 100, "maximum: got 100, want 60"),
        ("agent.settings.interval", 0.05, "minimum: got 0.05, want 0.1"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused(path: str, value: Any, why: str) -> None:
    assert why in refusal(values=nested(path, value))


def _objects(schema: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    """Every schema of an object in a schema, with its path."""
    if isinstance(schema, Mapping):
        if schema.get("type") == "object":
            yield at, schema
        for name, inner in schema.items():
            yield from _objects(inner, f"{at}/{name}")


@pytest.mark.parametrize("helm", HELMS)
@pytest.mark.parametrize(
    ("values", "missing"),
    [
        ({"mode": None}, "mode"),
        ({"agent": {"namespace": None}}, "namespace"),
        ({"metrics": {"port": None}}, "port"),
        ({"operator": {"replicas": None}}, "replicas"),
        ({"image": {"repository": None}}, "repository"),
        ({"gating": None}, "gating"),
    ],
    ids=str,
)
def test_an_empty_value_that_a_template_needs_is_refused(helm: str, values: Any, missing: str) -> None:
    """``mode:`` alone would have the operator act, with all rights and without the policies that limit it."""
    said = refusal(helm=helm, values=values)
    assert re.search(rf"missing property '{missing}'|{missing} is required", said), said


def test_lists_and_kubernetes_types_may_be_emptied() -> None:
    emptied = {"affinity": None, "tolerations": None, "resources": None, "nodeSelector": None, "extraEnv": None}
    assert rendered(operator=emptied, agent=emptied, imagePullSecrets=None)


def test_no_object_of_the_schema_takes_unknown_names() -> None:
    """But maps of a user's own names, what an API server writes, and what belongs to a chart that contains this one."""
    for at, schema in _objects(SCHEMA):
        if "properties" in schema:
            assert schema["additionalProperties"] is False, at
        elif at != "/properties/global" and not at.endswith("/fieldsV1"):
            assert schema["additionalProperties"]["type"] in ("string", ["string", "number"]), at


def _rules(schema: Mapping[str, Any]) -> dict[str, re.Pattern[str]]:
    """For each name of an object what is near it, by the schema's own rules."""
    near = [rule["if"]["propertyNames"]["anyOf"] for rule in schema["allOf"] if "anyOf" in rule["if"]["propertyNames"]]
    return {name["const"]: re.compile(beyond["not"]["pattern"]) for name, beyond in near}


def _slips(word: str) -> Iterator[str]:
    """Every word that is one slip away."""
    for at in range(len(word) + 1):
        before, after = word[:at], word[at:]
        yield before + after[1:]
        yield before + after[:2][::-1] + after[2:]
        yield before + after[:1].swapcase() + after[1:]
        for letter in LETTERS:
            yield before + letter + after
            yield before + letter + after[1:]


def test_every_slip_in_every_name_is_answered_with_the_name_and_no_right_name_is_refused() -> None:
    """In Kubernetes' own types too. A name of one letter has no slip that can be told from another name."""
    tried = 0
    for at, schema in _objects(SCHEMA):
        names = schema.get("properties", {}).keys()
        if not names or at == "":
            continue
        near = _rules(schema) if "allOf" in schema else {}
        assert names == near.keys(), at
        for name, pattern in near.items():
            assert not [other for other in names - {name} if pattern.search(other)], f"{at}: {name}"
            for slip in set(_slips(name)) - names - {""}:
                assert pattern.search(slip), f"{at}: {slip} for {name}"
                tried += 1
    assert tried > 100_000
