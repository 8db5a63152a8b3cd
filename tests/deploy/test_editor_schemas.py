"""The schemas for editors are those of the kinds: they take what is written of a kind, and no typing error."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner
from deploy.editor_schemas import SCHEMAS, schemas
from deploy.manifests import ROOT
from tests.builders import node_state, node_topology_object
from tests.deploy.random_state import monster, random_claims, random_conditions, random_state, random_summary
from tests.seeds import SEED
from tools.chart import programs as chart
from verify.oracle.random_cases.recorded import RECORDED, unpacked

from topomend.cli.main import main
from topomend.model.condition import Condition
from topomend.model.relaunch_record import Relaunch, Step
from topomend.wire.published.node_topology import node_topology, status_of
from topomend.wire.relaunch_record import relaunch_object, relaunch_status

KINDS = ("Brake", "NodeTopology", "Relaunch", "Steering")
NOW = "2026-01-02T03:04:05Z"
WORDS = {
    *("$schema", "additionalProperties", "const", "description", "enum", "format", "items", "maxItems", "maxLength"),
    *("maxProperties", "maximum", "minLength", "minimum", "pattern", "properties", "required", "title", "type"),
}
"""Words that mean the same in OpenAPI 3.0, where the kinds are defined, and in draft 7."""


def schema_of(kind: str) -> Any:
    return json.loads((SCHEMAS / "topomend.io" / f"{kind.lower()}_v1alpha1.json").read_text())


def errors(content: dict[str, Any]) -> list[str]:
    # It builds 38 parsers, in each process that collects tests.
    from jsonschema import Draft7Validator, FormatChecker  # type: ignore[import-untyped]  # noqa: PLC0415

    validator = Draft7Validator(schema_of(content["kind"]), format_checker=FormatChecker())
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(content)]


def parameter(kind: str) -> dict[str, Any]:
    """An object that the policies read."""
    return {"apiVersion": "topomend.io/v1alpha1", "kind": kind, "metadata": {"name": "p"}, "validUntil": NOW}


def relaunch() -> dict[str, Any]:
    record = Relaunch(
        namespace="default",
        name="train-833736fb78",
        pod_name="train",
        pod_uid="0f3e1a52-6c52-4d5c-9c3f-1f9c0d8f7b11",
        refused_by="worker-1",
        reason="TopologyAffinityError",
        message="Pod was rejected",
        attempt=1,
        step=Step.LAUNCHED,
        manifest_hash="0f" * 32,
        conditions=(Condition("Succeeded", "Unknown", "UnschedulablePods", "", NOW),),
    )
    return relaunch_object(record) | {"status": relaunch_status(record)}


def topology() -> dict[str, Any]:
    """A NodeTopology as an agent writes it."""
    return with_times(node_topology_object(node_state()))


def with_times(content: dict[str, Any]) -> dict[str, Any]:
    """The same with what its writer adds."""
    for condition in content["status"]["conditions"]:
        condition["lastTransitionTime"] = NOW
    return {**content, "status": content["status"] | {"heartbeatTime": NOW}}


def written(rng: Random, *, huge: bool = False) -> dict[str, Any]:
    """A random NodeTopology as an agent writes it."""
    state = monster(rng) if huge else random_state(rng)
    status = status_of(state, random_summary(rng), random_conditions(rng), random_claims(rng))
    return with_times(node_topology(state.name, status))


def test_the_schemas_are_those_of_the_kinds_of_today() -> None:
    """``make generate`` writes them."""
    made = {str(name): text for name, text in schemas()}
    kept = {str(path.relative_to(SCHEMAS)): path.read_text() for path in SCHEMAS.rglob("*.json")}
    assert made == kept
    assert {name.rpartition("/")[2].partition("_")[0] for name in kept} == {kind.lower() for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_a_schema_is_valid_and_uses_no_word_that_openapi_has_alone(kind: str) -> None:
    schema = schema_of(kind)
    from jsonschema import Draft7Validator  # noqa: PLC0415  slow to import

    Draft7Validator.check_schema(schema)
    assert words_of(schema) <= WORDS


@pytest.mark.skipif(not RECORDED, reason="no recorded machines beside the project (../shared/data/hwloc)")
@pytest.mark.parametrize("name", list(RECORDED)[::4])
def test_a_discovered_machine_is_one_of_its_kind(name: str) -> None:
    found = CliRunner().invoke(main, ["discover", "--root", str(unpacked(name)), "-o", "json", "--node-name", "n"])
    assert errors(json.loads(found.stdout)) == []


def words_of(schema: dict[str, Any]) -> set[str]:
    nested = [*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")]
    return {*schema}.union(*(words_of(each) for each in nested if isinstance(each, dict)))


def test_every_object_that_is_written_is_valid() -> None:
    rng = Random(SEED)
    topologies = [*(written(rng) for _ in range(50)), written(rng, huge=True), topology()]
    for content in (*topologies, relaunch(), parameter("Steering"), parameter("Brake") | {"owners": {"uid": "a/b/c"}}):
        assert errors(content) == [], content["kind"]


@pytest.mark.parametrize(
    ("path", "value", "complaint"),
    [
        (("apiVersion",), "topomend.io/v1", "$.apiVersion: 'topomend.io/v1alpha1' was expected"),
        (("metadata",), None, "$.metadata: None is not of type 'object'"),
        (("status", "machines"), {}, "$.status: Additional properties are not allowed ('machines' was unexpected)"),
        (("status", "machine", "numaNodes", 0, "color"), 1, "('color' was unexpected)"),
        (("status", "machine", "numaNodes", 0, "id"), "0", "$.status.machine.numaNodes[0].id: '0' is not of type"),
        (("status", "machine", "offlineCPUs"), "all", "$.status.machine.offlineCPUs: 'all' does not match"),
    ],
)
def test_a_typing_error_is_named(path: tuple[Any, ...], value: Any, complaint: str) -> None:
    content = topology()
    *parents, last = path
    place: Any = content
    for name in parents:
        place = place[name]
    place[last] = value
    (error,) = errors(content)
    assert complaint in error


def test_what_every_object_needs_is_missed() -> None:
    assert errors({"kind": "Steering"}) == [
        "$: 'apiVersion' is a required property",
        "$: 'metadata' is a required property",
    ]


def test_kubeconform_finds_them_where_the_page_says(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "reference" / "library.md").read_text()
    location = "deploy/schemas/{{ .Group }}/{{ .ResourceKind }}_{{ .ResourceAPIVersion }}.json"
    assert location in page
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(json.dumps(topology()))
    bad.write_text(json.dumps(parameter("Steering") | {"validUntill": NOW}))
    done = chart.run("kubeconform", "-summary", "-schema-location", str(ROOT / location), str(good), str(bad))
    assert done.returncode == 1
    assert "Valid: 1, Invalid: 1, Errors: 0, Skipped: 0" in done.stdout
    assert "validUntill" in done.stdout
