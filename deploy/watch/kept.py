"""What is generated of alerts and board, and where it is kept."""

from pathlib import Path

import yaml
from deploy.manifests import DEPLOY
from deploy.watch.alerts import groups
from deploy.watch.board import board_json

RULES = DEPLOY / "watch" / "rules.yaml"
RULE = DEPLOY / "components" / "prometheus-rule" / "rule.yaml"
BOARD = DEPLOY / "watch" / "board.json"

_HEAD = "# Generated from deploy/watch/alerts.py by make generate: do not edit.\n"


def kept() -> dict[Path, str]:
    """Every generated file with its content."""
    return {RULES: rules_file(), RULE: prometheus_rule(), BOARD: board_json()}


def rules_file() -> str:
    """The alerts as a file for ``rule_files`` of Prometheus."""
    return _HEAD + _yaml(groups())


def prometheus_rule() -> str:
    """The alerts as an object of the Prometheus Operator."""
    labels = {"name": "topomend", "component": "operator", "part-of": "topomend"}
    content = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {
            "name": "topomend-alerts",
            "namespace": "topomend-system",
            "labels": {f"app.kubernetes.io/{key}": value for key, value in labels.items()},
        },
        "spec": groups(),
    }
    return _HEAD + _yaml(content)


def _yaml(content: object) -> str:
    return yaml.safe_dump(content, sort_keys=False, width=10_000)
