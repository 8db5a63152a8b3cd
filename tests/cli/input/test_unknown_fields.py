"""Warnings about fields that no pod has."""

from typing import Any

import pytest

from topomend.cli.input.unknown_fields import warn_of_unknown_fields

RESOURCES = {"limit": {"cpu": "1"}}


@pytest.mark.parametrize(
    ("document", "warning"),
    [
        (
            {"spec": {"containers": [{"name": "c", "resources": RESOURCES}]}},
            "warning: -f x: spec.containers[0].resources: no such field 'limit': did you mean limits?\n",
        ),
        (
            {"items": [{"spec": {"template": {"spec": {"initContainers": [{"resource": {}}]}}}}]},
            "warning: -f x: spec.template.spec.initContainers[0]: no such field 'resource': did you mean resources?\n",
        ),
        (
            {"spec": {"nodeselector": {}, "containers": []}},
            "warning: -f x: spec: no such field 'nodeselector': did you mean nodeSelector?\n",
        ),
        ({"spec": {"containers": [{"name": "c", "resources": {"limits": {}}}], "tolerations": []}}, ""),
        ("text", ""),
        ({"kind": "Deployment", "spec": {"replicas": 3, "template": None}}, ""),
        ({"spec": ["odd"]}, ""),
        ({"spec": {"containers": {"c": 1}, "resources": 3}}, ""),
    ],
)
def test_an_unknown_field_is_named_with_the_nearest(
    document: Any, warning: str, capsys: pytest.CaptureFixture[str]
) -> None:
    warn_of_unknown_fields([document], "-f x")
    assert capsys.readouterr().err == warning
