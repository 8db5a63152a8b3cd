"""The chart as helm renders it, and as users are refused."""

from functools import cache
from typing import Any, TypeAlias

import yaml
from deploy.helm.chart import CHART
from tools.chart.programs import run

from topomend.model.nodes.kubelet import DEFAULT_VERSION
from topomend.runtime.manifests import documents

Object: TypeAlias = dict[str, Any]

HELMS = ("helm3", "helm4")


def template(*arguments: str, helm: str = "helm4", values: object = None) -> str:
    """What ``helm template`` prints, with ``values`` as a file of values."""
    return _template(helm, arguments, yaml.safe_dump(values or {}))


@cache
def _template(helm: str, arguments: tuple[str, ...], values: str) -> str:
    done = run(helm, *_command(*arguments), given=values)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refusal(*arguments: str, helm: str = "helm4", values: object = None) -> str:
    """Why helm does not render the chart."""
    done = run(helm, *_command(*arguments), given=yaml.safe_dump(values or {}))
    assert done.returncode != 0, "helm took these values"
    return done.stderr


def _command(*arguments: str) -> tuple[str, ...]:
    return "template", "topomend", str(CHART), f"--kube-version={DEFAULT_VERSION}", "--values=-", *arguments


def rendered(*arguments: str, helm: str = "helm4", hooks: bool = False, **values: Any) -> list[Object]:
    """The objects that helm renders with these values; without ``hooks`` those that an installation keeps."""
    options = () if hooks else ("--no-hooks",)
    text = template(*arguments, *options, helm=helm, values=values)
    return [item for item in documents(text) if item]


def key(item: Object) -> tuple[str, str, str, str]:
    """What names an object in a cluster."""
    metadata = item["metadata"]
    return item["apiVersion"], item["kind"], metadata.get("namespace", ""), metadata["name"]


def by_key(items: list[Object]) -> dict[tuple[str, str, str, str], Object]:
    """The objects by what names them, none twice."""
    found = {key(item): item for item in items}
    assert len(found) == len(items)
    return found


def the(items: list[Object], kind: str, name: str = "") -> Object:
    """The one object of a kind, of those of ``name`` if it is given."""
    (found,) = (item for item in items if item["kind"] == kind and name in ("", item["metadata"]["name"]))
    return found


def pod_of(items: list[Object], kind: str) -> Object:
    """The spec of the pods of the DaemonSet or the Deployment."""
    spec: Object = the(items, kind)["spec"]["template"]["spec"]
    return spec
