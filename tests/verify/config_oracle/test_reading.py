"""What is read from a configuration is what the kubelet's own loader reads (``make config-oracle`` tries many more)."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from verify.config_oracle import facts
from verify.config_oracle.build import config_oracle_binary
from verify.config_oracle.compare import REFUSED, compare, compare_many, document_difference
from verify.config_oracle.generate import encoded
from verify.config_oracle.texts import SCALARS
from verify.oracle.kubelet_oracle import KubeletOracle

from topomend.discover.kubelet_config.fields import types_of
from topomend.discover.kubelet_config.files import NOT_TOLD
from topomend.discover.kubelet_config.flag_names import flag_names
from topomend.model.nodes.kubelet import DEFAULT_VERSION
from topomend.replay.gates import minor_of

CASES = sorted((Path(facts.__file__).parent / "cases").glob("*.json"))
FIRST_CASE, RANDOM_CASES = 9_900_000, 300
"""The same ones in each run, so that a new disagreement is found by ``make config-oracle`` and becomes a kept case."""

NEWER_PARSER = ("[]: a\n", "a: [!, b]\n", "a: [!!str, b]\n")
"""libyaml 0.2.5 reads these by rules that the port of it in Kubernetes does not have: topomend does not read them."""

pytestmark = [pytest.mark.xdist_group("config-oracle"), pytest.mark.timeout(1200)]  # it may have to be built


@pytest.fixture(scope="module")
def oracle() -> Iterator[KubeletOracle]:
    with KubeletOracle(config_oracle_binary()) as started:
        yield started


def kept(path: Path) -> dict[str, Any]:
    case: dict[str, Any] = json.loads(path.read_text())
    if "file" in case:
        case["file"] = encoded(case["file"].encode())
    if "dropIns" in case:
        case["dropIns"] = {name: encoded(text.encode()) for name, text in case["dropIns"].items()}
    return case


@pytest.mark.parametrize("path", CASES, ids=[path.stem for path in CASES])
def test_a_kept_configuration_is_read_as_the_kubelet_reads_it(oracle: KubeletOracle, path: Path) -> None:
    case = kept(path)
    expected = REFUSED if case.pop("refused", False) else NOT_TOLD if case.pop("notTold", False) else None
    assert compare(oracle, case, DEFAULT_VERSION) == expected


def test_random_configurations_are_read_as_the_kubelet_reads_them(oracle: KubeletOracle) -> None:
    report = compare_many(oracle, FIRST_CASE, RANDOM_CASES, DEFAULT_VERSION)
    assert report.differences == []
    assert report.read > RANDOM_CASES // 4
    assert report.refused > RANDOM_CASES // 10


@pytest.mark.parametrize("form", ["a: {}\n", "- {}\n", "{}: a\n", "a: [{}, b]\n", "a:\t{}\t# c\n", '{{"a": {}}}', "{}"])
def test_a_scalar_is_read_as_the_kubelet_reads_it(oracle: KubeletOracle, form: str) -> None:
    texts = [form.format(scalar) for scalar in SCALARS]
    differences = {text: document_difference(oracle, text.encode()) for text in texts}
    untold = {text for text in texts if text in NEWER_PARSER}
    assert {text: said for text, said in differences.items() if said} == dict.fromkeys(untold, NOT_TOLD)


def test_a_flag_is_known_where_the_kubelet_knows_it(oracle: KubeletOracle) -> None:
    """But help, which a program answers before it reads anything."""
    known = flag_names(minor_of(DEFAULT_VERSION)) - {"help"}
    asked = {name for minor in (30, minor_of(DEFAULT_VERSION)) for name in flag_names(minor)} - {"help"}
    answers = {name: oracle.ask({"flags": [f"--{name}="]}).get("error", "") for name in asked}
    assert {name for name, error in answers.items() if "unknown flag" not in error} == known


def test_the_types_and_flags_of_all_fields_are_the_kubelets() -> None:
    own = facts.oracle_facts()
    written = json.loads(facts.TARGET.read_text())
    known = types_of(minor_of(DEFAULT_VERSION))
    assert own["types"] == {struct: dict(fields) for struct, fields in known.items() if fields}
    assert (own["flags"], own["defaulted"]) == (written["flags"], written["defaulted"])
