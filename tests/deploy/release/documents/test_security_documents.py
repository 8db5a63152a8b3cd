"""What a release says of its security: both documents by the rules of their formats, each claim by the sources.

The rules are those of OpenVEX 0.2.0 and of Security Insights 2, in our words: neither schema is in a package.
"""

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from deploy.manifests import ROOT
from deploy.release.documents import insights, vex

SOURCE = "https://example.com/owner/topomend"

URL = {"type": "string", "pattern": r"^https?://\S+$"}
DATE = {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$"}
TEXT = {"type": "string", "minLength": 1}
FLAG = {"type": "boolean"}


def strict(optional: dict[str, Any] | None = None, **required: Any) -> dict[str, Any]:
    """An object with these fields and no others; in a field's name ``_`` stands for ``-``."""
    needed = {name.replace("_", "-"): rule for name, rule in required.items()}
    fields = needed | {name.replace("_", "-"): rule for name, rule in (optional or {}).items()}
    return {"type": "object", "properties": fields, "required": list(needed), "additionalProperties": False}


def some(rule: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": rule, "minItems": 1}


CONTACT = strict({"affiliation": TEXT, "email": TEXT, "social": TEXT}, name=TEXT, primary=FLAG)
TOOL = strict(
    {"version": TEXT, "comment": TEXT},
    name=TEXT,
    type={"enum": ["fuzzing", "container", "secret", "SCA", "SAST", "other"]},
    rulesets=some(TEXT),
    integration=strict(adhoc=FLAG, ci=FLAG, release=FLAG),
    results={"type": "object"},
)
PROJECT = strict(
    {"homepage": URL, "documentation": {"type": "object", "additionalProperties": URL}},
    name=TEXT,
    administrators=some(CONTACT),
    repositories=some(strict(name=TEXT, comment=TEXT, url=URL)),
    vulnerability_reporting=strict(
        {"security-policy": URL, "comment": TEXT, "contact": CONTACT}, reports_accepted=FLAG, bug_bounty_available=FLAG
    ),
)
REPOSITORY = strict(
    {
        "no-third-party-packages": FLAG,
        "documentation": {"type": "object", "additionalProperties": URL},
        "release": strict(
            {"changelog": URL, "attestations": some(strict(name=TEXT, location=URL, predicate_uri=TEXT))},
            automated_pipeline=FLAG,
            distribution_points=some(strict(uri=TEXT, comment=TEXT)),
        ),
    },
    status={"enum": ["active", "abandoned", "concept", "inactive", "moved", "suspended", "unsupported", "WIP"]},
    url=URL,
    accepts_change_request=FLAG,
    accepts_automated_change_request=FLAG,
    core_team=some(CONTACT),
    license=strict(url=URL, expression=TEXT),
    security=strict({"tools": some(TOOL)}, assessments=strict(self=strict({"evidence": URL}, comment=TEXT))),
)
INSIGHTS = strict(
    header=strict(schema_version={"pattern": r"^2\.\d+\.\d+$"}, last_updated=DATE, last_reviewed=DATE, url=URL),
    project=PROJECT,
    repository=REPOSITORY,
)

COMPONENT = {"@id": {"type": "string", "pattern": "^pkg:"}}
VEX = {
    "type": "object",
    "required": ["@context", "@id", "author", "timestamp", "version", "statements"],
    "additionalProperties": False,
    "properties": {
        "@context": {"const": "https://openvex.dev/ns/v0.2.0"},
        "@id": URL,
        "author": TEXT,
        "timestamp": TEXT,
        "version": {"type": "integer", "minimum": 1},
        "statements": some(
            strict(
                vulnerability=strict(
                    name={"type": "string", "pattern": r"^(CVE-\d{4}-\d{4,}|GHSA(-\w{4}){3}|PYSEC-\S+)$"}
                ),
                status={"const": "not_affected"},
                justification={
                    "enum": [
                        "component_not_present",
                        "vulnerable_code_not_present",
                        "vulnerable_code_not_in_execute_path",
                        "vulnerable_code_cannot_be_controlled_by_adversary",
                        "inline_mitigations_already_exist",
                    ]
                },
                products=some(
                    {
                        "type": "object",
                        "required": ["@id"],
                        "additionalProperties": False,
                        "properties": COMPONENT
                        | {"subcomponents": some({"type": "object", "properties": COMPONENT, "required": ["@id"]})},
                    }
                ),
            )
        ),
    },
}


def errors(schema: dict[str, Any], document: Any) -> list[str]:
    # It builds 38 parsers, in each process that collects tests.
    from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # noqa: PLC0415

    return [f"{error.json_path}: {error.message}" for error in Draft202012Validator(schema).iter_errors(document)]


def made_insights() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load(insights.document("1.2.3", SOURCE, "2026-01-31"))
    # YAML reads a day as one; the schema has it as text.
    assert not any(isinstance(value, datetime) for value in read["header"].values())
    return read


def test_the_insights_keep_to_their_schema() -> None:
    assert errors(INSIGHTS, made_insights()) == []


@pytest.mark.parametrize(
    "page", sorted(set(re.findall(r"blob/v1\.2\.3/(\S+)", insights.document("1.2.3", SOURCE, ""))))
)
def test_each_page_that_the_insights_name_is_there(page: str) -> None:
    assert page == "SECURITY-INSIGHTS.yml" or Path(ROOT, page).is_file()


def test_the_vex_document_keeps_to_its_schema() -> None:
    made = json.loads(vex.document("1.2.3", SOURCE, 1_600_000_000))
    assert datetime.fromisoformat(made["timestamp"]).tzinfo is not None
    for each in made["statements"]:
        assert each.pop("status_notes")
    assert errors(VEX, made) == []


@pytest.mark.parametrize("statement", vex.STATEMENTS, ids=lambda statement: statement.vulnerability)
def test_a_package_that_is_said_to_be_absent_is_absent(statement: vex.NotAffected) -> None:
    name = statement.package.rpartition("/")[2]
    assert statement.justification == vex.NOT_PRESENT, "say how another reason is checked"
    assert not re.search(rf"^{re.escape(name)}==", (ROOT / "requirements" / "runtime.lock").read_text(), re.MULTILINE)
    last_stage = (ROOT / "Dockerfile").read_text().rpartition("FROM ${PYTHON}\n")[2]
    assert f"site-packages/{name}*" in last_stage.split("RUN rm -rf", 1)[1].splitlines()[0]
