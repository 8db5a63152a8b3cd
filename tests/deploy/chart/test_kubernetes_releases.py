"""Every release of Kubernetes that topomend supports knows every field of every object that the chart renders."""

import json
from typing import Any

import pytest
import yaml
from tests.clusters import ROOT
from tests.deploy.chart.rendered import Object, rendered
from tests.deploy.chart.test_values import EVERYTHING
from tools.chart.programs import run
from verify.chart.schemas import LOCATION, written

from topomend.sandbox.releases.go_modules import OLDEST_MINOR, minor_of

RELEASES = next(
    line.split("?=")[1].split() for line in (ROOT / "Makefile").read_text().splitlines() if line.startswith("RELEASES")
)

OF_OTHERS = ("SecurityContextConstraints", "PodMonitor", "ServiceMonitor", "PrometheusRule")
"""Kinds of OpenShift and of the Prometheus Operator, which no release has."""


def conform(version: str, items: list[Object]) -> dict[str, Any]:
    """What kubeconform says of the objects."""
    folder = written(version, {(item["apiVersion"], item["kind"]) for item in items})
    options = (
        "-strict",
        "-summary",
        "-output=json",
        f"-skip={','.join(OF_OTHERS)}",
        f"-schema-location={folder}/{LOCATION}",
    )
    done = run("kubeconform", *options, given=yaml.safe_dump_all(items))
    report: dict[str, Any] = json.loads(done.stdout)
    assert (done.returncode == 0) == (not report.get("resources")), done.stderr
    return report


def test_all_releases_are_tried() -> None:
    assert [minor_of(version) for version in RELEASES] == list(range(OLDEST_MINOR, minor_of(RELEASES[-1]) + 1))


@pytest.mark.parametrize("version", RELEASES)
def test_a_release_takes_the_base_and_what_every_value_adds(version: str) -> None:
    for values in ({}, EVERYTHING, {"mode": "observe"}):
        items = rendered(hooks=True, **values)
        report = conform(version, items)
        skipped = sum(item["kind"] in OF_OTHERS for item in items)
        assert report["summary"] == {"valid": len(items) - skipped, "invalid": 0, "errors": 0, "skipped": skipped}


@pytest.mark.parametrize("version", [RELEASES[0], RELEASES[-1]])
def test_an_unknown_field_and_a_wrong_type_are_found(version: str) -> None:
    items = [item for item in rendered() if item["kind"] == "Deployment"]
    (container,) = items[0]["spec"]["template"]["spec"]["containers"]
    container["imagePulPolicy"] = "Always"
    items[0]["spec"]["replicas"] = "two"
    (found,) = conform(version, items)["resources"]
    assert "at '/spec/replicas': got string, want integer" in found["msg"]
    assert "at '/spec/template/spec/containers/0': additional properties 'imagePulPolicy' not allowed" in found["msg"]
