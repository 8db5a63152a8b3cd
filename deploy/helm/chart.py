"""What of the Helm chart is generated, and where it is kept."""

import json
from pathlib import Path

from deploy.helm.readme import readme
from deploy.helm.schema import values_schema
from deploy.helm.templates import templates
from deploy.manifests import DEPLOY

CHART = DEPLOY / "chart"


def generated() -> dict[Path, str]:
    """Every generated file of the chart with its content."""
    values = (CHART / "values.yaml").read_text()
    schema = values_schema(values)
    made = {CHART / "templates" / name: text for name, text in templates().items()}
    return {
        **made,
        CHART / "values.schema.json": schema,
        CHART / "README.md": readme(json.loads(schema), values),
    }
