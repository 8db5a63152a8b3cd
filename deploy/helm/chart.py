"""What of the Helm chart is generated, and where it is kept."""

from pathlib import Path

from deploy.helm.schema import values_schema
from deploy.helm.templates import templates
from deploy.manifests import DEPLOY

CHART = DEPLOY / "chart"


def generated() -> dict[Path, str]:
    """Every generated file of the chart with its content."""
    schema = values_schema((CHART / "values.yaml").read_text())
    made = {CHART / "templates" / name: text for name, text in templates().items()}
    return {**made, CHART / "values.schema.json": schema}
